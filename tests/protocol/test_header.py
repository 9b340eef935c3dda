"""The header: a user masks only under one that it can check, and whoever is told anything else masks apart."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec
import pytest

from protocol.rounds import Run, flipped, grouped, small, tampered
from sparsesecagg.errors import (
    InvalidKey,
    MalformedMessage,
    PolicyViolation,
    SparseSecAggError,
    TooLittleOpened,
    WrongBinding,
)
from sparsesecagg.protocol import Stage
from sparsesecagg.protocol.epoch import Header
from sparsesecagg.protocol.messages import SEALED_SIZE, Upload, decode_client_message, encode, pieces

OTHER = b"another model".ljust(32)


@pytest.fixture
def run() -> Run:
    """One group of seven, four of whom open a sum."""
    return Run(small(clients=7)).begin()


def refuses(run: Run, data: bytes, error: type[SparseSecAggError], match: str | None = None) -> None:
    """The client uploads nothing, its state is as before, and it still takes the genuine header."""
    before = run.clients[0].save()
    with pytest.raises(error, match=match):
        run.answer(0, data)
    assert run.clients[0].save() == before
    run.answer(0)


def keys_of(run: Run) -> list[bytes]:
    return pieces(run.header_of(0).mask_keys, run.params.clients, 32, "")


def without(run: Run, gone: Iterable[int], user: int = 0) -> bytes:
    """Return a user's header without some members."""
    header, users = run.header_of(user), range(run.params.clients)
    left = [each for each in users if each not in set(gone)]
    near = run.clients[user]._joined()[0].partners(user).tolist()
    sealed = dict(zip(near, pieces(header.shares, len(near), SEALED_SIZE, ""), strict=True))
    keys = pieces(header.mask_keys, len(users), 32, "")
    return tampered(
        run.inbox[user],
        members=run.bitmap(left),
        mask_keys=b"".join(keys[each] for each in left),
        shares=b"".join(share for each, share in sealed.items() if each in left),
    )


class TestMaskKeys:
    @pytest.mark.parametrize("byte", [0, 30])
    def test_the_own_key_must_stand_there_as_it_was_shared(self, run: Run, byte: int) -> None:
        keys = keys_of(run)
        keys[0] = flipped(keys[0], byte)
        refuses(run, tampered(run.inbox[0], mask_keys=b"".join(keys)), InvalidKey, "another mask key for this user")

    def test_all_keys_differ(self, run: Run) -> None:
        keys = keys_of(run)
        keys[2] = keys[3]
        refuses(run, tampered(run.inbox[0], mask_keys=b"".join(keys)), InvalidKey, "twice")

    def test_a_low_order_key_of_a_peer_is_refused(self, run: Run) -> None:
        keys = keys_of(run)
        keys[2] = bytes(32)
        before = run.ledgers[0].last()
        with pytest.raises(InvalidKey, match="unusable"):
            run.answer(0, tampered(run.inbox[0], mask_keys=b"".join(keys)))
        assert run.ledgers[0].last().answer is before.answer is None

    @pytest.mark.parametrize("change", [-1, 1, -32, 32])
    def test_there_is_one_key_per_member(self, run: Run, change: int) -> None:
        keys = run.header_of(0).mask_keys
        refuses(
            run,
            tampered(run.inbox[0], mask_keys=keys[:change] if change < 0 else keys + bytes(change)),
            MalformedMessage,
        )

    @pytest.mark.parametrize("change", [-1, 1, -SEALED_SIZE, SEALED_SIZE])
    def test_there_is_one_pair_of_shares_per_partner(self, run: Run, change: int) -> None:
        shares = run.header_of(0).shares
        refuses(
            run,
            tampered(run.inbox[0], shares=shares[:change] if change < 0 else shares + bytes(change)),
            MalformedMessage,
        )


class TestMembers:
    def test_a_header_without_oneself_is_refused(self, run: Run) -> None:
        refuses(run, without(run, [0]), PolicyViolation, "not part of the round")

    def test_fewer_members_than_the_threshold_are_refused(self, run: Run) -> None:
        refuses(run, without(run, [3, 4, 5, 6]), PolicyViolation, "only 3 users take part, 4 are needed")

    def test_the_threshold_is_enough(self, run: Run) -> None:
        assert run.answer(0, without(run, [4, 5, 6]))

    def test_a_member_that_never_advertised_a_key_is_refused(self) -> None:
        run = Run(small(), absent=[4]).begin()
        header = run.header_of(0)
        added = tampered(
            run.inbox[0], members=b"\x1f", mask_keys=header.mask_keys + bytes(32), shares=header.shares + bytes(48)
        )
        refuses(run, added, PolicyViolation, "never advertised a key")

    @pytest.mark.parametrize("members", [b"", b"\x7f\x00", b"\xff"])
    def test_a_set_of_another_group_is_refused(self, run: Run, members: bytes) -> None:
        refuses(run, tampered(run.inbox[0], members=members), MalformedMessage)

    def test_nobody_is_left_without_mask_partners_in_a_sparse_graph(self) -> None:
        """Told that all its neighbours left, a user would upload with no pair mask at all."""
        run = Run(small(clients=12, neighbours=4, threshold=3)).begin()
        gone = run.clients[0]._joined()[0].partners(0).tolist()
        assert len(gone) == 4
        refuses(run, without(run, gone), PolicyViolation, "only 1 users share masks with this one, 3 are needed")

    def test_half_of_all_take_part_in_a_sparse_graph(self) -> None:
        run = Run(small(clients=12, neighbours=4, threshold=3)).begin()
        near = run.clients[0]._joined()[0].partners(0).tolist()
        others = [user for user in range(1, 12) if user not in near]
        refuses(run, without(run, others[:6]), PolicyViolation, "only 6 users take part, 7 are needed")


class TestDigest:
    def test_it_covers_epoch_round_members_keys_and_context(self, run: Run) -> None:
        epoch, message = run.clients[0]._joined()[0], run.header_of(0)
        other = Run(small(clients=7), seed=1).begin()
        replace = msgspec.structs.replace
        variants = [
            message,
            replace(message, round_number=2),
            replace(message, members=b"\x3f", mask_keys=message.mask_keys[:-32]),
            replace(message, mask_keys=flipped(message.mask_keys)),
            replace(message, context=OTHER),
        ]
        digests = {Header(epoch, each).digest for each in variants}
        digests.add(Header(other.clients[0]._joined()[0], message).digest)
        assert len(digests) == 6
        header = Header(epoch, message)
        assert header.binding == header.digest[:8]
        assert Header(epoch, replace(message, shares=b"")).digest == header.digest, "these differ for each user"

    def test_masks_and_tags_depend_on_it(self, run: Run) -> None:
        """The same update under another context has nothing in common with the first."""
        twin = run.copied(0)
        first = decode_client_message(run.answer(0))
        twin._entropy = run.clients[0]._entropy
        other = decode_client_message(twin.upload(tampered(run.inbox[0], context=OTHER), run.updates[0], context=OTHER))
        assert first.words != other.words  # type: ignore[union-attr]
        tags, others = (pieces(each.tags, 6, 8, "") for each in (first, other))  # type: ignore[union-attr]
        assert not set(tags) & set(others)

    def test_a_header_of_another_epoch_is_refused(self, run: Run) -> None:
        refuses(run, tampered(run.inbox[0], binding=bytes(8)), WrongBinding)

    def test_a_context_is_what_both_sides_say_it_is(self) -> None:
        run = Run(small())
        run.context = OTHER
        assert run.round().survivors == (0, 1, 2, 3, 4)

    def test_a_header_on_record_is_answered_for_its_own_context_only(self) -> None:
        """A server that sends it again with another model, as after a training that failed, gets no answer."""
        run = Run(small()).begin()
        client = run.clients[0]
        client.accept(run.inbox[0])
        for ask in (client.accept, partial(client.upload, update=run.updates[0])):
            with pytest.raises(WrongBinding):
                ask(run.inbox[0], context=OTHER)
        client.upload(run.inbox[0], run.updates[0])

    @pytest.mark.parametrize("what", ["context", "members", "key"])
    def test_whoever_is_told_something_else_is_not_in_the_sum(self, run: Run, what: str) -> None:
        """The others find no valid tag of it, and open their sum without it."""
        context = OTHER if what == "context" else bytes(32)
        keys = keys_of(run)
        keys[1] = keys[1][:-1] + bytes([keys[1][-1] ^ 1])
        told = {
            "context": tampered(run.inbox[0], context=OTHER),
            "members": without(run, [6]),
            "key": tampered(run.inbox[0], mask_keys=b"".join(keys)),
        }[what]
        answer = run.clients[0].upload(told, run.updates[0], context=context)
        with pytest.raises((WrongBinding, MalformedMessage)):
            run.server.receive(None, answer)
        # The server pretends that it does not notice.
        message = decode_client_message(answer)
        assert isinstance(message, Upload)
        tags = message.tags + bytes(48 - len(message.tags))
        binding = run.server.rounds[0].header.binding
        run.server.receive(None, encode(msgspec.structs.replace(message, binding=binding, tags=tags)))
        for user in range(1, 7):
            run.server.receive(None, run.answer(user))
        run.inbox = run.server.close_stage()
        with pytest.raises(WrongBinding):
            run.answer(0)
        run.step(silent=[0])
        assert run.server.stage is Stage.SHARE_KEYS
        assert run.result.survivors == (1, 2, 3, 4, 5, 6)
        assert set(run.server.excluded) == {0}

    def test_if_two_halves_are_told_different_things_nothing_opens(self) -> None:
        run = Run(small(clients=6)).begin()
        for user in range(6):
            context = OTHER if user < 3 else bytes(32)
            answer = run.clients[user].upload(
                tampered(run.inbox[user], context=context), run.updates[user], context=context
            )
            binding = run.server.rounds[0].header.binding
            run.server.receive(None, encode(msgspec.structs.replace(decode_client_message(answer), binding=binding)))
        run.inbox = run.server.close_stage()
        for user in range(3, 6):
            with pytest.raises(PolicyViolation, match="3 survivors have valid tags for this round, 4 are needed"):
                run.answer(user)
        with pytest.raises((TooLittleOpened, SparseSecAggError)):
            run.server.close_stage()
        assert run.server.result is None


def test_groups_have_headers_of_their_own() -> None:
    run = Run(grouped()).begin()
    stranger = next(user for user in range(12) if run.group(user).number != run.group(0).number)
    with pytest.raises(WrongBinding):
        run.answer(0, run.inbox[stranger])
    assert len({run.header_of(user).mask_keys for user in range(12)}) == 2
