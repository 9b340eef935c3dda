"""A run that is written down between two rounds goes on as if nothing had happened."""

from typing import Any

import numpy as np
import pytest

from sparsesecagg.simulate import InProcessRun
from sparsesecagg.simulate.simulation import EntropyByRound, make_identities, seeded_entropy
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.protocol import Parameters, Policy, Server, Stage

CLIENTS, DIM = 12, 60
UPDATES = [np.random.default_rng(user).uniform(-1, 1, DIM) for user in range(CLIENTS)]
DROPS: list[dict[int, Stage]] = [
    {1: Stage.UPLOAD},
    {1: Stage.UPLOAD, 2: Stage.UNMASK},
    {5: Stage.UPLOAD},
    {},
    {0: Stage.UPLOAD},
]
KINDS: dict[str, dict[str, Any]] = {
    "committees in pods": {"pattern": "committee", "committee_size": 3, "pod_size": 6, "alpha": 0.5},
    "full": {"pattern": "full"},
    "full with neighbours": {"pattern": "full", "neighbours": 8},
    "pairwise": {"pattern": "pairwise", "alpha": 0.3},
    "with a roster": {"pattern": "committee", "committee_size": 6, "roster": True},
}


def start(kind):
    """Return a run, its randomness, and what is given again on restoring it."""
    options, entropy = dict(KINDS[kind]), EntropyByRound(3)
    identities = make_identities(CLIENTS, "saved", seeded_entropy(1)) if options.pop("roster", False) else None
    digest = identities[0].roster.digest if identities else b""
    params = Parameters.create(clients=CLIENTS, dim=DIM, dropout=0.2, min_survivors=1, roster_digest=digest, **options)
    policy = Policy(min_anonymity=1, min_survivors=1, patterns=frozenset({params.pattern}))
    given: dict[str, Any] = {"policy": policy, "entropy_of": entropy.of, "identities": identities}
    return InProcessRun(params, **given), entropy, given


def play(run, entropy, number):
    """Run one round; return its sum and what was sent."""
    entropy.begin(number)
    outcome = run.round(UPDATES, drops=DROPS[number - 1], terms=bytes([number]) * 32)
    assert outcome.exact and run.server.round_number == number
    return outcome.result


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_run_gives_the_same_rounds_bit_for_bit(kind) -> None:
    """Sums, survivors and sizes, when every round is played by a run that was just restored."""
    whole, entropy, _ = start(kind)
    expected = [play(whole, entropy, number) for number in range(1, 6)]
    parts, entropy, given = start(kind)
    for number in range(1, 6):
        found = play(parts, entropy, number)
        assert np.array_equal(found.total, expected[number - 1].total)
        for name in ("survivors", "dropped", "lost", "sent_bytes", "received_bytes"):
            assert getattr(found, name) == getattr(expected[number - 1], name)
        parts = InProcessRun.restore(parts.save(), **given)


def test_who_missed_two_rounds_misses_the_third_after_a_restart_too() -> None:
    """Packages are part of what is saved, and so is their absence."""
    run, entropy, given = start("committees in pods")
    for number in (1, 2):
        play(run, entropy, number)
    restored = InProcessRun.restore(run.save(), **given)
    assert 1 not in play(restored, entropy, 3).survivors
    assert 1 in play(restored, entropy, 4).survivors


def test_bytes_that_are_no_run_or_server_are_refused() -> None:
    """By a typed error."""
    for data in (b"", b"\x00", b"\x93\x01\x02\x03", bytes(50)):
        with pytest.raises(MalformedMessage):
            InProcessRun.restore(data)
        with pytest.raises(MalformedMessage):
            Server.restore(data)


def test_a_server_that_is_saved_in_a_round_begins_the_next_one() -> None:
    """A round in progress lives in memory, and its number is used up."""
    run, _, _ = start("full")
    run.server.begin_round()
    restored = Server.restore(run.server.save())
    assert restored.stage is Stage.DONE
    restored.begin_round()
    assert restored.round_number == run.server.round_number + 1
