"""`sparsesecagg audit`: what server and colluding users really learn, read out of real transcripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from rich.table import Column, Table

from sparsesecagg.cli import shared
from sparsesecagg.cli.shared import DEFAULT_ALPHA, JsonOption, option, out, takes
from sparsesecagg.errors import InvalidInput, plural, require
from sparsesecagg.lab.audit.audit import run_audit
from sparsesecagg.lab.audit.audit_report import DROP_STAGES, AuditReport, AuditSettings, Score
from sparsesecagg.lab.audit.canaries import CanarySettings, compare_noise, dp_in_words
from sparsesecagg.patterns import PATTERNS, pattern_of
from sparsesecagg.planning.planner import advice
from sparsesecagg.protocol import RoundOptions, Stage

_NONE = "–"


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
    max_weight: int = 0
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
    drop_at = shared.drop_stage(asked.drop_at, {stage.name: stage for stage in DROP_STAGES})
    pattern = pattern_of(asked.pattern)

    def settings_of(name: str) -> AuditSettings:
        kind = PATTERNS.get(name)
        options = RoundOptions(
            pattern=name,
            alpha=shared.alpha_of(name, asked.alpha),
            group_size=asked.group_size if name == pattern or (kind and kind.several_groups) else None,
            threshold=asked.threshold if name == pattern else None,
            dropout=asked.dropout,
            modulus_bits=shared.word_bits(name, asked.modulus_bits),
            neighbours=asked.neighbours,
            max_weight=asked.max_weight if name == pattern or (kind and kind.protects) else 0,
        )
        same = {each.name: getattr(asked, each.name) for each in fields(AuditSettings) if each.name != "options"}
        return AuditSettings(**same | {"options": options, "drop_at": drop_at})

    audited = [settings_of(name) for name in dict.fromkeys([pattern, *(PATTERNS if asked.compare else ())])]
    for name in ("dp_delta", "canaries"):
        alone = asked.dp_epsilon is None and getattr(asked, name) != getattr(AuditOptions, name)
        require(name, not alone, "must be given together with --dp-epsilon")
    noisy = None if asked.dp_epsilon is None else _canaries(asked, asked.dp_epsilon)
    shared.check_memory(asked.dim)
    params = audited[0].params
    if not asked.compare:
        shared.note_unused_alpha(pattern, asked.alpha)
    for sentence in advice(params) if params.shape.protects else ():  # What others reveal, it shows.
        shared.note(sentence)
    reports = []
    for settings in audited:
        with shared.counting(f"attacking {settings.params.pattern} rounds", settings.rounds * settings.runs) as count:
            reports.append(run_audit(settings, asked.workers or os.cpu_count() or 1, count))
    dp = compare_noise(noisy) if noisy else None
    if json:
        by_pattern = {report.settings.params.pattern: report.as_json() for report in reports}
        compared = {"compare": by_pattern} if len(reports) > 1 else {}
        shared.print_json({**by_pattern[pattern], **compared, **({"dp": dp} if dp else {})})
        return
    shared.say(
        f"{params.clients} users, {audited[0].colluders} colluding, α = {params.alpha:.3g}, θ = {params.dropout:.3g}, "
        f"{asked.rounds} {plural(asked.rounds, 'round')}, {asked.server} server"
    )
    out.print(_table(reports))
    for sentence in [*map(in_words, reports), *([dp_in_words(dp)] if dp else [])]:
        out.print(sentence, highlight=False)


def _canaries(asked: AuditOptions, epsilon: float) -> CanarySettings:
    try:
        return CanarySettings(epsilon, asked.dp_delta, asked.canaries, seed=asked.seed)
    except InvalidInput as problem:
        name = problem.option if problem.option == "canaries" else f"dp_{problem.option}"
        raise InvalidInput(name, problem.problem) from None


def in_words(report: AuditReport) -> str:
    """Say in a sentence or two what the figures mean."""
    settings, tally = report.settings, report.tally
    helpers, least = settings.colluders, report.smallest_component
    who = f"a {settings.server} server" + (f" and {helpers} colluding {plural(helpers, 'user')}" if helpers else "")
    name, bare = settings.params.pattern, report.unmasked_fraction
    if not bare:
        return (
            f"{name}: {who} can read no single value; every one hides among at least {least} honest "
            f"{plural(least, 'user')}, {report.mean_component:.1f} on average."
        )
    sentence = f"{name}: {who} can read {_percent(bare)} of what honest users uploaded, in the clear"
    if tally.read.count < 0.9 * tally.by_size[1]:
        sentence += f" ({_percent(report.revealed_fraction)} beyond doubt; the rest by its size, as words are short)"
    sentence += f"; a value hides among {report.mean_component:.1f} honest users on average"
    if not settings.params.shape.protects:
        return f"{sentence}, not among the {report.contributors_mean:.1f} that send its coordinate."
    return f"{sentence}. `sparsesecagg plan` finds settings that avoid it."


def _table(reports: Sequence[AuditReport]) -> Table:
    rows: dict[str, Callable[[AuditReport], str]] = {
        "values of honest survivors": lambda each: f"{each.tally.values:,}",
        "read in the clear": lambda each: _percent(each.revealed_fraction),
        "  of which correct": lambda each: _score(each.tally.read),
        "without any unknown mask": lambda each: _percent(each.unmasked_fraction),
        "masked by one other only": lambda each: _percent(each.histogram.get(2, 0.0)),
        "  pairs found by their sum": lambda each: _score(each.tally.pairs),
        "honest users a value hides among": lambda each: f"{each.mean_component:.2f}",
        "  at least": lambda each: f"{each.smallest_component}",
        "honest users per coordinate": lambda each: f"{each.contributors_mean:.2f}",
        "  as the paper promises (T)": lambda each: f"{each.settings.claimed_anonymity:.2f}",
        "singled out, as the paper counts": lambda each: _percent(each.singled_out_fraction),
        "private weights read": lambda each: _score(each.tally.weights),
        "sums opened": lambda each: f"{each.tally.sums:,}",
        "values in sums that stayed closed": lambda each: f"{each.tally.closed:,}",
        "promised (docs/planning.md)": lambda each: f"{each.settings.promised or _NONE}",
    }
    table = Table("", *(Column(each.settings.params.pattern, justify="right") for each in reports))
    for name, cell in rows.items():
        cells = [cell(each) for each in reports]
        if set(cells) != {_NONE}:
            table.add_row(name, *cells)
    return table


def _percent(fraction: float) -> str:
    if fraction in (0, 1):
        return f"{100 * fraction:.0f} %"
    return f"{100 * fraction:.1f} %" if fraction >= 0.001 else f"{100 * fraction:.1g} %"


def _score(score: Score) -> str:
    return f"{score.correct:,} of {score.count:,}" if score.count else _NONE
