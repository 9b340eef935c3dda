"""Claims about training to a target: Figures 3, 5 and 6, and their wall clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from experiments.claims.claim import NOT_REPRODUCED, REPRODUCED, Claim, Results, judged, missing
from experiments.clock.config import CLAIMS as SPEEDUPS
from experiments.clock.plot import split
from experiments.common.summaries import Setting, Spread, paper_total, settings_of

UPLOADS = {
    "fig3": ("Figure 3a", "CIFAR-10", 7.8),
    "fig5": ("Figure 5a", "MNIST, IID", 17.9),
    "mcmahan": ("Figure 5a", "MNIST, IID, McMahan's network", 17.9),
    "fig6": ("Figure 6a", "MNIST, non-IID", 12.0),
}
CLOCKS = {
    "fig3": ("Figure 3c", "fig3", ()),
    "fig5": ("Figure 5b", "fig5", (100,)),
    "mcmahan": ("Figure 5b", "fig5", (100,)),
    "fig6": ("Figure 6b", "fig6", ()),
}
"""Where the paper states a speed-up, in which figure, and at which N it does (all, where it names none)."""
ROUNDS_OF = {"fig5": ", rounds of the small network", "mcmahan": ", rounds of McMahan's network"}
HYPOTHESES = ("fig5", "fig6")
FEW_ROUNDS = 5
NEAR = 0.1
"""A ratio is reproduced if it lies within our range, widened by this part of it."""


def claims(found: Results) -> list[Claim]:
    """Return all claims about training."""
    rows = []
    for name in UPLOADS:
        rows += [_upload(found, name), *([_hypothesis(found, name)] if name in HYPOTHESES else [])]
        if name == "fig3":
            rows += [_convergence(found), _growing(found)]
        rows.append(_clock(found, name))
    return [*rows, _non_iid(found)]


def published(result: Mapping[str, Any]) -> list[Setting]:
    """Return the published pattern's settings, one per N, averaged by the paper's rule."""
    return [
        one
        for one in settings_of(result["numbers"]["runs"])
        if one.system == "pairwise" and one.runs[0]["normalisation"] == "expected"
    ]


def per_cohort(found: Sequence[tuple[int, Spread | None]], digits: int = 1, unit: str = "×") -> str:
    """Return medians and ranges, one per N."""
    return "; ".join(f"N={clients}: {spread.text(digits, unit)}" for clients, spread in found if spread) or "–"


def within(claimed: float, spreads: Sequence[Spread | None]) -> bool:
    """Tell whether a figure lies in the range of any of them, widened a little."""
    return any(
        spread is not None and (1 - NEAR) * spread.least <= claimed <= (1 + NEAR) * spread.most for spread in spreads
    )


def _upload(found: Results, name: str) -> Claim:
    where, data, claimed = UPLOADS[name]
    what, paper = f"{data}: total upload until the target, less than SecAgg's (paper's format)", f"{claimed:g}×"
    if name not in found:
        return missing(where, what, paper, name)
    ratios = [(one.clients, one.upload_ratio(in_the_papers_format=True)) for one in published(found[name])]
    if not any(spread for _, spread in ratios):
        return missing(where, what, paper, name, "the target was not reached")
    return Claim(where, what, paper, per_cohort(ratios) + _so_far(found[name]), _where(claimed, ratios), name)


def _where(claimed: float, ratios: Sequence[tuple[int, Spread | None]]) -> str:
    """Return the verdict, and at which N the figure came out if it did so at some only."""
    holds = {clients: within(claimed, [spread]) for clients, spread in ratios if spread}
    if len(set(holds.values())) == 1:
        return judged(all(holds.values()))
    some, others = (
        ", ".join(str(clients) for clients, one in holds.items() if one is wanted) for wanted in (True, False)
    )
    return f"{REPRODUCED} at N = {some}, not at {others}"


def _so_far(result: Mapping[str, Any]) -> str:
    """Say how many seeds there are, where runs are still missing."""
    if result["complete"]:
        return ""
    seeds = len({run["seed"] for run in result["numbers"]["runs"]})
    return f" ({seeds} of {len(result['seeds'])} seeds begun, not all done)"


def hypothesis(result: Mapping[str, Any]) -> list[tuple[int, Spread | None]]:
    """Return, per N, the upload of a SecAgg without 1/(1−θ) over the published pattern's, seed by seed."""
    settings = settings_of(result["numbers"]["runs"])
    rows = []
    for one in published(result):
        bases = {
            run["seed"]: run
            for other in settings
            for run in other.runs
            if (other.system, other.clients) == ("secagg", one.clients)
            and run["normalisation"] == "everybody"
            and run["reached_target_at"]
        }
        pairs = [(run, bases[run["seed"]]) for run in one.runs if run["reached_target_at"] and run["seed"] in bases]
        rows.append((one.clients, Spread.of(paper_total(base) / paper_total(run) for run, base in pairs)))
    return rows


def _hypothesis(found: Results, name: str) -> Claim:
    where, _, claimed = UPLOADS[name]
    what = "Hypothesis: the paper's SecAgg does not divide by 1−θ (our guess, not a claim of the paper)"
    paper = f"{claimed:g}×"
    if name not in found:
        return missing(where, what, paper, name)
    ratios = hypothesis(found[name])
    if not any(spread for _, spread in ratios):
        return missing(where, what, paper, name, "these runs are not done yet")
    explained = within(claimed, [spread for _, spread in ratios])
    verdict = f"not a claim: {'would' if explained else 'does not'} explain the paper's figure"
    return Claim(where, what, paper, per_cohort(ratios), verdict, name)


def _convergence(found: Results) -> Claim:
    where, what = "Figure 3b", "SecAgg reaches the target only a few rounds before SparseSecAgg"
    if "fig3" not in found:
        return missing(where, what, "a few rounds", "fig3")
    target = found["fig3"]["configuration"]["training"]["target"]
    later = [
        (one.clients, mine.median - base.median)
        for one in published(found["fig3"])
        if (mine := one.crossings(target))
        and (base := Setting(one.clients, "", tuple(_bases(one)), ()).crossings(target))
    ]
    if not later:
        return missing(where, what, "a few rounds", "fig3", "the target was not reached")
    text = "; ".join(f"N={clients}: {rounds:+.1f} rounds" for clients, rounds in later)
    return Claim(where, what, "a few rounds", text, judged(all(rounds <= FEW_ROUNDS for _, rounds in later)), "fig3")


def _bases(setting: Setting) -> list[Any]:
    return [base for base in setting.bases if base is not None]


def _growing(found: Results) -> Claim:
    where, what = "Figure 3b", "Rounds to the target rise with N, because local data shrinks"
    name = next((one for one in ("fig3", "fig5", "fig6") if one in found), None)
    best = max(
        ("fig3", "fig5", "fig6"), key=lambda one: len(published(found[one])) if one in found else 0
    )  # The figure with most cohorts says most about N.
    if name is None:
        return missing(where, what, "rises", "fig3")
    target = found[best]["configuration"]["training"]["target"]
    crossed = [(one.clients, one.crossings(target)) for one in published(found[best])]
    # Rounds at different learning rates say nothing about N.
    at_rate: dict[float, list[float]] = {}
    for one, (_, spread) in zip(published(found[best]), crossed, strict=True):
        if spread:
            at_rate.setdefault(one.runs[0]["lr"], []).append(spread.median)
    comparable = [medians for medians in at_rate.values() if len(medians) > 1]
    if not comparable:
        return missing(where, what, "rises", best, "no two N with one learning rate have reached the target yet")
    text = per_cohort(crossed, 1, " rounds") + (" (two learning rates, compared apart)" if len(at_rate) > 1 else "")
    return Claim(where, what, "rises", text, judged(all(one == sorted(one) for one in comparable)), best)


def _clock(found: Results, name: str) -> Claim:
    where, figure, wanted = CLOCKS[name]
    claimed = SPEEDUPS[figure]
    what = f"Wall clock until the target, faster than SecAgg{f', N = {wanted[0]}' if wanted else ''}"
    what += ROUNDS_OF.get(name, "")
    paper = f"{claimed:g}×"
    if "clock" not in found or name not in found:
        return missing(where, what, paper, "clock", "rounds, or the seconds of one, are not measured yet")
    clock = found["clock"]
    speedups = []
    for place, one in enumerate(clock["numbers"]["rounds"]):
        if one["system"] != "pairwise" or figure not in one["figures"] or (wanted and one["clients"] not in wanted):
            continue
        rounds = _rounds_ratio(found[name], one["clients"])
        if rounds is None:
            continue
        base = split(clock, place - 1)  # SecAgg stands before it.
        mine = split(clock, place)
        speedups.append(
            (one["clients"], rounds * base.total / mine.total, (base.total - base.server) / (mine.total - mine.server))
        )
    if not speedups:
        return missing(where, what, paper, "clock", "no training with these N reached the target")
    text = "; ".join(
        f"N={clients}: {ratio:.2f}× (equal rounds and no server's work: {users:.2f}×)"
        for clients, ratio, users in speedups
    )
    low, high = (
        pick(min(ratio, users) if pick is min else max(ratio, users) for _, ratio, users in speedups)
        for pick in (min, max)
    )
    verdict = REPRODUCED if (1 - NEAR) * low <= claimed <= (1 + NEAR) * high else NOT_REPRODUCED
    return Claim(where, what, paper, text, f"{verdict} (other machines: the ratio depends on theirs)", "clock")


def _rounds_ratio(result: Mapping[str, Any], clients: int) -> float | None:
    """Return SecAgg's rounds to the target over the published pattern's, the median of the seeds."""
    ratios = [
        base["reached_target_at"] / run["reached_target_at"]
        for one in published(result)
        if one.clients == clients
        for run, base in one.pairs
    ]
    return median(ratios) if ratios else None


def drops(found: Results) -> list[tuple[int, Spread | None]]:
    """Return how far non-IID training is behind IID after the same rounds and bytes, when it reaches its target."""
    iid = {(run["clients"], run["seed"]): run for one in published(found["fig5"]) for run in one.runs}
    rows = []
    for one in published(found["fig6"]):
        behind = []
        for run in one.runs:
            other, reached = iid.get((run["clients"], run["seed"])), run["reached_target_at"]
            if other and reached and (other["dim"], other["lr"]) == (run["dim"], run["lr"]):
                there = other["accuracy"][min(reached, len(other["accuracy"])) - 1]
                behind.append(100 * (there - run["accuracy"][reached - 1]))
        rows.append((one.clients, Spread.of(behind)))
    return rows


def _non_iid(found: Results) -> Claim:
    where, what = "Figure 6, text", "Accuracy lost by non-IID data after comparable upload"
    if not {"fig5", "fig6"} <= set(found):
        return missing(where, what, "3 %", "fig6")
    rows = drops(found)
    medians = [spread.median for _, spread in rows if spread]
    if not medians:
        return missing(where, what, "3 %", "fig6", "no cohort has both runs yet")
    return Claim(where, what, "3 %", per_cohort(rows, 1, " points"), judged(max(medians) <= 3.5), "fig5, fig6")
