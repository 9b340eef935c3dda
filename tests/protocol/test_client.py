"""A client protects itself: whatever a server sends, a client gives away no more than its policy allows."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from sparsesecagg.protocol.membership import ENTRY_SIZE, nonce_commitment

from protocol.rounds import LENIENT, Round, identities, small
from sparsesecagg.errors import (
    InvalidInput,
    InvalidKey,
    MalformedMessage,
    PolicyViolation,
    SparseSecAggError,
    WrongRound,
    WrongStage,
    WrongView,
)
from sparsesecagg.protocol import Client, Policy, RoundParameters, Stage
from sparsesecagg.protocol.messages import decode_server_message, encode, encode_users


def tampered(data: bytes, **changes: object) -> bytes:
    """Return a server's message with some fields changed."""
    return encode(msgspec.structs.replace(decode_server_message(data), **changes))


def users(*numbers: int, clients: int = 5) -> bytes:
    """Return a set of users as it travels."""
    return encode_users(np.array(numbers, np.int64), clients)


def refuses(game: Round, user: int, data: bytes, error: type[SparseSecAggError]) -> None:
    """The client raises, its state is as before, and it goes on with the genuine message."""
    client = game.clients[user]
    before = client.save()
    genuine, game.inbox[user] = game.inbox[user], data
    with pytest.raises(error):
        game.answer(user)
    assert client.save() == before
    game.inbox[user] = genuine


class TestKeyDirectory:
    @pytest.fixture
    def game(self) -> Round:
        return Round(small()).run_to(Stage.SHARE_KEYS)

    def test_swapped_own_keys_are_noticed(self, game: Round) -> None:
        entries = bytearray(decode_server_message(game.inbox[0]).entries)
        entries[:32] = bytes(range(32))
        refuses(game, 0, tampered(game.inbox[0], entries=bytes(entries)), InvalidKey)

    def test_a_key_that_occurs_twice_is_refused(self, game: Round) -> None:
        entries = decode_server_message(game.inbox[0]).entries
        twice = entries[:ENTRY_SIZE] + entries[ENTRY_SIZE : 2 * ENTRY_SIZE] * 2 + entries[3 * ENTRY_SIZE :]
        refuses(game, 0, tampered(game.inbox[0], entries=twice), InvalidKey)

    @pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31)])
    @pytest.mark.parametrize("place", [0, 32])
    def test_a_low_order_point_is_refused(self, game: Round, key: bytes, place: int) -> None:
        entries = bytearray(decode_server_message(game.inbox[0]).entries)
        start = 2 * ENTRY_SIZE + place
        entries[start : start + 32] = key
        refuses(game, 0, tampered(game.inbox[0], entries=bytes(entries)), InvalidKey)

    def test_a_swapped_commitment_to_ones_own_nonce_is_noticed(self, game: Round) -> None:
        """A server that commits to nonces of its own could choose the committees."""
        entries = bytearray(decode_server_message(game.inbox[0]).entries)
        entries[64:96] = nonce_commitment(bytes(entries[:32]), bytes(entries[32:64]), b"the server's own")
        refuses(game, 0, tampered(game.inbox[0], entries=bytes(entries)), InvalidKey)

    def test_a_directory_without_oneself_is_refused(self, game: Round) -> None:
        message = decode_server_message(game.inbox[0])
        others = tampered(game.inbox[0], users=users(1, 2, 3, 4), entries=message.entries[ENTRY_SIZE:])
        refuses(game, 0, others, PolicyViolation)

    def test_a_directory_of_too_few_is_refused(self, game: Round) -> None:
        message = decode_server_message(game.inbox[0])
        few = tampered(game.inbox[0], users=users(0, 1), entries=message.entries[: 2 * ENTRY_SIZE])
        refuses(game, 0, few, PolicyViolation)

    def test_entries_that_do_not_fit_the_users_are_refused(self, game: Round) -> None:
        refuses(game, 0, tampered(game.inbox[0], users=users(0, 1, 2)), MalformedMessage)


class TestShareDelivery:
    @pytest.fixture
    def game(self) -> Round:
        return Round(small()).run_to(Stage.UPLOAD)

    def test_shares_of_the_wrong_length_are_refused(self, game: Round) -> None:
        refuses(game, 0, tampered(game.inbox[0], shares=bytes(88 * 3)), MalformedMessage)

    def test_members_without_oneself_are_refused(self, game: Round) -> None:
        message = decode_server_message(game.inbox[0])
        refuses(game, 0, tampered(game.inbox[0], users=users(1, 2, 3, 4), nonces=message.nonces[16:]), PolicyViolation)

    def test_too_few_members_are_refused(self, game: Round) -> None:
        message = decode_server_message(game.inbox[0])
        few = tampered(game.inbox[0], users=users(0, 1), nonces=message.nonces[:32], shares=message.shares[:88])
        refuses(game, 0, few, PolicyViolation)

    def test_a_nonce_that_was_not_committed_to_is_refused(self, game: Round) -> None:
        """Otherwise the server could choose the committees."""
        nonces = bytearray(decode_server_message(game.inbox[0]).nonces)
        nonces[40] ^= 1
        refuses(game, 0, tampered(game.inbox[0], nonces=bytes(nonces)), InvalidKey)

    @pytest.mark.parametrize(
        "update",
        [
            np.zeros(39, np.float32),
            np.zeros((40, 1), np.float32),
            np.zeros(40, np.int64),
            np.full(40, np.nan, np.float32),
            np.full(40, np.inf),
            [0.0] * 40,
        ],
    )
    def test_an_update_that_can_not_be_added_is_refused(self, game: Round, update: np.ndarray) -> None:
        before = game.clients[0].save()
        with pytest.raises(InvalidInput, match="update"):
            game.clients[0].upload(game.inbox[0], update)
        assert game.clients[0].save() == before

    def test_a_weight_in_a_round_without_weights_is_refused(self, game: Round) -> None:
        with pytest.raises(InvalidInput, match="weight"):
            game.clients[0].upload(game.inbox[0], game.updates[0], weight=2)


class TestUnmask:
    @pytest.fixture
    def game(self) -> Round:
        return Round(small()).run_to(Stage.UNMASK)

    def test_a_survivor_that_never_shared_its_keys_is_refused(self) -> None:
        game = Round(small()).run_to(Stage.SHARE_KEYS)
        game.step(silent=[4])
        game.step()
        refuses(game, 0, tampered(game.inbox[0], survivors=users(0, 1, 2, 3, 4)), PolicyViolation)

    def test_being_declared_dropped_and_asked_all_the_same_is_refused(self, game: Round) -> None:
        refuses(game, 0, tampered(game.inbox[0], survivors=users(1, 2, 3, 4)), PolicyViolation)

    def test_too_few_survivors_are_refused(self, game: Round) -> None:
        refuses(game, 0, tampered(game.inbox[0], survivors=users(0, 1)), PolicyViolation)

    def test_a_second_request_gets_nothing(self, game: Round) -> None:
        """Asking once for seeds and once for mask keys would open a single user's upload."""
        game.clients[0].unmask(game.inbox[0])
        other = tampered(game.inbox[0], survivors=users(0, 1, 2, 3))
        with pytest.raises(WrongStage):
            game.clients[0].unmask(other)

    def test_one_kind_of_share_per_owner(self, game: Round) -> None:
        """Whatever the survivors, each owner appears once, with one share."""
        from sparsesecagg.protocol.messages import decode_client_message, decode_users

        message = decode_client_message(game.clients[0].unmask(game.inbox[0]))
        owners = decode_users(message.owners, 5)
        assert len(message.shares) == 36 * len(owners)
        assert len(set(owners.tolist())) == len(owners)

    def test_a_set_of_another_cohort_is_refused(self, game: Round) -> None:
        refuses(game, 0, tampered(game.inbox[0], survivors=b"\xff"), MalformedMessage)
        refuses(game, 0, tampered(game.inbox[0], survivors=b"\x1f\x00"), MalformedMessage)


@pytest.mark.parametrize("stage", [Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK])
class TestEveryStage:
    def test_another_round_another_view_and_another_stage_are_refused(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        refuses(game, 0, tampered(game.inbox[0], round_number=9), WrongRound)
        refuses(game, 0, tampered(game.inbox[0], view=bytes(8)), WrongView)
        ahead = Round(small(), seed=1).run_to(Stage.UNMASK if stage is not Stage.UNMASK else Stage.UPLOAD)
        refuses(game, 0, ahead.inbox[0], WrongStage)

    def test_broken_bytes_are_refused(self, stage: Stage) -> None:
        game = Round(small()).run_to(stage)
        for broken in (b"", game.inbox[0][:-1], game.inbox[0] + b"!", b"\x02" + game.inbox[0][1:]):
            refuses(game, 0, broken, MalformedMessage)

    def test_a_client_can_be_saved_and_restored(self, stage: Stage) -> None:
        """As engines do that restart a process between stages."""
        game = Round(small(pattern="pairwise")).run_to(stage)
        for user in game.clients:
            game.clients[user] = Client.restore(game.clients[user].save(), LENIENT)
        game.run_to(Stage.DONE)
        plain = Round(small(pattern="pairwise")).run_to(Stage.DONE)
        assert game.server.result is not None
        assert plain.server.result is not None
        assert game.server.result.survivors == plain.server.result.survivors


def test_stages_run_in_order_and_once() -> None:
    game = Round(small())
    with pytest.raises(WrongStage):
        game.clients[0].share_keys(Round(small()).run_to(Stage.SHARE_KEYS).inbox[0])
    game.clients[0].advertise_keys()
    with pytest.raises(WrongStage):
        game.clients[0].advertise_keys()


def test_rubbish_is_no_saved_client() -> None:
    with pytest.raises(MalformedMessage):
        Client.restore(b"rubbish")


def test_a_share_that_does_not_open_is_left_out_and_the_round_goes_on() -> None:
    """One user seals rubbish for another: the others restore its secret without that holder."""
    game = Round(small()).run_to(Stage.UPLOAD)
    spoilt = bytearray(decode_server_message(game.inbox[0]).shares)
    spoilt[0] ^= 1
    game.inbox[0] = tampered(game.inbox[0], shares=bytes(spoilt))
    game.run_to(Stage.DONE)
    assert game.server.result is not None


class TestPolicy:
    @pytest.mark.parametrize(
        "policy",
        [
            Policy(min_clients=6),
            Policy(min_threshold=0.7),
            Policy(patterns=frozenset({"committee"})),
            Policy(modulus_bits=frozenset({8, 16})),
            Policy(authenticated=True),
        ],
    )
    def test_parameters_below_the_policy_are_refused_before_anything_is_sent(self, policy: Policy) -> None:
        with pytest.raises(PolicyViolation):
            Client(0, small(), policy)

    def test_parameters_that_make_no_sense_are_refused_by_the_client_itself(self) -> None:
        lowered = msgspec.structs.replace(small(), threshold=2)
        with pytest.raises(InvalidInput, match="threshold"):
            Client(0, lowered)

    def test_the_exposure_of_one_round_is_limited(self) -> None:
        params = small(max_weight=100)
        game = Round(params, policy=Policy(min_survivors=1, max_exposure=50)).run_to(Stage.UPLOAD)
        game.clients[0].upload(game.inbox[0], game.updates[0], weight=50)
        with pytest.raises(PolicyViolation, match="weight"):
            game.clients[1].upload(game.inbox[1], game.updates[1], weight=51)

    def test_a_block_with_too_few_survivors_is_refused_by_everybody(self) -> None:
        """Its own block or another's: one client's shares help to open every block."""
        params = RoundParameters.create(clients=9, dim=90, alpha=1 / 3, stripes=1)
        game = Round(params, policy=Policy()).run_to(Stage.UPLOAD)
        committee = game.server._members.pattern.committee(1)  # type: ignore[union-attr]
        game.step(silent=committee[:2].tolist())
        for user in game.inbox:
            with pytest.raises(PolicyViolation, match="block 1 would be opened with 1 survivors"):
                game.answer(user)

    def test_the_clients_own_minimum_counts_whatever_the_server_asks(self) -> None:
        params = RoundParameters.create(clients=9, dim=90, alpha=1 / 3, stripes=1, min_survivors=1)
        game = Round(params, policy=Policy(min_survivors=3)).run_to(Stage.UPLOAD)
        committee = game.server._members.pattern.committee(0)  # type: ignore[union-attr]
        game.step(silent=committee[:1].tolist())
        for user in game.inbox:
            with pytest.raises(PolicyViolation, match="3 are the least"):
                game.answer(user)


class TestAuthenticated:
    @pytest.fixture
    def game(self) -> Round:
        people = identities(7)
        return Round(small(clients=7, roster_digest=people[0].roster.digest), identities=people)

    def test_a_client_without_identity_takes_no_part(self, game: Round) -> None:
        with pytest.raises(PolicyViolation, match="identity"):
            Client(0, game.params)

    def test_another_roster_is_refused(self, game: Round) -> None:
        with pytest.raises(PolicyViolation, match="roster"):
            Client(0, game.params, identity=identities(7, seed=5)[0])

    def test_keys_that_the_server_swapped_are_noticed_before_anything_is_masked(self, game: Round) -> None:
        """The server plays man in the middle between user 0 and everybody else."""
        game.run_to(Stage.SHARE_KEYS)
        impostor = Round(game.params, seed=77, identities=identities(7)).run_to(Stage.SHARE_KEYS)
        genuine, fake = (decode_server_message(source.inbox[0]).entries for source in (game, impostor))
        game.inbox[0] = tampered(game.inbox[0], entries=genuine[:ENTRY_SIZE] + fake[ENTRY_SIZE:])
        shares = game.clients[0].share_keys(game.inbox[0])
        assert shares  # It can't know yet: the keys look like any others.
        impostor.step()
        delivery = tampered(
            impostor.inbox[0],
            nonces=game.clients[0]._state.nonce + decode_server_message(impostor.inbox[0]).nonces[16:],
        )
        with pytest.raises(PolicyViolation, match="not proven genuine"):
            game.clients[0].upload(delivery, game.updates[0])

    def test_different_survivors_for_different_users_open_nothing(self, game: Round) -> None:
        """Half of the users are told that user 6 dropped out; nobody collects enough confirmations."""
        game.run_to(Stage.CONFIRM)
        without = tampered(game.inbox[0], survivors=users(0, 1, 2, 3, 4, 5, clients=7))
        told = {user: (without if user < 3 else game.inbox[user]) for user in range(7)}
        confirmations = {user: game.clients[user].confirm(data) for user, data in told.items()}
        for user in (0, 3):
            confirmed = decode_server_message(told[user]).survivors
            tags = b"".join(_tag_for(confirmations[peer], peer, user, told[peer]) for peer in range(6) if peer != user)
            others = users(*[peer for peer in range(6) if peer != user], clients=7)
            request = _unmask_request(game.params, confirmed, others, tags)
            with pytest.raises(PolicyViolation, match="confirmed the same survivors"):
                game.clients[user].unmask(request)

    def test_survivors_other_than_the_confirmed_ones_are_refused(self, game: Round) -> None:
        game.run_to(Stage.UNMASK)
        fewer = users(0, 1, 2, 3, 4, 5, clients=7)
        refuses(game, 0, tampered(game.inbox[0], survivors=fewer), PolicyViolation)

    def test_missing_and_forged_confirmations_are_refused(self, game: Round) -> None:
        game.run_to(Stage.UNMASK)
        message = decode_server_message(game.inbox[0])
        none = tampered(game.inbox[0], confirmers=users(clients=7), tags=b"")
        refuses(game, 0, none, PolicyViolation)
        refuses(game, 0, tampered(game.inbox[0], tags=bytes(len(message.tags))), PolicyViolation)
        refuses(game, 0, tampered(game.inbox[0], tags=message.tags[:-1]), MalformedMessage)
        everybody = users(0, 1, 2, 3, 4, 5, 6, clients=7)
        refuses(game, 0, tampered(game.inbox[0], confirmers=everybody, tags=message.tags + bytes(16)), MalformedMessage)

    def test_sparse_graphs_and_low_thresholds_are_not_for_authenticated_rounds(self, game: Round) -> None:
        with pytest.raises(InvalidInput, match="two thirds"):
            game.params.replace(threshold=4)
        with pytest.raises(InvalidInput, match="complete graph"):
            game.params.replace(neighbours=4, threshold=4)


def _tag_for(confirmation: bytes, sender: int, receiver: int, told: bytes) -> bytes:
    """Return the tag that `sender` made for `receiver`."""
    from sparsesecagg.protocol.messages import decode_client_message, decode_users

    survivors = [user for user in decode_users(decode_server_message(told).survivors, 7).tolist() if user != sender]
    place = survivors.index(receiver)
    return decode_client_message(confirmation).tags[16 * place : 16 * (place + 1)]


def _unmask_request(params: RoundParameters, survivors: bytes, confirmers: bytes, tags: bytes) -> bytes:
    from sparsesecagg.protocol.messages import UnmaskRequest

    return encode(UnmaskRequest(params.round_number, params.view, survivors, confirmers, tags))
