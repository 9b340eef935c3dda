"""A run that is written down between two rounds goes on as if nothing had happened."""

from __future__ import annotations

import numpy as np
import pytest

from simulate.runs import KINDS, start, updates
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.protocol import Result, Server, Stage
from sparsesecagg.simulate import InProcessRun, Transcript
from sparsesecagg.simulate.simulation import EntropyByRound

DROPS: list[dict[int, Stage]] = [
    {1: Stage.UPLOAD},
    {1: Stage.UPLOAD, 2: Stage.UNMASK},
    {5: Stage.UPLOAD},
    {},
    {0: Stage.UPLOAD},
]


def play(run: InProcessRun, entropy: EntropyByRound, number: int) -> Result:
    """Run one round; return its result."""
    entropy.begin(number)
    weights = [user + 1 for user in range(run.params.clients)] if run.params.max_weight else None
    outcome = run.round(updates(), weights=weights, drops=DROPS[number - 1], context=bytes([number]) * 32)
    assert outcome.exact
    assert run.server.round_number == number
    return outcome.result


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_run_gives_the_same_rounds_bit_for_bit(kind: str) -> None:
    """Sums, survivors and sizes, when every round is played by a run that was just restored."""
    params, cohort, entropy = start(kind)
    whole = InProcessRun(params, cohort)
    expected = [play(whole, entropy, number) for number in range(1, 6)]
    params, cohort, entropy = start(kind)
    parts = InProcessRun(params, cohort)
    for number in range(1, 6):
        found = play(parts, entropy, number)
        assert np.array_equal(found.total, expected[number - 1].total)
        for name in ("survivors", "dropped", "lost", "sent_bytes", "received_bytes"):
            assert getattr(found, name) == getattr(expected[number - 1], name)
        parts = InProcessRun.restore(parts.save(), cohort)


def test_who_missed_two_rounds_misses_the_third_after_a_restart_too() -> None:
    """Packages are part of what is saved, and so is their absence."""
    params, cohort, entropy = start("two groups")
    run = InProcessRun(params, cohort)
    for number in (1, 2):
        play(run, entropy, number)
    transcript = Transcript()
    restored = InProcessRun.restore(run.save(), cohort, observer=transcript)
    assert 1 not in play(restored, entropy, 3).survivors
    assert 1 in play(restored, entropy, 4).survivors
    assert transcript.sent


def test_bytes_that_are_not_a_run_or_a_server_are_refused() -> None:
    """By a typed error."""
    for data in (b"", b"\x00", b"\x93\x01\x02\x03", bytes(50)):
        with pytest.raises(MalformedMessage):
            InProcessRun.restore(data)
        with pytest.raises(MalformedMessage):
            Server.restore(data)


def test_a_server_that_is_saved_in_a_round_begins_the_next_one() -> None:
    """A round in progress lives in memory, and its number is used up."""
    params, cohort, _ = start("full")
    run = InProcessRun(params, cohort)
    run.server.begin_round()
    restored = Server.restore(run.server.save())
    assert restored.stage is Stage.SHARE_KEYS
    restored.begin_round()
    assert restored.round_number == run.server.round_number + 1
