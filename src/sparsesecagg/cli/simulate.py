"""`sparsesecagg simulate`: real rounds among simulated users, in one process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from sparsesecagg.cli.shared import JsonOption, SeedOption, check_memory, err, out, print_json, progress
from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns import DEFAULT_STRIPES
from sparsesecagg.privacy.advice import advice
from sparsesecagg.protocol import STAGES, Outcome, Policy, RoundParameters, Stage, peak_memory, run_round
from sparsesecagg.protocol.parameters import MAX_CLIENTS
from sparsesecagg.protocol.simulation import draw_drops, entropy_of_round, make_identities, seeded_entropy

_ANY = "ANY"


def simulate(
    clients: Annotated[int, typer.Option(help="Users in the cohort (N), at least 3.")] = 100,
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")] = 165_000,
    alpha: Annotated[float, typer.Option(help="Fraction of the model that each user sends, in (0, 1].")] = 0.1,
    dropout: Annotated[float, typer.Option(help="Fraction of users that fall silent (θ), in [0, 0.5).")] = 0.0,
    pattern: Annotated[str, typer.Option(help="committee, pairwise (as published) or full (SecAgg).")] = "committee",
    neighbours: Annotated[
        int | None, typer.Option(help="Degree of mask and share graph; complete graphs if left out.")
    ] = None,
    drop_at: Annotated[
        str, typer.Option(help="Stage before whose message the silent users drop out, or ANY for a mix.")
    ] = Stage.UPLOAD.name,
    modulus_bits: Annotated[int, typer.Option(help="Bits of a word: 8, 12, 16, 24 or 32.")] = 32,
    threshold: Annotated[int | None, typer.Option(help="Shares that restore a secret; more than half.")] = None,
    min_survivors: Annotated[int, typer.Option(help="Least users whose sum a client helps to open.")] = 2,
    clip: Annotated[float, typer.Option(help="Largest magnitude that a coordinate may have.")] = 1.0,
    stripes: Annotated[int, typer.Option(help="Stripes of the committee pattern.")] = DEFAULT_STRIPES,
    weighted: Annotated[bool, typer.Option("--weighted", help="Give users private weights from 1 to 1000.")] = False,
    authenticated: Annotated[
        bool, typer.Option("--authenticated", help="Use a roster of identities, and confirm the survivors.")
    ] = False,
    rounds: Annotated[int, typer.Option(help="Rounds to run.")] = 1,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> None:
    """Run real rounds among simulated users, check the sum, and report bytes and seconds.

    Every key, mask and message is real; the users, their random updates and their dropouts are simulated.
    """
    if rounds < 1:
        raise InvalidInput("rounds", f"must be at least 1, not {rounds}")
    stages = _drop_stages(drop_at)
    identities = (
        make_identities(clients, "simulation", seeded_entropy(seed))
        if authenticated and 3 <= clients <= MAX_CLIENTS
        else None
    )
    params = RoundParameters.create(
        clients=clients,
        dim=dim,
        pattern=pattern,
        alpha=alpha,
        dropout=dropout,
        modulus_bits=modulus_bits,
        neighbours=neighbours,
        threshold=threshold,
        min_survivors=min_survivors,
        clip=clip,
        max_weight=1000 if weighted else 0,
        stripes=stripes,
        roster_digest=identities[0].roster.digest if identities else b"",
    )
    check_memory(dim)
    for sentence in advice(params):
        err.print(f"[yellow]note:[/yellow] {sentence}.", highlight=False, soft_wrap=True)

    outcomes = []
    peak_memory.forget_peak()
    with progress() as bar:
        task = bar.add_task("simulating", total=rounds * clients * len(STAGES))
        for number in range(1, rounds + 1):
            rng = np.random.default_rng([seed, number])
            outcomes.append(
                run_round(
                    params.replace(round_number=number),
                    partial(_update, seed, number, dim, clip),
                    weights=rng.integers(1, 1001, clients).tolist() if weighted else None,
                    drops=draw_drops(clients, dropout, stages, rng),
                    policy=Policy(min_survivors=min_survivors),
                    entropy_of=entropy_of_round(seed, number),
                    identities=identities,
                    progress=lambda *_: bar.advance(task),
                )
            )
            bar.update(task, completed=number * clients * len(STAGES))
    summary = _summary(params, outcomes)
    if json:
        print_json(summary)
    else:
        out.print(_table(params, summary))


def _drop_stages(name: str) -> Sequence[Stage]:
    if name.upper() == _ANY:
        return STAGES
    names = [stage.name for stage in STAGES]
    if name.upper() not in names:
        raise InvalidInput("drop_at", f"must be one of {', '.join([*names, _ANY])}, not {name!r}")
    return [Stage[name.upper()]]


def _update(seed: int, number: int, dim: int, clip: float, user: int) -> NDArray[np.float32]:
    """Return a random update: a normal distribution of which about one value in 10,000 lies beyond the clip."""
    rng = np.random.Generator(np.random.SFC64([seed, number, user]))
    update = rng.standard_normal(dim, np.float32)
    update *= np.float32(clip / 4)
    return update


def _summary(params: RoundParameters, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    results = [outcome.result for outcome in outcomes]
    uploads = [size for result in results for size in result.sent_bytes[Stage.UPLOAD.name]]
    contributors = [result.contributors_per_block for result in results]
    sent = sum(int(count.sum()) for count in contributors) * params.layout.length
    possible = sum(len(result.survivors) for result in results) * params.layout.blocks * params.layout.length
    return {
        "exact": all(outcome.exact for outcome in outcomes),
        "survivors": _mean([len(result.survivors) for result in results]),
        "dropped": {stage: _mean([result.dropped[stage] for result in results]) for stage in results[0].dropped},
        "threshold": params.threshold,
        "alpha_effective": sent / possible,
        "upload_bytes": {"mean": float(np.mean(uploads)), "max": max(uploads)},
        "sent_bytes": _mean_of([result.mean_bytes(result.sent_bytes) for result in results]),
        "received_bytes": _mean_of([result.mean_bytes(result.received_bytes) for result in results]),
        "client_seconds": _mean_of([outcome.client_seconds for outcome in outcomes]),
        "server_seconds": _mean_of([outcome.server_seconds for outcome in outcomes]),
        "contributors": {
            "mean": float(np.mean([count.mean() for count in contributors])),
            "min": min(int(count.min()) for count in contributors),
        },
        "peak_memory_bytes": peak_memory.peak(),
        "clipped": sum(outcome.clipped for outcome in outcomes),
        "rounds": len(outcomes),
        "pattern": params.pattern,
        "modulus_bits": params.modulus_bits,
    }


def _mean(values: Sequence[int]) -> int | float:
    """Return the mean, as an integer where it is one."""
    mean = float(np.mean(values))
    return int(mean) if mean.is_integer() else mean


def _mean_of(rows: Sequence[Any]) -> dict[str, float]:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def _table(params: RoundParameters, summary: dict[str, Any]) -> Table:
    verdict = "the sum is exact" if summary["exact"] else "THE SUM IS WRONG"
    plural = "" if summary["rounds"] == 1 else "s"
    table = Table(
        title=f"{summary['rounds']} simulated round{plural} · {params.pattern} · {params.clients} users · "
        f"{params.dim:,} coordinates · {params.modulus_bits}-bit words · {verdict}",
        caption=f"survivors {summary['survivors']}, threshold {summary['threshold']}, each sends "
        f"{summary['alpha_effective']:.1%} of the model; contributors per coordinate "
        f"{summary['contributors']['mean']:.1f} (least {summary['contributors']['min']}); "
        f"largest upload {summary['upload_bytes']['max']:,} bytes; clipped {summary['clipped']}; "
        f"peak memory {summary['peak_memory_bytes'] / 1e6:.0f} MB",
    )
    table.add_column("stage", no_wrap=True)
    for heading in ("dropped", "sent, bytes", "received, bytes", "client, ms", "server, ms"):
        table.add_column(heading, justify="right")
    for stage in summary["client_seconds"]:
        if stage == "total":
            table.add_section()
        table.add_row(
            stage,
            str(summary["dropped"].get(stage, "")),
            f"{summary['sent_bytes'][stage]:,.0f}",
            f"{summary['received_bytes'][stage]:,.0f}",
            f"{1000 * summary['client_seconds'][stage]:.1f}",
            f"{1000 * summary['server_seconds'][stage]:.1f}",
        )
    return table
