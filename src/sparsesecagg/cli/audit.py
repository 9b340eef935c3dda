"""`sparsesecagg audit`: what server and colluding users really learn, read out of real transcripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from sparsesecagg.cli.audit_picture import draw
from sparsesecagg.cli.shared import (
    JsonOption,
    SeedOption,
    at_least,
    check_memory,
    check_picture,
    err,
    out,
    print_json,
    progress,
)
from sparsesecagg.privacy.advice import advice
from sparsesecagg.privacy.audit import AuditReport, AuditSettings, run_audit
from sparsesecagg.privacy.truth import Score
from sparsesecagg.protocol import RoundParameters

_COMPARED = ("pairwise", "committee", "full")


def audit(
    pattern: Annotated[str, typer.Option(help="Who sends what: committee, pairwise or full.")] = "committee",
    clients: Annotated[int, typer.Option(help="Users in the round (N), at least 3.")] = 100,
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")] = 4000,
    alpha: Annotated[float, typer.Option(help="Fraction of the model that each user sends (α), in (0, 1].")] = 0.1,
    dropout: Annotated[float, typer.Option(help="Chance that a user drops out (θ), from 0 to below 0.5.")] = 0.3,
    colluding: Annotated[
        float, typer.Option(help="Fraction of users that help the server (γ), from 0 to below 1.")
    ] = 0.0,
    rounds: Annotated[int, typer.Option(help="Completed rounds to attack.")] = 30,
    modulus_bits: Annotated[int, typer.Option(help="Bits of a word: 8, 12, 16, 24 or 32.")] = 32,
    neighbours: Annotated[int | None, typer.Option(help="Degree of share and mask graph; all by default.")] = None,
    threshold: Annotated[int | None, typer.Option(help="Shares that open a secret; a majority by default.")] = None,
    min_survivors: Annotated[int, typer.Option(help="Clients refuse to open a block with fewer survivors.")] = 2,
    max_weight: Annotated[int, typer.Option(help="Give users private weights up to this; 0 for none.")] = 0,
    compare: Annotated[bool, typer.Option("--compare", help="Audit every pattern at these settings.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the component sizes into this .png, .pdf or .svg.")] = None,
    workers: Annotated[int, typer.Option(callback=at_least(0), help="Processes to use; 0 for one per processor.")] = 0,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> None:
    """Run real rounds and attack them with all that server and colluding users hold.

    The attacker has every message, the secrets that UNMASK restores and everything the colluders know. It
    removes the masks that it knows, reads what lies bare, and is compared with the truth.
    """

    def settings_of(name: str) -> AuditSettings:
        params = RoundParameters.create(
            clients=clients,
            dim=dim,
            pattern=name,
            alpha=alpha,
            dropout=dropout,
            modulus_bits=modulus_bits,
            neighbours=neighbours,
            threshold=threshold,
            min_survivors=min_survivors,
            max_weight=max_weight,
        )
        return AuditSettings(params, colluding, rounds, seed)

    chosen = settings_of(pattern)
    audited = [chosen if name == pattern else settings_of(name) for name in (_COMPARED if compare else (pattern,))]
    check_memory(dim)
    if plot is not None:
        check_picture(plot)
    for sentence in advice(chosen.params):
        err.print(f"[yellow]note:[/yellow] {sentence}.", highlight=False, soft_wrap=True)
    reports = [_run(settings, workers or os.cpu_count() or 1) for settings in audited]
    if plot is not None:
        draw(reports, plot)
    if json:
        print_json(as_json(pattern, reports))
        return
    out.print(_table(reports))
    for report in reports:
        out.print(in_words(report), highlight=False)
    if plot is not None:
        out.print(f"Drawn to {plot}.", highlight=False)


def _run(settings: AuditSettings, workers: int) -> AuditReport:
    with progress() as bar:
        task = bar.add_task(f"attacking {settings.params.pattern} rounds", total=settings.rounds)
        return run_audit(settings, workers, lambda completed: bar.update(task, completed=completed))


def as_json(pattern: str, reports: Sequence[AuditReport]) -> dict[str, Any]:
    """Return the chosen pattern's object; when patterns are compared it has all of them under "compare"."""
    by_pattern = {report.settings.params.pattern: report.as_json() for report in reports}
    return by_pattern[pattern] if len(reports) == 1 else {**by_pattern[pattern], "compare": by_pattern}


def in_words(report: AuditReport) -> str:
    """Say in a sentence or two what the figures mean."""
    settings, tally = report.settings, report.tally
    who = "the server" if not settings.colluders else f"the server and {settings.colluders} colluding users"
    name, bare = settings.params.pattern, report.unmasked_fraction
    if not bare:
        return (
            f"{name}: {who} can read no single value; every one hides among at least {report.smallest_component} "
            f"honest users, {report.mean_component:.1f} on average."
        )
    sentence = f"{name}: {who} can read {_percent(bare)} of what honest users uploaded, in the clear"
    if tally.read.count < 0.9 * tally.by_size[1]:
        sentence += f" ({_percent(report.revealed_fraction)} beyond doubt; the rest by its size, as words are short)"
    sentence += f"; a value hides among {report.mean_component:.1f} honest users on average"
    if name == "pairwise":
        return f"{sentence}, not among the {report.contributors_mean:.1f} that send its coordinate."
    return f"{sentence}. `sparsesecagg plan` finds settings that avoid it."


def _table(reports: Sequence[AuditReport]) -> Table:
    settings = reports[0].settings
    params = settings.params
    table = Table(
        title=f"{params.clients} users, {settings.colluders} colluding, α = {params.alpha:.3g}, "
        f"θ = {params.dropout:.3g}, {settings.rounds} rounds",
        title_justify="left",
    )
    table.add_column("")
    for report in reports:
        table.add_column(report.settings.params.pattern, justify="right")

    def row(name: str, *values: str) -> None:
        table.add_row(name, *values)

    row("values of honest survivors", *(f"{report.tally.values:,}" for report in reports))
    row("read in the clear", *(_percent(report.revealed_fraction) for report in reports))
    row("  of which correct", *(_score(report.tally.read) for report in reports))
    row("without any unknown mask", *(_percent(report.unmasked_fraction) for report in reports))
    row("masked by one other only", *(_percent(report.histogram.get(2, 0.0)) for report in reports))
    if any(report.tally.pairs.count for report in reports):
        row("  pairs found by their sum", *(_score(report.tally.pairs) for report in reports))
    row("honest users a value hides among", *(f"{report.mean_component:.2f}" for report in reports))
    row("  at least", *(f"{report.smallest_component}" for report in reports))
    row("honest users per coordinate", *(f"{report.contributors_mean:.2f}" for report in reports))
    row("  as the paper promises (T)", *(f"{report.settings.claimed_anonymity:.2f}" for report in reports))
    row("singled out, as the paper counts", *(_percent(report.singled_out_fraction) for report in reports))
    if params.max_weight:
        row("private weights read", *(_score(report.tally.weights) for report in reports))
    row("blocks opened", *(f"{report.tally.blocks:,}" for report in reports))
    row("rounds refused by clients", *(f"{report.tally.refused}" for report in reports))
    return table


def _percent(fraction: float) -> str:
    if fraction in (0, 1):
        return f"{100 * fraction:.0f} %"
    return f"{100 * fraction:.1f} %" if fraction >= 0.001 else f"{100 * fraction:.1g} %"


def _score(score: Score) -> str:
    return f"{score.correct:,} of {score.count:,}" if score.count else "–"
