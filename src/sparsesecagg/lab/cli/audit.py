"""`sparsesecagg audit`: what server and colluding users really learn, read out of real transcripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.table import Table

from sparsesecagg.cli.options import option, takes
from sparsesecagg.cli.shared import (
    DEFAULT_ALPHA,
    JsonOption,
    check_memory,
    check_picture,
    counting,
    note,
    out,
    pattern_of,
    print_json,
    weight_limit,
    word_bits,
)
from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.audit.audit import run_audit
from sparsesecagg.lab.audit.audit_report import AuditReport, AuditSettings, Score
from sparsesecagg.lab.audit.canaries import CanarySettings, compare_noise, dp_in_words
from sparsesecagg.lab.audit.many_rounds import WAYS, ManyRounds, compare_ways
from sparsesecagg.lab.cli.audit_picture import draw
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.planning.advice import advice
from sparsesecagg.privacy.anonymity import ServerModel
from sparsesecagg.protocol import RoundOptions, Stage

_REAL_ROUNDS = 10
"""With --persistent: rounds that are run with keys and messages; what all tell follows from who is in which sum."""


@dataclass(frozen=True)
class AuditOptions:
    """What to audit."""

    pattern: str = "sliced"
    clients: int = 100
    dim: int = 4000
    alpha: float = DEFAULT_ALPHA
    dropout: float = 0.3
    colluding: float = option(0.0, "Fraction of users that help the server (γ), in [0, 1).")
    server: str = option(
        "semi-honest", "semi-honest: follows the protocol. malicious: tells every holder another story."
    )
    rounds: int = option(10, "Rounds of a run, all of them attacked.")
    runs: int = option(1, "Runs, each with its own groups and colluders.")
    persistent: float | None = option(
        None, "Part of an update's variance that stays the same, in (0, 1]: what all rounds together tell."
    )
    group_size: int | None = None
    modulus_bits: int | None = None
    neighbours: int | None = None
    threshold: int | None = None
    weights: str | None = None
    max_weight: int | None = None
    drop_at: str = option(
        Stage.UPLOAD.name, "UPLOAD, or SHARE_KEYS: who drops out sends no package of a later round either."
    )
    authenticated: bool = False
    compare: bool = option(False, "Audit every pattern at these settings.")
    dp_epsilon: float | None = option(None, "Put noise for this ε in one round to the test, with canaries.", "no noise")
    dp_delta: float = option(1e-5, "With --dp-epsilon: δ.")
    canaries: int = option(2000, "With --dp-epsilon: how many, with noise and without.")
    plot: Path | None = option(  # noqa: RUF009 (a field)
        None, "Draw the component sizes into this .png, .pdf or .svg."
    )
    workers: int = option(0, "Processes for several runs; 0 for one per processor.", at_least=0)
    seed: int = 0


@takes(AuditOptions)
def audit(asked: AuditOptions, *, json: JsonOption = False) -> None:
    """Run real rounds and attack them with all that server and colluding users hold.

    The attacker has every message, the secrets that UNMASK restores and everything the colluders know. It
    removes the masks that it knows, reads what lies bare, and is compared with the truth.
    """
    stage, pattern, limit = (
        _stage(asked.drop_at),
        pattern_of(asked.pattern),
        weight_limit(asked.weights, asked.max_weight),
    )
    rounds, persistent, plot, seed = asked.rounds, asked.persistent, asked.plot, asked.seed

    def settings_of(name: str) -> AuditSettings:
        kind = PATTERNS.get(name)
        options = RoundOptions(
            pattern=name,
            alpha=asked.alpha if kind is None or kind.sparse else 1.0,
            group_size=asked.group_size if name == pattern or (kind and kind.several_groups) else None,
            threshold=asked.threshold if name == pattern else None,
            dropout=asked.dropout,
            modulus_bits=word_bits(name, asked.modulus_bits),
            neighbours=asked.neighbours,
            max_weight=limit if name == pattern or (kind and kind.protects) else 0,
        )
        real = rounds if persistent is None else min(rounds, _REAL_ROUNDS)
        model = cast(ServerModel, asked.server)  # Checked by the settings.
        return AuditSettings(
            asked.clients,
            asked.dim,
            options,
            asked.colluding,
            real,
            seed,
            asked.runs,
            model,
            stage,
            asked.authenticated,
        )

    chosen = settings_of(pattern)
    audited = [chosen, *(settings_of(name) for name in PATTERNS if name != pattern)] if asked.compare else [chosen]
    watched = None if persistent is None else _watched(chosen, persistent)
    noisy = None if asked.dp_epsilon is None else _canaries(asked.dp_epsilon, asked.dp_delta, asked.canaries, seed)
    check_memory(asked.dim)
    if plot is not None:
        check_picture(plot)
    for sentence in advice(chosen.params) if chosen.params.shape.protects else ():  # What others reveal, it shows.
        note(sentence)
    reports = [_run(settings, asked.workers or os.cpu_count() or 1) for settings in audited]
    many = compare_ways(watched, _milestones(rounds), seed=seed) if watched else None
    dp = compare_noise(noisy) if noisy else None
    if plot is not None:
        draw(reports, plot)
    if json:
        extra = {"many_rounds": many, "dp": dp}
        print_json({**as_json(pattern, reports), **{name: found for name, found in extra.items() if found}})
        return
    out.print(_title(reports[0].settings), highlight=False)
    out.print(_table(reports))
    for report in reports:
        out.print(in_words(report), highlight=False)
    if many:
        out.print(_many_table(many))
        out.print(
            f"Computed from who is in which sum; {chosen.rounds} of the rounds were run with keys and attacked, above. "
            "The sums of many rounds tell users apart even if no single sum does; only noise in the updates "
            "(differential privacy) ends that.",
            highlight=False,
        )
    if dp:
        out.print(dp_in_words(dp), highlight=False)
    if plot is not None:
        out.print(f"Drawn to {plot}.", highlight=False)


def _canaries(epsilon: float, delta: float, canaries: int, seed: int) -> CanarySettings:
    try:
        return CanarySettings(epsilon, delta, canaries, seed=seed)
    except InvalidInput as problem:
        name = problem.option if problem.option == "canaries" else f"dp_{problem.option}"
        raise InvalidInput(name, problem.problem) from None


def _stage(name: str) -> Stage:
    if name not in Stage.__members__:
        raise InvalidInput("drop_at", f"must be one of UPLOAD, SHARE_KEYS, got {name!r}")
    return Stage[name]


def _watched(settings: AuditSettings, persistent: float) -> ManyRounds:
    """Return what is watched for many rounds, for the settings of an audit."""
    params = settings.params
    if not params.shape.protects:
        raise InvalidInput(
            "persistent", f"must not be given with {params.pattern}, whose sums differ from coordinate to coordinate"
        )
    return ManyRounds(
        clients=params.clients,
        groups=params.groups,
        alpha=params.alpha,
        dropout=params.dropout,
        persistent=persistent,
        colluding=settings.colluding,
        threshold=params.threshold,
    )


def _milestones(rounds: int) -> list[int]:
    """Return the rounds after which to look: a quarter of them, half, and all."""
    return sorted({max(1, rounds // 4), max(1, rounds // 2), rounds})


def _run(settings: AuditSettings, workers: int) -> AuditReport:
    with counting(f"attacking {settings.params.pattern} rounds", settings.rounds * settings.runs) as count:
        return run_audit(settings, workers, count)


def as_json(pattern: str, reports: Sequence[AuditReport]) -> dict[str, Any]:
    """Return the chosen pattern's object; when patterns are compared it has all of them under "compare"."""
    by_pattern = {report.settings.params.pattern: report.as_json() for report in reports}
    return by_pattern[pattern] if len(reports) == 1 else {**by_pattern[pattern], "compare": by_pattern}


def in_words(report: AuditReport) -> str:
    """Say in a sentence or two what the figures mean."""
    settings, tally = report.settings, report.tally
    who = f"a {settings.server} server" + (f" and {settings.colluders} colluding users" if settings.colluders else "")
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
    if not settings.params.shape.protects:
        return f"{sentence}, not among the {report.contributors_mean:.1f} that send its coordinate."
    return f"{sentence}. `sparsesecagg plan` finds settings that avoid it."


def _title(settings: AuditSettings) -> str:
    params = settings.params
    return (
        f"{params.clients} users, {settings.colluders} colluding, α = {params.alpha:.3g}, θ = {params.dropout:.3g}, "
        f"{settings.rounds} rounds, {settings.server} server"
    )


def _table(reports: Sequence[AuditReport]) -> Table:
    table = Table()
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
    if reports[0].settings.params.max_weight:
        row("private weights read", *(_score(report.tally.weights) for report in reports))
    row("sums opened", *(f"{report.tally.sums:,}" for report in reports))
    row("values in sums that stayed closed", *(f"{report.tally.closed:,}" for report in reports))
    row("promised (docs/planning.md)", *(f"{report.settings.promised or '–'}" for report in reports))
    return table


def _many_table(many: dict[str, Any]) -> Table:
    table = Table(title="Correlation of the server's estimate with a user's deviation", title_justify="left")
    table.add_column("after rounds", justify="right")
    names = {"kept": "groups as drawn", "fresh": "fresh groups", "secagg": "SecAgg"}
    for way in WAYS:
        table.add_column(names[way], justify="right")
    for place, rounds in enumerate(many["rounds"]):
        table.add_row(f"{rounds:,}", *(f"{many[way][place]:.2f}" for way in WAYS))
    return table


def _percent(fraction: float) -> str:
    if fraction in (0, 1):
        return f"{100 * fraction:.0f} %"
    return f"{100 * fraction:.1f} %" if fraction >= 0.001 else f"{100 * fraction:.1g} %"


def _score(score: Score) -> str:
    return f"{score.correct:,} of {score.count:,}" if score.count else "–"
