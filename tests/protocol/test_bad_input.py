"""Options that make no sense: a typed error that names the option, in Python and on the command line, and no change."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from cli.commands import run as command
from protocol.rounds import Run, grouped, identities, small
from sparsesecagg.errors import (
    AlreadyAnswered,
    InvalidInput,
    PolicyViolation,
    ProtocolError,
    SparseSecAggError,
)
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, RoundOptions, Server

NAN, MANY = float("nan"), 25
OPTIONS: list[tuple[int, int, dict[str, Any], str, str]] = [
    (10, 100, {"alpha": 0.0}, "alpha", "must be in (0, 1], got 0.0"),
    (10, 100, {"alpha": -0.1}, "alpha", "must be in (0, 1], got -0.1"),
    (10, 100, {"alpha": 1.01}, "alpha", "must be in (0, 1], got 1.01"),
    (10, 100, {"alpha": NAN}, "alpha", "must be in (0, 1], got nan"),
    (10, 100, {"threshold": True}, "threshold", "must be a whole number, got True"),
    (10, 100, {"alpha": True}, "alpha", "must be a number, got True"),
    (2, 100, {"group_size": 3}, "clients", "must be from 3 to 1048576, got 2"),
    (10, 0, {"alpha": 0.1}, "dim", "must be from 1 to 2^40, got 0"),
    (10, 100, {"group_size": 11}, "group_size", "must be from 3 to the 10 clients, got 11"),
    (10, 100, {"group_size": 2}, "group_size", "must be from 3 to the 10 clients, got 2"),
    (4, 100, {"group_size": 3}, "group_size", "of 3 leaves groups of 2 among 4 clients: use at least 4"),
    (10, 100, {"threshold": 5}, "threshold", "must be from 6 to 10 (more than half of a secret's 10 holders), got 5"),
    (10, 100, {"threshold": 11}, "threshold", "must be from 6 to 10 (more than half of a secret's 10 holders), got 11"),
    (10, 9, {"alpha": 0.1}, "alpha", "of 0.1 sends 1 of every 10 coordinates, and the model has 9: use 0.1111"),
    (2, 100, {}, "clients", "must be from 3 to 1048576, got 2"),
]


@pytest.mark.parametrize(("clients", "dim", "options", "option", "problem"), OPTIONS)
def test_a_bad_option_is_named(
    clients: int, dim: int, options: dict[str, Any], option: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        Parameters.create(clients, dim, RoundOptions(**options))
    assert (refused.value.option, str(refused.value)) == (option, f"{option} {problem}")
    given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    code, out, err = command(capsys, "simulate", "--clients", str(clients), "--dim", str(dim), *given)
    named = f"--{option.replace('_', '-')}"
    assert (code, out) == (2, "")
    assert named in err
    assert problem.split(",", maxsplit=1)[0] in err.replace("\n", " ")


def test_a_threshold_that_two_stories_could_meet_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """2t ≤ P + c: the user refuses before it sends anything; one more is accepted."""
    users = identities(MANY)

    def join(threshold: int) -> Client:
        params = Parameters.create(MANY, 100, RoundOptions(threshold=threshold), roster=users[0].roster)
        return Client(0, params, Policy(min_anonymity=1), identity=users[0], ledger=MemoryLedger())

    with pytest.raises(PolicyViolation, match="threshold 14"):
        join(14)  # 28 ≤ 25 + 3
    assert join(15).promise.anonymity >= 1
    settings = ["simulate", "--authenticated", "--clients", str(MANY), "--dim", "20", "--threshold", "14"]
    code, _, err = command(capsys, *settings)
    assert code == 2
    assert "--threshold must be from 15 to 25 with a roster" in err


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda run: run.server.begin_epoch(1), InvalidInput),
        (lambda run: run.server.begin_epoch(0), InvalidInput),
        (lambda run: run.server.begin_epoch(17), PolicyViolation),
        (lambda run: run.clients[0].advertise_keys(1), AlreadyAnswered),
        (lambda run: run.clients[0].advertise_keys(0), AlreadyAnswered),
        (lambda run: run.clients[0].advertise_keys(17), PolicyViolation),
    ],
    ids=["server, the same", "server, before", "server, seventeenth", "same", "before", "seventeenth"],
)
def test_an_epoch_out_of_turn_changes_nothing(ask: Callable[[Run], object], error: type[SparseSecAggError]) -> None:
    run = Run(grouped(roster=True))
    state, saved = run.clients[0]._state, run.server.save()
    with pytest.raises(error, match="epoch"):
        ask(run)
    assert run.clients[0]._state is state
    assert run.server.save() == saved
    assert run.round().survivors == tuple(range(12))


def test_a_roster_without_a_seed_makes_no_run() -> None:
    """Its groups would be anybody's; neither server nor user begins."""
    whole = identities(5)
    roster = replace(whole[0].roster, seed=None)
    params = Parameters.create(5, 40, RoundOptions(), roster=roster)
    identity = copy(whole[0])
    identity.roster = roster
    for begin in (
        lambda: Server(params, roster),
        lambda: Client(0, params, identity=identity, ledger=MemoryLedger()),
    ):
        with pytest.raises(SparseSecAggError, match="seed: build it with `sparsesecagg roster build`"):
            begin()


def test_a_refused_unmask_is_used_up_and_nothing_else() -> None:
    """A malformed one is not: it may come again as it should be."""
    run = Run(small())
    run.begin().step()
    good = run.inbox[0]
    with pytest.raises(ProtocolError):
        run.clients[0].unmask(good[:-1])
    assert run.clients[0].unmask(good) == run.clients[0].unmask(good)
