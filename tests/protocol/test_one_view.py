"""One view: a user masks only under an order that it can check, and whoever is told anything else masks apart."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from protocol.rounds import LENIENT, Run, flipped, grouped, lenient, small, tampered
from sparsesecagg.errors import InvalidKey, MalformedMessage, PolicyViolation, SparseSecAggError, WrongView
from sparsesecagg.protocol import Stage
from sparsesecagg.protocol.messages import (
    HEAD_SIZE,
    SEALED_SIZE,
    Order,
    decode_client_message,
    decode_server_message,
    encode,
    pieces,
)
from sparsesecagg.protocol.order import OrderView, commitment_of, extend_chain, mask_key_of


def order_of(run: Run, user: int) -> Order:
    message = decode_server_message(run.inbox[user])
    assert isinstance(message, Order)
    return message


def heads_of(run: Run, user: int) -> dict[int, bytes]:
    """The heads of a user's committee, by user."""
    members = run.committee(user)
    return dict(zip(members, pieces(order_of(run, user).heads, len(members), HEAD_SIZE, ""), strict=True))


def with_heads(run: Run, user: int, heads: dict[int, bytes], fit: bool = True) -> bytes:
    """Return an order with other heads, and with a digest that fits them."""
    order = order_of(run, user)
    pod = run.pod(user)
    own = int(pod.committee_of[run.place(user)])
    digests = pieces(order.committees, len(pod.committees), 32, "")
    if fit:
        view = OrderView(run.clients[user]._member.epoch, order.round_number, np.arange(len(pod)), order.terms, b"")
        digests[own] = view.heads_digest(own, {pod.place[each]: head for each, head in heads.items()})
    return tampered(run.inbox[user], heads=b"".join(heads.values()), committees=b"".join(digests))


@pytest.fixture
def run() -> Run:
    return Run(grouped()).begin()


def refuses(run: Run, user: int, data: bytes, error: type[SparseSecAggError], match: str | None = None) -> None:
    """The client uploads nothing, its state is as before, and it still takes the genuine order."""
    before = run.clients[user].save()
    with pytest.raises(error, match=match):
        run.answer(user, data)
    assert run.clients[user].save() == before


class TestHeads:
    @pytest.mark.parametrize("byte", [0, 31, 32, 63])
    def test_the_own_head_must_stand_there_exactly_as_dealt(self, run: Run, byte: int) -> None:
        heads = heads_of(run, 0)
        heads[0] = flipped(heads[0], byte)
        refuses(run, 0, with_heads(run, 0, heads), InvalidKey, "another head")

    def test_heads_must_be_those_that_the_digest_is_about(self, run: Run) -> None:
        heads = heads_of(run, 0)
        other = next(user for user in heads if user != 0)
        heads[other] = flipped(heads[other], 40)
        refuses(run, 0, with_heads(run, 0, heads, fit=False), WrongView)

    def test_all_keys_differ(self, run: Run) -> None:
        heads = heads_of(run, 0)
        one, other = [user for user in heads if user != 0][:2]
        heads[one] = mask_key_of(heads[other]) + commitment_of(heads[one])
        joined = tampered(run.inbox[0], heads=b"".join(heads.values()))
        refuses(run, 0, joined, InvalidKey, "twice")

    def test_a_low_order_key_of_a_peer_is_refused(self, run: Run) -> None:
        heads = heads_of(run, 0)
        other = next(user for user in heads if user != 0)
        heads[other] = bytes(32) + commitment_of(heads[other])
        refuses(run, 0, with_heads(run, 0, heads), InvalidKey)

    @pytest.mark.parametrize("change", [-1, 1, -HEAD_SIZE, HEAD_SIZE])
    def test_there_is_one_head_per_member_of_the_committee(self, run: Run, change: int) -> None:
        heads = order_of(run, 0).heads
        wrong = heads[:change] if change < 0 else heads + bytes(change)
        refuses(run, 0, tampered(run.inbox[0], heads=wrong), MalformedMessage)

    @pytest.mark.parametrize("change", [-1, 1, -32, 32])
    def test_there_is_one_digest_per_committee_of_the_pod(self, run: Run, change: int) -> None:
        committees = order_of(run, 0).committees
        wrong = committees[:change] if change < 0 else committees + bytes(change)
        refuses(run, 0, tampered(run.inbox[0], committees=wrong), SparseSecAggError)

    @pytest.mark.parametrize("change", [-1, 1, -SEALED_SIZE, SEALED_SIZE])
    def test_there_is_one_pair_of_shares_per_partner(self, run: Run, change: int) -> None:
        shares = order_of(run, 0).shares
        wrong = shares[:change] if change < 0 else shares + bytes(change)
        refuses(run, 0, tampered(run.inbox[0], shares=wrong), MalformedMessage)


class TestMembers:
    def without(self, run: Run, user: int, gone: list[int]) -> bytes:
        """Return an order without some members."""
        order, pod = order_of(run, user), run.pod(user)
        users = pod.users.tolist()
        left = [each for each in users if each not in gone]
        partners = [each for each in users if each != user]
        shares = dict(zip(partners, pieces(order.shares, len(partners), SEALED_SIZE, ""), strict=True))
        heads = {each: head for each, head in heads_of(run, user).items() if each not in gone}
        own = int(pod.committee_of[run.place(user)])
        places = np.array([pod.place[each] for each in left])
        view = OrderView(run.clients[user]._member.epoch, order.round_number, places, order.terms, b"")
        digests = pieces(order.committees, len(pod.committees), 32, "")
        if user not in gone:
            digests[own] = view.heads_digest(own, {pod.place[each]: head for each, head in heads.items()})
        return tampered(
            run.inbox[user],
            members=run.bitmap(left),
            heads=b"".join(heads.values()),
            committees=b"".join(digests),
            shares=b"".join(shares[each] for each in partners if each not in gone),
        )

    def test_an_order_without_oneself_is_refused(self, run: Run) -> None:
        refuses(run, 0, self.without(run, 0, [0]), PolicyViolation, "is not used")

    def test_members_below_the_threshold_are_refused(self, run: Run) -> None:
        """Pods of eight, five shares restore a secret."""
        others = [user for user in run.pod(0).users.tolist() if user not in run.committee(0)]
        one = next(user for user in run.committee(0) if user != 0)
        refuses(run, 0, self.without(run, 0, others), PolicyViolation, "only 4 packages are used, the threshold is 5")
        refuses(run, 0, self.without(run, 0, [*others[:3], one]), PolicyViolation, "only 4 packages")
        run.answer(0, self.without(run, 0, others[:3]))

    @pytest.mark.parametrize(("least", "own"), [(2, 1), (3, 1), (2, 3)])
    def test_a_committee_below_the_least_is_refused(self, least: int, own: int) -> None:
        """The run's minimum or the client's own, whichever is more."""
        run = Run(grouped(min_survivors=least), policy=lenient(min_survivors=own)).begin()
        needed = max(least, own)
        peers = [user for user in run.committee(0) if user != 0]
        refuses(run, 0, self.without(run, 0, peers[: 4 - needed + 1]), PolicyViolation, f"{needed} are needed")
        if 4 - needed < 4:
            run.answer(0, self.without(run, 0, peers[: 4 - needed]))

    def test_a_member_that_advertised_no_key_is_refused(self) -> None:
        run = Run(small(), absent=[4]).begin()
        order = order_of(run, 0)
        added = tampered(run.inbox[0], members=b"\x1f", heads=order.heads + bytes(64), shares=order.shares + bytes(48))
        refuses(run, 0, added, PolicyViolation, "advertised no key")

    @pytest.mark.parametrize("members", [b"", b"\xff\x00", b"\xff\x01"])
    def test_a_set_of_another_pod_is_refused(self, run: Run, members: bytes) -> None:
        refuses(run, 0, tampered(run.inbox[0], members=members), MalformedMessage)

    def test_nobody_is_left_without_mask_peers_in_a_sparse_graph(self) -> None:
        """Attack 7: told that all its neighbours left, a user would upload with no pair mask at all."""
        run = Run(small(clients=12, neighbours=4, threshold=3)).begin()
        neighbours = run.pod(0).graph.neighbours(run.place(0)).tolist()
        gone = [int(run.pod(0).users[place]) for place in neighbours]
        order, users = order_of(run, 0), run.pod(0).users.tolist()
        left = [user for user in users if user not in gone]
        heads = {each: head for each, head in heads_of(run, 0).items() if each not in gone}
        places = np.array([run.place(each) for each in left])
        view = OrderView(run.clients[0]._member.epoch, 1, places, order.terms, b"")
        digests = view.heads_digest(0, {run.place(each): head for each, head in heads.items()})
        lonely = tampered(
            run.inbox[0], members=run.bitmap(left), heads=b"".join(heads.values()), committees=digests, shares=b""
        )
        run.clients[0].policy = lenient(min_survivors=2)
        refuses(run, 0, lonely, PolicyViolation, "shares masks")


class TestEverythingIsInTheDigest:
    def test_another_members_head_committee_term_or_past_makes_another_order(self, run: Run) -> None:
        client = run.clients[0]
        order = order_of(run, 0)
        epoch, members = client._member.epoch, np.arange(8)

        def view(**changes: object) -> bytes:
            settings = {
                "round_number": 1,
                "members": members,
                "terms": order.terms,
                "chain": epoch.digest,
                "committees": order.committees,
                **changes,
            }
            committees = settings.pop("committees")
            made = OrderView(epoch, **settings)  # type: ignore[arg-type]
            made.settle(committees)  # type: ignore[arg-type]
            return made.digest

        run.answer(0)
        assert view() == client._order.digest
        variants = [
            view(round_number=2),
            view(members=members[1:]),
            view(terms=b"t" * 32),
            view(chain=extend_chain(epoch.digest, 1, b"\xff")),
            view(committees=flipped(order.committees, 0)),
            view(committees=flipped(order.committees, 63)),
        ]
        assert len({view(), *variants}) == 1 + len(variants)

    def test_the_digest_of_heads_names_round_members_and_heads(self, run: Run) -> None:
        epoch = run.clients[0]._member.epoch
        heads = {place: bytes([place]) * 64 for place in range(8)}

        def digest(
            round_number: int = 1, members: list[int] | None = None, changed: dict[int, bytes] | None = None
        ) -> bytes:
            chosen = np.array(list(range(8)) if members is None else members)
            view = OrderView(epoch, round_number, chosen, bytes(32), b"")
            number = int(epoch.pod.committee_of[0])
            return view.heads_digest(number, {**heads, **(changed or {})})

        first = int(epoch.pod.committees[int(epoch.pod.committee_of[0])][0])
        others = [place for place in range(8) if place != first]
        found = {digest(), digest(2), digest(members=others), digest(changed={first: b"x" * 64})}
        assert len(found) == 4

    def test_chains_differ_by_round_and_survivors(self) -> None:
        cases = [(b"a" * 32, 1, b"\1"), (b"b" * 32, 1, b"\1"), (b"a" * 32, 2, b"\1"), (b"a" * 32, 1, b"\2")]
        assert len({extend_chain(*case) for case in cases}) == 4

    @pytest.mark.parametrize("what", ["terms", "another committee", "history"])
    def test_whoever_is_told_something_else_masks_apart_and_its_committee_is_lost(self, what: str) -> None:
        """The server can't open it, and neither can it be opened with the others' help; the other committees are."""
        run = Run(grouped(dropout=0.4))
        run.round(silent=run.committees()[0][:1])
        run.begin()
        order = order_of(run, 0)
        if what == "terms":
            other = tampered(run.inbox[0], terms=b"t" * 32)
        elif what == "another committee":
            own = int(run.pod(0).committee_of[run.place(0)])
            other = tampered(run.inbox[0], committees=flipped(order.committees, 32 * (1 - own)))
        else:
            # Another past than everybody else was told: in it somebody else dropped out of round 1.
            users = run.pod(0).users.tolist()
            told = run.bitmap([user for user in users if user != next(each for each in users if each != 0)])
            run.clients[0]._journal.state = run.clients[0]._state.with_changes(uploaded={})
            other = tampered(run.inbox[0], history=order.history[:8] + told)
        answer = run.clients[0].upload(other, run.updates[0], terms=b"t" * 32 if what == "terms" else bytes(32))
        with pytest.raises(WrongView):
            run.server.receive(answer)
        # The server pretends that it does not notice.
        run.server.receive(_relabelled(run, answer))
        for user in run.inbox:
            if user != 0:
                run.server.receive(run.answer(user))
        run.inbox = run.server.close_stage()
        committee = next(number for number, users in enumerate(run.committees()) if 0 in users)
        for user in run.inbox:
            if user != 0:
                run.server.receive(run.answer(user))
        run.server.close_stage()
        assert set(run.result.lost) == {committee}
        assert "can't be restored" in run.result.lost[committee]


def _relabelled(run: Run, answer: bytes) -> bytes:
    view = next(each for each in run.server.pod_rounds if each.epoch.pod.index == run.pod(0).index).order.view
    return encode(msgspec.structs.replace(decode_client_message(answer), view=view))


def test_terms_are_what_both_sides_say_they_are() -> None:
    run = Run(small())
    run.terms = b"model and everything else".ljust(32)
    assert run.round().survivors == (0, 1, 2, 3, 4)


def test_policies_are_the_clients_own() -> None:
    """What a committee must have counts although the run's parameters ask for less."""
    run = Run(small(), policy=LENIENT, late=[2, 3]).begin()
    assert order_of(run, 0).members == run.bitmap([0, 1, 4])
    run.clients[0].policy = lenient(min_survivors=4)
    refuses(run, 0, run.inbox[0], PolicyViolation, "only 3 packages of the committee are used, 4 are needed")
    run.clients[0].policy = lenient(min_survivors=3)
    run.answer(0)
    assert run.server.stage is Stage.UPLOAD
