"""`sparsesecagg simulate`: real rounds among simulated users, in one process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from sparsesecagg.cli.shared import (
    DEFAULT_ALPHA,
    AlphaOption,
    BitsOption,
    JsonOption,
    MaxWeightOption,
    PatternOption,
    SeedOption,
    WeightsOption,
    check_memory,
    err,
    out,
    pattern_of,
    print_json,
    progress,
    weight_limit,
    word_bits,
)
from sparsesecagg.simulate import InProcessRun, Observer, Outcome, peak_memory
from sparsesecagg.simulate.simulation import (
    RandomUpdate,
    draw_dropouts,
    entropy_of_run,
    make_identities,
    seeded_entropy,
)
from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.planning.advice import advice
from sparsesecagg.protocol import STAGES, Parameters, Policy, Stage
from sparsesecagg.protocol.parameters import MAX_CLIENTS
from sparsesecagg.protocol.stages import round_stages
from sparsesecagg.lab.report.words import bytes_text, seconds_text

_ANY = "ANY"
MOST_ROUNDS = 100_000
_MEETINGS = 3
"""Messages of a user per round, for the progress bar: package, upload, shares."""


def simulate(
    clients: Annotated[int, typer.Option(help="Users in the cohort (N), at least 3.")] = 100,
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")] = 165_000,
    alpha: AlphaOption = DEFAULT_ALPHA,
    dropout: Annotated[float, typer.Option(help="Chance that a user drops out of a round (θ), in [0, 0.5).")] = 0,
    pattern: PatternOption = "committee",
    committee_size: Annotated[
        int | None, typer.Option(help="Users per committee, about; 1/alpha committees if left out.")
    ] = None,
    pod_size: Annotated[int | None, typer.Option(help="Users that hold each other's shares, about; else 128.")] = None,
    neighbours: Annotated[
        int | None, typer.Option(help="Degree of the graphs of full and pairwise; complete graphs if left out.")
    ] = None,
    drop_at: Annotated[
        str, typer.Option(help="Stage before whose message users drop out, or ANY for a mix.")
    ] = Stage.UPLOAD.name,
    modulus_bits: BitsOption = None,
    threshold: Annotated[int | None, typer.Option(help="Shares that restore a secret; over half of a pod.")] = None,
    min_survivors: Annotated[
        int | None, typer.Option(help="Users that an opened sum must have; half of a committee if left out.")
    ] = None,
    clip: Annotated[float, typer.Option(help="Largest magnitude that a coordinate may have.")] = 1.0,
    weights: WeightsOption = None,
    max_weight: MaxWeightOption = None,
    weighted: Annotated[bool, typer.Option("--weighted", help="The same as --weights examples.", hidden=True)] = False,
    authenticated: Annotated[bool, typer.Option("--authenticated", help="Use a roster of identities.")] = False,
    confirm: Annotated[
        bool | None,
        typer.Option("--confirm/--no-confirm", help="Confirm the survivors in a third exchange; with a roster: yes."),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds to run.")] = 1,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> None:
    """Run real rounds among simulated users, check the sum, and report bytes and seconds.

    Every key, mask and message is real; the users, their random updates and their dropouts are simulated. Bytes and
    seconds are those of a round in steady state, the keys of a later round included; the set-up is reported apart.
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise InvalidInput("rounds", f"must be from 1 to {MOST_ROUNDS}, got {rounds}")
    stages, pattern = _drop_stages(drop_at), pattern_of(pattern)
    limit = weight_limit("examples" if weighted and weights is None else weights, max_weight)
    identities = (
        make_identities(clients, "simulation", seeded_entropy(seed))
        if authenticated and 3 <= clients <= MAX_CLIENTS
        else None
    )
    params = Parameters.create(
        clients=clients,
        dim=dim,
        pattern=pattern,
        alpha=alpha,
        committee_size=committee_size,
        pod_size=pod_size,
        dropout=dropout,
        modulus_bits=word_bits(pattern, modulus_bits),
        neighbours=neighbours,
        threshold=threshold,
        min_survivors=min_survivors,
        confirm=confirm,
        clip=clip,
        max_weight=limit,
        roster_digest=identities[0].roster.digest if identities else b"",
    )
    check_memory(dim)
    for sentence in advice(params):
        err.print(f"[yellow]note:[/yellow] {sentence}.", highlight=False, soft_wrap=True)

    peak_memory.forget_peak()
    outcomes: list[Outcome] = []
    schedule = [
        draw_dropouts(clients, dropout, stages, np.random.default_rng([seed, 1 + n]), first_round=n == 0)
        for n in range(rounds)
    ]
    with progress() as bar:
        task = bar.add_task("simulating", total=clients * (3 + _MEETINGS * rounds))
        run = InProcessRun(
            params,
            policy=Policy(min_anonymity=1, min_survivors=1, patterns=frozenset(PATTERNS)),
            entropy_of=entropy_of_run(seed),
            identities=identities,
            absent={user for user, stage in schedule[0].items() if stage is Stage.ADVERTISE_KEYS},
            late={user for user, stage in schedule[0].items() if stage is Stage.SHARE_KEYS},
            observer=_Advancing(lambda: bar.advance(task)),
        )
        for number, drops in enumerate(schedule, start=1):
            rng = np.random.default_rng([seed, number, 1])
            outcomes.append(
                run.round(
                    partial(RandomUpdate, seed, number, dim, clip / 4),
                    weights=rng.integers(1, limit + 1, clients).tolist() if limit else None,
                    drops=drops,
                )
            )
    summary = _summary(run, outcomes)
    if json:
        print_json(summary)
    else:
        out.print(_table(params, summary))


class _Advancing(Observer):
    """Moves a progress bar with each message to the server."""

    def __init__(self, advance: Any) -> None:
        self._advance = advance

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:  # noqa: ARG002
        self._advance()


def _drop_stages(name: str) -> Sequence[Stage]:
    if name.upper() == _ANY:
        return STAGES
    names = [stage.name for stage in STAGES]
    if name.upper() not in names:
        raise InvalidInput("drop_at", f"must be one of {', '.join([*names, _ANY])}, got {name!r}")
    return [Stage[name.upper()]]


def _summary(run: InProcessRun, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    params, results = run.params, [outcome.result for outcome in outcomes]
    uploads = [size for result in results for size in result.sent_bytes[Stage.UPLOAD.name]]
    opened = [result.contributors_per_slice for result in results]
    sizes = [size for pod in params.sizes for size in pod]
    return {
        "exact": all(outcome.exact for outcome in outcomes),
        "survivors": _mean([len(result.survivors) for result in results]),
        "dropped": {
            Stage.ADVERTISE_KEYS.name: params.clients - len(run.members),
            **{stage: _mean([result.dropped[stage] for result in results]) for stage in results[0].dropped},
        },
        "threshold": params.threshold,
        "min_survivors": params.min_survivors,
        "alpha": params.alpha,
        "alpha_effective": params.selection_probability,
        "upload_bytes": {"mean": float(np.mean(uploads)), "max": max(uploads)},
        "sent_bytes": _mean_of([result.mean_bytes(result.sent_bytes) for result in results]),
        "received_bytes": _mean_of([result.mean_bytes(result.received_bytes) for result in results]),
        "setup_bytes": {"sent": _total_mean(run.setup_sent), "received": _total_mean(run.setup_received)},
        "client_seconds": _mean_of([outcome.client_seconds for outcome in outcomes]),
        "server_seconds": _mean_of([outcome.server_seconds for outcome in outcomes]),
        "contributors": {
            "mean": float(np.mean([count.mean() for count in opened])),
            "min": min(int(count.min()) for count in opened),
        },
        "peak_memory_bytes": peak_memory.peak(),
        "clipped": sum(outcome.clipped for outcome in outcomes),
        "rounds": len(outcomes),
        "pattern": params.pattern,
        "modulus_bits": params.modulus_bits,
        "pods": params.pods,
        "committees": params.committees,
        "committee_size": {"min": min(sizes), "max": max(sizes)},
        "committees_opened": _mean([result.committees_opened for result in results]),
        "coordinates_updated": float(np.mean([result.coordinates_updated for result in results])),
        "exchanges": len(round_stages(params.confirm)),
        "confirm": params.confirm,
    }


def _total_mean(sizes: Any) -> float:
    """Return the mean over users of the bytes of all stages."""
    return float(sum(np.mean(list(by_user.values()) or [0]) for by_user in sizes.values()))


def _mean(values: Sequence[int]) -> int | float:
    """Return the mean, as an integer where it is one."""
    mean = float(np.mean(values))
    return int(mean) if mean.is_integer() else mean


def _mean_of(rows: Sequence[Any]) -> dict[str, float]:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def _table(params: Parameters, summary: dict[str, Any]) -> Table:
    verdict = "the sum is exact" if summary["exact"] else "THE SUM IS WRONG"
    plural = "" if summary["rounds"] == 1 else "s"
    table = Table(
        title=f"{summary['rounds']} simulated round{plural} · {params.pattern} · {params.clients} users · "
        f"{params.dim:,} coordinates · {params.modulus_bits}-bit words · {verdict}",
        caption=f"survivors {summary['survivors']}, threshold {summary['threshold']}, each sends "
        f"{summary['alpha_effective']:.1%} of the model; contributors per coordinate "
        f"{summary['contributors']['mean']:.1f} (minimum {summary['contributors']['min']}); "
        f"largest upload {bytes_text(summary['upload_bytes']['max'])}; clipped {summary['clipped']}; "
        f"{summary['committees_opened']} of {summary['committees']} committees opened, "
        f"{summary['coordinates_updated']:.1%} of the coordinates updated; {summary['exchanges']} exchanges per round; "
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
            str(summary["dropped"].get(stage, "")),
            bytes_text(summary["sent_bytes"][stage]),
            bytes_text(summary["received_bytes"][stage]),
            seconds_text(summary["client_seconds"][stage]),
            seconds_text(summary["server_seconds"][stage]),
        )
    return table
