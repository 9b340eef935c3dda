"""`sparsesecagg audit`: what server and colluding users really learn, read out of real transcripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from rich.table import Table

from sparsesecagg.cli.options import option, takes
from sparsesecagg.cli.shared import (
    DEFAULT_ALPHA,
    JsonOption,
    check_memory,
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
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.planning.planner import advice
from sparsesecagg.privacy.anonymity import ServerModel
from sparsesecagg.protocol import RoundOptions, Stage


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
    group_size: int | None = None
    modulus_bits: int | None = None
    neighbours: int | None = None
    threshold: int | None = None
    weights: str | None = None
    max_weight: int | None = None
    drop_at: str = option(
        Stage.UPLOAD.name, "UPLOAD, or SHARE_KEYS: a user that drops out sends no keys for later rounds either."
    )
    authenticated: bool = False
    compare: bool = option(False, "Audit every pattern at these settings.")
    dp_epsilon: float | None = option(None, "Put noise for this ε in one round to the test, with canaries.", "no noise")
    dp_delta: float = option(1e-5, "With --dp-epsilon: δ.")
    canaries: int = option(2000, "With --dp-epsilon: how many, with noise and without.")
    workers: int = option(0, "Processes for several runs; 0 for one per processor.", at_least=0)
    seed: int = 0


@takes(AuditOptions)
def audit(asked: AuditOptions, *, json: JsonOption = False) -> None:
    """Run real rounds and attack them with everything that the server and colluding users hold.

    The attacker has every message, the secrets that UNMASK restores and everything that the colluders know. It
    removes the masks that it knows and reads the values that are left without a mask. Those are compared with the
    truth.
    """
    stage, pattern, limit = (
        _stage(asked.drop_at),
        pattern_of(asked.pattern),
        weight_limit(asked.weights, asked.max_weight),
    )

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
        model = cast(ServerModel, asked.server)  # Checked by the settings.
        return AuditSettings(
            asked.clients,
            asked.dim,
            options,
            asked.colluding,
            asked.rounds,
            asked.seed,
            asked.runs,
            model,
            stage,
            asked.authenticated,
        )

    chosen = settings_of(pattern)
    audited = [chosen, *(settings_of(name) for name in PATTERNS if name != pattern)] if asked.compare else [chosen]
    noisy = None if asked.dp_epsilon is None else _canaries(asked, asked.dp_epsilon)
    check_memory(asked.dim)
    for sentence in advice(chosen.params) if chosen.params.shape.protects else ():  # What others reveal, it shows.
        note(sentence)
    reports = [_run(settings, asked.workers or os.cpu_count() or 1) for settings in audited]
    dp = compare_noise(noisy) if noisy else None
    if json:
        print_json(as_json(pattern, reports) | ({"dp": dp} if dp else {}))
        return
    out.print(_title(reports[0].settings), highlight=False)
    out.print(_table(reports))
    for report in reports:
        out.print(in_words(report), highlight=False)
    if dp:
        out.print(dp_in_words(dp), highlight=False)


def _canaries(asked: AuditOptions, epsilon: float) -> CanarySettings:
    try:
        return CanarySettings(epsilon, asked.dp_delta, asked.canaries, seed=asked.seed)
    except InvalidInput as problem:
        name = problem.option if problem.option == "canaries" else f"dp_{problem.option}"
        raise InvalidInput(name, problem.problem) from None


def _stage(name: str) -> Stage:
    if name not in Stage.__members__:
        raise InvalidInput("drop_at", f"must be one of UPLOAD, SHARE_KEYS, got {name!r}")
    return Stage[name]


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


def _percent(fraction: float) -> str:
    if fraction in (0, 1):
        return f"{100 * fraction:.0f} %"
    return f"{100 * fraction:.1f} %" if fraction >= 0.001 else f"{100 * fraction:.1g} %"


def _score(score: Score) -> str:
    return f"{score.correct:,} of {score.count:,}" if score.count else "–"
