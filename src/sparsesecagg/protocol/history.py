"""The survivors that were declared, round by round, and what a user makes of them.

Every order names all sets that were declared since the last one its reader knows, and all sets are in the order's
digest. So a user sees whether the set it answered for is the one that everybody was told, and how often it was left
out of the sum though it had uploaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import exp, lgamma, log, log1p

from sparsesecagg.errors import MalformedMessage, PolicyViolation
from sparsesecagg.protocol.client_state import ClientState
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import Order, decode_users
from sparsesecagg.protocol.order import extend_chain

_ROUND_SIZE = 8
LEAST_EXCLUSIONS = 3
LEAST_CHANCE = 2.0**-20
"""Exclusions that are less likely than this at the declared dropout rate are no accident."""


def write_history(sets: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the declared survivors of some rounds as bytes."""
    return b"".join(number.to_bytes(_ROUND_SIZE, "little") + survivors for number, survivors in sets)


def read_history(data: bytes, pod: int) -> list[tuple[int, bytes]]:
    """Return the rounds and their survivors, whose rounds must increase."""
    size = _ROUND_SIZE + (pod + 7) // 8
    if len(data) % size:
        raise MalformedMessage("the declared survivors do not fit the pod")
    sets = [
        (int.from_bytes(data[start : start + _ROUND_SIZE], "little"), data[start + _ROUND_SIZE : start + size])
        for start in range(0, len(data), size)
    ]
    if any(later[0] <= earlier[0] for earlier, later in pairwise(sets)):
        raise MalformedMessage("the declared survivors are not in the order of their rounds")
    for _, survivors in sets:
        decode_users(survivors, pod)
    return sets


class Declared:
    """A user's judgement of what was declared since the last order."""

    def __init__(self, state: ClientState, place: int, dropout: float) -> None:
        self._state, self._place, self._dropout = state, place, dropout
        self._chain, self._last = state.history, state.history_round
        self._pending = dict(state.uploaded)
        self._uploads, self._exclusions = state.uploads, state.exclusions
        self._problem = ""

    def take(self, round_number: int, survivors: bytes) -> None:
        """Take in the set of one round; sets that are known already are skipped."""
        if round_number <= self._last:
            return
        self._chain, self._last = extend_chain(self._chain, round_number, survivors), round_number
        if round_number not in self._pending:
            return
        answered = self._pending.pop(round_number)
        self._uploads += 1
        self._exclusions += not survivors[self._place // 8] >> (self._place % 8) & 1
        if answered and answered != survivors:
            self._problem = f"round {round_number} was declared with other survivors than this user answered for"

    def result(self, round_number: int) -> tuple[ClientState, str]:
        """Return the state as a new round begins, and what is wrong, if anything is."""
        if self._last >= round_number:
            raise MalformedMessage("the survivors of this round can't be declared before it")
        undeclared = [number for number, answered in self._pending.items() if answered]
        if undeclared and not self._problem:
            # No reason to stop for good: the message may have been meant for somebody who knows more.
            raise PolicyViolation(f"round {min(undeclared)} was opened with this user's help and is not declared")
        if not self._problem and self._exclusions >= LEAST_EXCLUSIONS and self._chance() <= LEAST_CHANCE:
            self._problem = (
                f"this user was declared dropped {self._exclusions} times in {self._uploads} rounds that it uploaded "
                f"in, more often than a dropout rate of {self._dropout:g} explains"
            )
        state = self._state.with_changes(
            history=self._chain,
            history_round=self._last,
            uploaded={},
            uploads=self._uploads,
            exclusions=self._exclusions,
        )
        return state, self._problem

    def _chance(self) -> float:
        """Return the probability of so many exclusions or more, if each happens at the dropout rate."""
        count, rate = self._uploads, self._dropout
        if rate == 0:
            return 0.0
        logs = [
            lgamma(count + 1)
            - lgamma(number + 1)
            - lgamma(count - number + 1)
            + number * log(rate)
            + (count - number) * log1p(-rate)
            for number in range(self._exclusions, count + 1)
        ]
        return sum(map(exp, logs))


def judge_history(state: ClientState, epoch: Epoch, place: int, message: Order) -> tuple[ClientState, str]:
    """Return a user's state with the survivors taken in that an order declares, and what is wrong, if anything is."""
    declared = Declared(state, place, epoch.params.dropout)
    for round_number, survivors in read_history(message.history, len(epoch.pod)):
        declared.take(round_number, survivors)
    return declared.result(message.round_number)
