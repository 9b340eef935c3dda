"""`sparsesecagg simulate`: real rounds among simulated users, in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from rich.table import Table

from sparsesecagg.cli import shared
from sparsesecagg.cli.errors import Ended
from sparsesecagg.cli.shared import DEFAULT_ALPHA, JsonOption, bytes_text, option, seconds_text, takes
from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.errors import PolicyViolation, ProtocolError, RoundFailed, RoundRefused, require
from sparsesecagg.patterns import PATTERNS, pattern_of
from sparsesecagg.planning.planner import advice, lowest_threshold, require_majority
from sparsesecagg.protocol import STAGES, Parameters, Policy, RoundOptions, Stage
from sparsesecagg.protocol.parameters import MAX_CLIENTS, MAX_DIM
from sparsesecagg.protocol.stages import ROUND_STAGES
from sparsesecagg.simulate import Cohort, InProcessRun, Observer, Outcome, memory
from sparsesecagg.simulate.simulation import (
    RandomUpdate,
    draw_dropouts,
    entropy_of_run,
    make_identities,
    seeded_entropy,
)

MOST_ROUNDS = 100_000
_LENIENT = Policy(
    min_anonymity=1,
    colluding=0.0,
    server="semi-honest",
    max_clients=MAX_CLIENTS,
    max_dim=MAX_DIM,
    patterns=frozenset(PATTERNS),
)
"""Simulated users take part in anything; notes on standard error say what a setting does not protect from."""


@dataclass(frozen=True)
class SimulateOptions:
    """What to simulate."""

    clients: int = 100
    dim: int = 165_000
    alpha: float = DEFAULT_ALPHA
    dropout: float = 0.0
    pattern: str = "sliced"
    group_size: int | None = None
    authenticated: bool = False
    neighbours: int | None = None
    drop_at: str = option(Stage.UPLOAD.name, "Stage before whose message users drop out, or ANY for a mix.")
    modulus_bits: int | None = None
    rounds: int = option(1, "Rounds to run.")
    threshold: int | None = None
    clip: float = option(1.0, "Largest magnitude that a coordinate may have.")
    max_weight: int = 0
    seed: int = 0


@takes(SimulateOptions)
def simulate(asked: SimulateOptions, *, json: JsonOption = False) -> None:
    """Run real rounds among simulated users, check the sum, and report bytes and seconds.

    Every key, mask and message is real; the users, their random updates and their dropouts are simulated. Bytes and
    seconds are per round in steady state. They include the keys for a later round, but not the model.
    """
    require("rounds", 1 <= asked.rounds <= MOST_ROUNDS, f"must be from 1 to {MOST_ROUNDS}, got {asked.rounds}")
    stages = shared.drop_stage(asked.drop_at, {**{stage.name: (stage,) for stage in STAGES}, "ANY": STAGES})
    pattern = pattern_of(asked.pattern)
    options = RoundOptions(
        pattern=pattern,
        alpha=shared.alpha_of(pattern, asked.alpha),
        group_size=asked.group_size,
        threshold=asked.threshold,
        dropout=asked.dropout,
        neighbours=asked.neighbours,
        clip=asked.clip,
        max_weight=asked.max_weight,
    )
    params = Parameters.create(asked.clients, asked.dim, options, session=seeded_entropy(asked.seed)(DIGEST_SIZE))
    shared.check_memory(asked.dim)
    people = None
    if asked.authenticated:
        entropy = seeded_entropy(asked.seed)
        people = make_identities(asked.clients, "simulation", entropy, group_size=asked.group_size)
    cohort = Cohort(_LENIENT, entropy_of_run(asked.seed), people)
    options = replace(options, modulus_bits=shared.word_bits(pattern, asked.modulus_bits, params.contributors))
    params = Parameters.create(asked.clients, asked.dim, options, session=params.session, roster=cohort.roster)
    require_majority(params, asked.threshold)
    shared.note_unused_alpha(pattern, asked.alpha)
    for sentence in advice(params):
        shared.note(sentence)
    memory.forget_peak()
    generators = [np.random.default_rng([asked.seed, 1 + n]) for n in range(asked.rounds)]
    schedule = [
        draw_dropouts(asked.clients, asked.dropout, stages, rng, first_round=rng is generators[0]) for rng in generators
    ]
    try:
        summary = _summary(*_run(params, cohort, schedule, asked.seed), asked.rounds)
    except (RoundFailed, PolicyViolation) as problem:
        raise Ended(f"the round failed: {problem}; {_remedy(problem, params)}") from problem
    if json:
        shared.print_json(summary)
    else:
        shared.out.print(_table(params, summary, asked.rounds))


def _run(
    params: Parameters, cohort: Cohort, schedule: Sequence[Mapping[int, Stage]], seed: int
) -> tuple[InProcessRun, list[Outcome]]:
    """Run all rounds; return the run and the outcomes of those that were opened. Raise if none was."""
    outcomes: list[Outcome] = []
    failure: RoundFailed | None = None
    with shared.counting("simulating, messages", params.clients * (4 + 5 * len(schedule))) as count:
        run = InProcessRun(params, cohort, drops=schedule[0], observer=_Counting(count))
        for number, drops in enumerate(schedule, start=1):
            rng = np.random.default_rng([seed, number, 1])
            weights = rng.integers(1, params.max_weight + 1, params.clients).tolist() if params.max_weight else None
            updates = partial(RandomUpdate, seed, number, params.dim, params.clip / 4)
            try:
                outcomes.append(run.round(updates, weights=weights, drops=drops))
            except RoundFailed as problem:
                failure = problem
                if len(schedule) > 1:
                    shared.note(f"round {number} failed: {problem}")
    if failure and not outcomes:
        raise failure
    return run, outcomes


def _remedy(problem: ProtocolError, params: Parameters) -> str:
    """Return what would let a failed round come further: simulated users refuse nothing but too few of them."""
    if params.neighbours:  # Half of all users must stay whatever the threshold is, and enough next to each user.
        refused = isinstance(problem, PolicyViolation | RoundRefused)
        return "lower --dropout or raise --neighbours" if refused else "lower --dropout"
    return "lower --dropout" + " or lower --threshold" * (params.threshold > lowest_threshold(params))


class _Counting(Observer):
    """Counts the messages both ways, for the progress bar."""

    def __init__(self, count: Callable[[int], None]) -> None:
        self._count, self._messages = count, 0

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:  # noqa: ARG002
        self._messages += 1
        self._count(self._messages)

    to_client = to_server


def _summary(run: InProcessRun, outcomes: Sequence[Outcome], rounds: int) -> dict[str, Any]:
    """Return the command's JSON object: means over the rounds that were opened; what was opened counts over all."""
    params, results = run.params, [outcome.result for outcome in outcomes]
    uploads = [size for result in results for size in result.sent_bytes[Stage.UPLOAD.name]]
    opened = [result.contributors[result.updated] for result in results if result.coordinates_updated]
    failed = [0] * (rounds - len(results))
    return {
        "exact": all(outcome.exact for outcome in outcomes),
        "survivors": _mean([len(result.survivors) for result in results]),
        "dropped": {
            Stage.ADVERTISE_KEYS.name: params.clients - len(run.members),
            **{stage: _mean([result.dropped[stage] for result in results]) for stage in results[0].dropped},
        },
        "threshold": params.threshold,
        "alpha_effective": params.shape.fraction(),
        "upload_bytes": {"mean": float(np.mean(uploads)), "max": max(uploads)},
        "sent_bytes": _mean_of([result.mean_bytes(result.sent_bytes) for result in results]),
        "received_bytes": _mean_of([result.mean_bytes(result.received_bytes) for result in results]),
        "client_seconds": _mean_of([outcome.client_seconds for outcome in outcomes]),
        "server_seconds": _mean_of([outcome.server_seconds for outcome in outcomes]),
        "contributors": {
            "mean": float(np.mean([count.mean() for count in opened] or [0])),
            "min": min((int(count.min()) for count in opened), default=0),  # A sparse pairwise may send nothing.
        },
        "peak_memory_bytes": memory.peak(),
        "groups": params.groups,
        "group_size": {"min": min(params.sizes), "max": max(params.sizes)},
        "groups_opened": _mean([result.groups_opened for result in results] + failed),
        "coordinates_updated": float(np.mean([result.coordinates_updated for result in results] + failed)),
        "exchanges": len(ROUND_STAGES),
    }


def _mean(values: Sequence[int]) -> int | float:
    """Return the mean, as an integer where it is one."""
    mean = float(np.mean(values))
    return int(mean) if mean.is_integer() else mean


def _mean_of(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def _table(params: Parameters, summary: dict[str, Any], rounds: int) -> Table:
    verdict = "the sum is exact" if summary["exact"] else "THE SUM IS WRONG"
    table = Table(
        title=f"{rounds} simulated round{'s' * (rounds > 1)} · {params.pattern} · {params.clients} users · "
        f"{params.dim:,} coordinates · {params.modulus_bits}-bit words · {verdict}",
        caption=f"{summary['survivors']:g} users in the sum, threshold {summary['threshold']}; each sends "
        f"{summary['alpha_effective']:.2%} of the model; users per coordinate {summary['contributors']['mean']:.1f} "
        f"(minimum {summary['contributors']['min']}); {summary['groups_opened']:g} of {summary['groups']} groups "
        f"opened, {summary['coordinates_updated']:.1%} of the coordinates updated; largest upload "
        f"{bytes_text(summary['upload_bytes']['max'])}; {summary['exchanges']} exchanges per round; "
        f"peak memory {bytes_text(summary['peak_memory_bytes'])}",
    )
    table.add_column("stage", no_wrap=True)
    for heading in ("dropped", "sent", "received", "client", "server"):
        table.add_column(heading, justify="right")
    for stage in summary["client_seconds"]:
        if stage == "total":
            table.add_section()
        table.add_row(
            stage,
            f"{summary['dropped'].get(stage, 0):g}" if stage != "total" else "",
            bytes_text(summary["sent_bytes"][stage]),
            bytes_text(summary["received_bytes"][stage]),
            seconds_text(summary["client_seconds"][stage]),
            seconds_text(summary["server_seconds"][stage]),
        )
    return table
