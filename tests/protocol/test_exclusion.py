"""Wrongful exclusion: a user learns every set of survivors that was declared, and stops for good when one is false."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.rounds import Run, grouped, small, tampered, with_roster
from sparsesecagg.errors import MalformedMessage, PolicyViolation, ThresholdNotMet, WronglyExcluded, WrongView
from sparsesecagg.protocol import Stage
from sparsesecagg.protocol.client_state import ClientState
from sparsesecagg.protocol.history import LEAST_CHANCE, LEAST_EXCLUSIONS, Declared, read_history, write_history
from sparsesecagg.protocol.messages import Order, decode_server_message
from sparsesecagg.protocol.order import extend_chain


def history_of(run: Run, user: int) -> list[tuple[int, bytes]]:
    message = decode_server_message(run.inbox[user])
    assert isinstance(message, Order)
    return read_history(message.history, len(run.pod(user)))


def stopped(run: Run, user: int, data: bytes, match: str) -> None:
    """The client takes no further part, whatever it is sent, and a restart does not help."""
    with pytest.raises(WronglyExcluded, match=match):
        run.answer(user, data)
    run.clients[user] = run.restored(user)
    with pytest.raises(WronglyExcluded, match=match):
        run.answer(user)
    with pytest.raises(WronglyExcluded):
        run.clients[user].unmask(data)
    with pytest.raises(WronglyExcluded):
        run.clients[user].confirm(data)
    with pytest.raises(WronglyExcluded):
        run.clients[user].join(data)
    with pytest.raises(WronglyExcluded):
        run.clients[user].share_keys(run.server.round_number)


class TestWhatIsTold:
    def test_every_set_since_the_last_that_the_user_knows(self) -> None:
        run = Run(small(dropout=0.3))
        run.round(silent=[1])
        run.round(silent=[0, 1])
        run.round(silent=[2])
        run.begin()
        assert [number for number, _ in history_of(run, 2)] == [2, 3], "its upload of round 2 has told it of round 1"
        assert [number for number, _ in history_of(run, 3)] == [3]
        assert history_of(run, 3)[0][1] == run.bitmap([0, 3, 4])
        assert [number for number, _ in history_of(run, 1)] == [1, 2, 3]
        run.run_to(Stage.DONE)
        assert run.result.survivors == (0, 1, 2, 3, 4)

    def test_all_users_of_a_pod_come_to_the_same_chain(self) -> None:
        run = Run(grouped(dropout=0.4))
        rng = np.random.default_rng(3)
        for _ in range(6):
            run.round(silent=rng.choice(16, 4, replace=False).tolist())
        run.round()
        run.begin()
        for user in run.inbox:
            run.answer(user)
        for pod in run.server.groups.pods:
            chains = {run.clients[user]._state.history for user in pod.users.tolist() if user in run.inbox}
            assert chains == {run.server._epoch.pods[pod.index].chain}  # type: ignore[union-attr]

    def test_an_upload_that_got_lost_is_told_again(self) -> None:
        run = Run(small(dropout=0.3))
        run.round()
        run.begin()
        run.answer(0)  # Never arrives.
        run.step(silent=[0])
        run.run_to(Stage.DONE)
        assert run.round().survivors == (0, 1, 2, 3, 4)
        state = run.clients[0]._state
        assert (state.uploads, state.exclusions) == (2, 1)

    def test_a_round_that_failed_before_anybody_was_declared_is_not_in_it(self) -> None:
        run = Run(small()).begin()
        with pytest.raises(ThresholdNotMet):
            run.step(silent=[0, 1, 2])
        run.begin()
        assert history_of(run, 3) == []
        run.answer(3)
        assert run.clients[3]._state.uploads == 0


class TestAnotherSet:
    @pytest.mark.parametrize("params", [small(), with_roster(small), grouped()], ids=["plain", "roster", "grouped"])
    def test_another_set_than_the_one_answered_stops_the_client(self, params: object) -> None:
        run = Run(params)  # type: ignore[arg-type]
        run.round()
        run.begin()
        other = [user for user in run.pod(0).users.tolist() if user != 0][1:]
        changed = tampered(run.inbox[0], history=write_history([(1, run.bitmap([0, *other]))]))
        stopped(run, 0, changed, "round 1 was declared with other survivors")

    @pytest.mark.parametrize("params", [small(), with_roster(small)], ids=["plain", "roster"])
    def test_an_order_that_is_silent_about_a_round_that_was_opened_is_refused(self, params: object) -> None:
        """Until it is told: an order for somebody who knows more may have come to the wrong user."""
        run = Run(params)  # type: ignore[arg-type]
        run.round()
        run.begin()
        before = run.clients[0].save()
        with pytest.raises(PolicyViolation, match="round 1 was opened with this user's help and is not declared"):
            run.answer(0, tampered(run.inbox[0], history=b""))
        assert run.clients[0].save() == before
        run.answer(0)

    def test_the_past_of_another_pod_is_no_reason_to_stop(self) -> None:
        run = Run(grouped(dropout=0.4))
        stranger = next(user for user in range(16) if run.pod(user) is not run.pod(0))
        run.round(silent=[stranger])
        run.begin()
        before = run.clients[0].save()
        with pytest.raises(WrongView):
            run.answer(0, run.inbox[stranger])
        assert run.clients[0].save() == before

    def test_a_confirmed_set_counts_like_an_answered_one(self) -> None:
        """Even if shares were never asked for."""
        run = Run(with_roster(small)).run_to(Stage.CONFIRM)
        run.step()
        run.step(silent=[0])
        run.begin()
        changed = tampered(run.inbox[0], history=write_history([(1, run.bitmap([0, 1, 2, 3]))]))
        stopped(run, 0, changed, "round 1 was declared with other survivors")

    def test_who_answered_nothing_takes_any_set(self) -> None:
        """It did not learn who survived; its own exclusion is counted."""
        run = Run(small(dropout=0.3)).run_to(Stage.UNMASK)
        run.step(silent=[0])
        run.begin()
        changed = tampered(run.inbox[0], history=write_history([(1, run.bitmap([1, 2, 3]))]))
        run.answer(0, changed)
        assert (run.clients[0]._state.uploads, run.clients[0]._state.exclusions) == (1, 1)

    def test_sets_that_are_known_already_are_not_counted_twice(self) -> None:
        run = Run(small(dropout=0.3))
        for _ in range(3):
            run.round()
        assert run.clients[0]._state.uploads == 2
        run.begin()
        own = run.bitmap(range(5))
        run.answer(0, tampered(run.inbox[0], history=write_history([(number, own) for number in (1, 2, 3)])))
        assert run.clients[0]._state.uploads == 3


def chance(uploads: int, exclusions: int, rate: float) -> float:
    """The binomial tail, by the textbook."""
    return sum(comb(uploads, k) * rate**k * (1 - rate) ** (uploads - k) for k in range(exclusions, uploads + 1))


def judged(uploads: int, exclusions: int, dropout: float) -> str:
    """What a user makes of so many exclusions."""
    state = ClientState(user=0, params=b"", uploads=uploads, exclusions=exclusions)
    return Declared(state, 0, dropout).result(10**6)[1]


class TestTooManyExclusions:
    def test_three_exclusions_where_nobody_drops_out_stop_the_client(self) -> None:
        run = Run(small())
        for number in range(1, 5):
            run.begin()
            if number == 4:
                stopped(run, 0, run.inbox[0], "declared dropped 3 times in 3 rounds")
                break
            run.answer(0)  # Arrives, and the server says that it did not.
            run.step(silent=[0])
            run.deal()
            run.run_to(Stage.DONE)

    @given(st.integers(0, 200), st.integers(0, 200), st.floats(0.001, 0.499))
    def test_the_limit_is_the_binomial_tail(self, uploads: int, exclusions: int, dropout: float) -> None:
        exclusions = min(uploads, exclusions)
        tail = chance(uploads, exclusions, dropout)
        if abs(tail - LEAST_CHANCE) > 1e-9 * LEAST_CHANCE:
            expected = exclusions >= LEAST_EXCLUSIONS and tail <= LEAST_CHANCE
            assert bool(judged(uploads, exclusions, dropout)) == expected

    @pytest.mark.parametrize(("uploads", "exclusions", "dropout"), [(3, 3, 0.009), (30, 16, 0.1), (300, 60, 0.1)])
    def test_more_than_the_dropout_rate_explains(self, uploads: int, exclusions: int, dropout: float) -> None:
        reason = judged(uploads, exclusions, dropout)
        assert f"declared dropped {exclusions} times in {uploads} rounds" in reason
        assert f"a dropout rate of {dropout:g} explains" in reason
        assert judged(uploads, exclusions // 2, dropout) == ""

    def test_at_least_three_are_needed(self) -> None:
        assert (LEAST_EXCLUSIONS, LEAST_CHANCE) == (3, 2.0**-20)
        assert judged(2, 2, 0.0) == judged(1000, 2, 0.0) == ""
        assert judged(1000, 3, 0.0) != ""


@pytest.mark.parametrize("dropout", [0.1, 0.3])
def test_honest_runs_never_stop_anybody(dropout: float) -> None:
    """Two hundred rounds in which every upload gets lost with the declared probability."""
    rng = np.random.default_rng(7)
    places, size, rounds = range(12), 2, 200
    states = [ClientState(user=place, params=b"", history=b"c" * 32, history_round=0) for place in places]
    chain = b"c" * 32
    declared: list[Any] = []
    for number in range(1, rounds + 1):
        arrived = rng.random(len(places)) >= dropout
        survivors = np.packbits(np.pad(arrived, (0, 4)), bitorder="little").tobytes()
        assert len(survivors) == size
        for place in places:
            judge = Declared(states[place], place, dropout)
            for past, each in declared:
                judge.take(past, each)
            state, problem = judge.result(number)
            assert problem == ""
            states[place] = state.with_changes(uploaded={number: survivors if arrived[place] else b""})
        declared = [(number, survivors)]
        chain = extend_chain(chain, number, survivors)
    assert states[0].uploads == rounds - 1


def test_a_real_run_with_lost_uploads_goes_on() -> None:
    """Forty rounds, each upload is made and lost with probability 0.2."""
    rng = np.random.default_rng(1)
    run = Run(small(clients=8, dim=3, dropout=0.2))
    for _ in range(40):
        run.begin()
        lost = [user for user in run.inbox if rng.random() < 0.2][:3]
        for user in lost:
            run.answer(user)
        run.step(silent=lost)
        run.deal()
        run.run_to(Stage.DONE)
    assert all(not client._state.stopped for client in run.clients.values())


class TestBytes:
    @given(st.lists(st.integers(1, 10**9), unique=True, max_size=5).map(sorted), st.integers(1, 40))
    def test_a_history_survives_the_wire(self, rounds: list[int], pod: int) -> None:
        sets = [(number, bytes((pod + 7) // 8)) for number in rounds]
        assert read_history(write_history(sets), pod) == sets

    @pytest.mark.parametrize(
        ("wrong", "problem"),
        [
            (bytes(8), "do not fit the pod"),
            (bytes(10), "do not fit the pod"),
            (write_history([(2, b"\1"), (1, b"\1")]), "not in the order of their rounds"),
            (write_history([(2, b"\1"), (2, b"\1")]), "not in the order of their rounds"),
            (write_history([(1, b"\x20")]), "place 5 is not among"),
        ],
        ids=["short", "long", "order", "twice", "beyond"],
    )
    def test_what_is_no_history_is_refused(self, wrong: bytes, problem: str) -> None:
        with pytest.raises(MalformedMessage, match=problem):
            read_history(wrong, 5)

    @pytest.mark.parametrize("number", [2, 3, 2**60])
    def test_survivors_are_not_declared_before_their_round(self, number: int) -> None:
        run = Run(small())
        run.round()
        run.begin()
        before = run.clients[0].save()
        own = run.bitmap(range(5))
        with pytest.raises(MalformedMessage, match="before it"):
            run.answer(0, tampered(run.inbox[0], history=write_history([(1, own), (number, own)])))
        assert run.clients[0].save() == before
