"""Claims about bytes and counts, about training to a target, and about the wall clock; and the table of hypotheses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from experiments.claims.claim import CANNOT_TELL, DIRECTION, EXACT, NEAR, NO, Claim, Results, compared, holds, missing
from experiments.clock.config import CLAIMS as SPEEDUPS
from experiments.clock.plot import split
from experiments.common.pictures import median_rounds
from experiments.common.summaries import (
    Run,
    Setting,
    Spread,
    one_more,
    paper_total,
    published,
    published_of,
    settings_of,
    times,
)
from experiments.common.training import LEARNING_RATE
from experiments.fig2.config import PAPER as OVERLAPS
from experiments.hypotheses.config import HYPOTHESES, PAPER_UPLOADS, Hypothesis
from experiments.hypotheses.plot import needed_speedup, predicted
from experiments.table1.config import PAPER_MB

MEGABYTE = 1e6
UPLOADS = {
    "fig3": ("Figure 3a", "CIFAR-10, IID, 55 %", 7.8),  # “Up to”, in Section 1.
    "fig5": ("Figure 5a", "MNIST, IID, 97 %", 17.9),
    "mcmahan": ("Figure 5a", "MNIST, IID, 97 %, McMahan's network", 17.9),
    "fig6": ("Figure 6a", "MNIST, 300 shards, 94 %", 12.0),
}
CLOCKS = {"fig3": "Figure 3c", "fig5": "Figure 5b", "fig6": "Figure 6b"}


# Bytes and counts


def of_bytes(found: Results) -> list[Claim]:
    """Return the claims of Table 1 and Figure 2."""
    return [*_table1(found), *_fig2(found)]


def _table1(found: Results) -> list[Claim]:
    stated = "CIFAR-10 model, α = 0.1, θ = 0.3"
    if "table1" not in found:
        return [missing("Table 1", "upload per user and round", "0.66 and 0.08 MB", stated, "table1")]
    result = found["table1"]
    rows, rounds = result["numbers"]["rows"], result["configuration"]["rounds"]
    size = {(row["system"], row["clients"]): row["upload_bytes"]["max"] for row in rows}
    cohorts = sorted({row["clients"] for row in rows if row["clients"] in PAPER_MB["secagg"]})
    condition = f"{result['numbers']['dim']:,} parameters, {rounds} rounds, largest of real messages"
    claims = []
    for system, what in (
        ("secagg", "SecAgg's upload per user and round"),
        ("bitmap", "SparseSecAgg's, 32-bit values and a bitmap"),
    ):
        printed = [PAPER_MB[system][clients] for clients in cohorts]
        ours = [size[system, clients] / MEGABYTE for clients in cohorts]
        worst = max((abs(one / other - 1), one / other) for one, other in zip(ours, printed, strict=True))[1]
        claims.append(
            Claim(
                "Table 1",
                what,
                ", ".join(f"{one:g}" for one in printed) + " MB",
                ", ".join(f"{one:.4f}" for one in ours) + " MB",
                f"N = {', '.join(map(str, cohorts))}, {stated}",
                condition,
                compared(worst, 1.0),
            )
        )
    ratios = [size["secagg", clients] / size["bitmap", clients] for clients in cohorts]
    worst_ratio = min(ratios)
    claims.append(
        Claim(
            "Section 7",
            "upload per round, less than SecAgg's",
            "around 8.2×",
            f"{worst_ratio:.2f}×",
            stated,
            condition,
            compared(worst_ratio, 8.2),
        )
    )
    return claims


def _fig2(found: Results) -> list[Claim]:
    stated = "MNIST, N = 30, K = d/10"
    if "fig2" not in found:
        return [missing("Figure 2", "locations that two users have in common", "10 to 30 %", stated, "fig2")]
    runs, claims = found["fig2"]["numbers"]["runs"], []
    for kind, name in (("random", "rand-K"), ("top", "top-K")):
        printed, texts, verdicts = [], [], []
        for partition, data in (("iid", "IID"), ("shards", "non-IID")):
            claimed = OVERLAPS[partition][kind]
            printed.append(f"{data} {' → '.join(f'{one:g}' for one in dict.fromkeys(claimed))} %")
            for run in (one for one in runs if (one["partition"], one["kind"]) == (partition, kind)):
                first, last = (100 * run["rounds"][at]["overlap"]["mean"] for at in (0, -1))
                many = len(run["rounds"]) > 1
                later = f" → {last:.0f} % in round {run['rounds'][-1]['round']}" if many else " % in round 1"
                texts.append(f"{data} {first:.0f}{later} ({run['model']})")
                if many:
                    verdicts += [compared(ours, there) for ours, there in zip((first, last), claimed, strict=True)]
        mine = [one for one in runs if one["kind"] == kind]
        tried = dict.fromkeys((one["model"], one["dim"], one["samples"], one["users"]) for one in mine)
        condition = "; ".join(
            f"{model}: {dim:,} parameters, {samples:,} of 60,000 images, {users} users"
            for model, dim, samples, users in tried
        )
        claims.append(
            Claim(
                "Figure 2",
                f"{name}: locations that two users have in common",
                ", ".join(printed),
                ", ".join(texts),
                stated,
                condition + ("; of the whole update after 5 epochs" if kind == "top" else ""),
                max(verdicts, key=(EXACT, NEAR, DIRECTION, NO).index),
            )
        )
    return claims


# Training


def of_training(found: Results) -> list[Claim]:
    """Return the claims about uploads and rounds until a target."""
    claims = [_upload(found, name) for name in UPLOADS]
    claims.insert(1, _few_rounds(found))
    return [*claims, _non_iid(found), _larger_alpha(found)]


def conditions(result: Mapping[str, Any], settings: Sequence[Setting]) -> str:
    """Return what the runs of a figure were trained with."""
    runs = [run for one in settings for run in one.runs]
    rates = ", ".join(f"{rate:g}" for rate in sorted({run["lr"] for run in runs}))
    missing_uploads = sum(run["effective_dropout"] for run in runs) / len(runs)
    state = "" if result["complete"] else ", not complete"
    seeds = max(len(one.runs) for one in settings)
    many = "one seed" if seeds == 1 else f"up to {seeds} seeds"
    return f"d = {runs[0]['dim']:,}, lr {rates}, θ = {missing_uploads:.2f}, {many}{state}"


def _upload(found: Results, name: str) -> Claim:
    where, data, claimed = UPLOADS[name]
    what, stated = "total upload until the target, less than SecAgg's (paper's format)", f"{data}, α = 0.1, lr 0.01"
    if name not in found or not any(one.pairs for one in published(found[name])):
        return missing(where, what, f"{claimed:g}×", stated, name)
    settings = published(found[name])
    several = len({one.runs[0]["lr"] for one in settings}) > 1
    ratios = [
        (
            f"N={one.clients}" + f", lr {one.runs[0]['lr']:g}" * several + _unusual(one, found[name]),
            one.upload_ratio(in_the_papers_format=True),
        )
        for one in settings
    ]
    text = "; ".join(f"{who}: {spread.text(1, '×')}" for who, spread in ratios if spread)
    up_to = name == "fig3"
    verdict = compared((max if up_to else median)([spread.median for _, spread in ratios if spread]), claimed)
    if others := [str(one.clients) for one in settings if _unusual(one, found[name])]:
        verdict = f"{CANNOT_TELL}: another target with N = {', '.join(others)}"
    return Claim(
        where,
        what,
        f"{'up to ' if up_to else ''}{claimed:g}×",
        text,
        stated,
        conditions(found[name], settings),
        _so_far(found[name], verdict),
    )


def _unusual(one: Setting, result: Mapping[str, Any]) -> str:
    """Return a setting's target in words, where it is not the figure's."""
    usual = result["configuration"]["training"]["target"]
    return "" if one.target(usual) == usual else f", until {100 * one.target(usual):g} %"


def _so_far(result: Mapping[str, Any], verdict: str) -> str:
    """Return a verdict on runs that are all there: some seeds of some N say nothing yet."""
    return verdict if result["complete"] else f"{CANNOT_TELL}: not complete"


def _few_rounds(found: Results) -> Claim:
    where, what = "Figure 3b", "SecAgg needs “only a few iterations” less, of many"
    paper = "7.8/7.9: 1 to 2 % fewer"
    if "fig3" not in found or not any(one.pairs for one in published(found["fig3"])):
        return missing(where, what, paper, "CIFAR-10, IID", "fig3")
    settings = published(found["fig3"])
    more = [
        (
            f"N={one.clients}{_unusual(one, found['fig3'])}",
            median(run["reached_target_at"] / base["reached_target_at"] - 1 for run, base in one.pairs),
        )
        for one in settings
        if one.pairs
    ]
    text = "; ".join(f"{who}: {100 * share:+.0f} %" for who, share in more)
    crossed = median_rounds(settings, found["fig3"]["configuration"]["training"]["target"])
    rounds = ", ".join(f"{spread.median:.0f}" for _, spread in crossed if spread)
    near = max(abs(share) for _, share in more) <= 0.1
    verdict = _so_far(found["fig3"], NEAR if near else NO)
    ours, condition = f"{text} (of {rounds} rounds)", conditions(found["fig3"], settings)
    return Claim(where, what, paper, ours, "CIFAR-10, IID", condition, verdict)


def _non_iid(found: Results) -> Claim:
    where, what, paper = "Figure 6, text", "accuracy lost by non-IID data after as many rounds", "3 points"
    stated = "MNIST, lr 0.01"
    if not {"fig5", "fig6"} <= set(found):
        return missing(where, what, paper, stated, "fig5, fig6")
    behind = drops(found)
    if not behind:
        return missing(where, what, paper, stated, "fig5, fig6")
    text = "; ".join(f"N={clients}: {spread.text(1)}" for clients, spread in behind)
    middle = median(spread.median for _, spread in behind)
    return Claim(
        where, what, paper, text, stated, conditions(found["fig6"], published(found["fig6"])), compared(middle, 3.0)
    )


def _larger_alpha(found: Results) -> Claim:
    where, what, paper = "Theorem 4, remark", "a larger p speeds up convergence", "faster"
    of_alpha = {"H3": 0.025, "H3b": 0.05, "as stated": 0.1}
    table = found["hypotheses"]["numbers"]["table"] if "hypotheses" in found else ()
    rows = [one for one in table if one["figure"] == "fig5" and one["hypothesis"] in of_alpha and all(one["rounds"])]
    if not rows:
        return missing(where, what, paper, "–", "hypotheses")
    clients = max(one["clients"] for one in rows)
    rows = [one for one in rows if one["clients"] == clients]
    rounds = sorted((of_alpha[one["hypothesis"]], one["rounds"][1]) for one in rows)
    rounds.append((1.0, rows[0]["rounds"][0]))
    text = ", ".join(f"{number:g} rounds with α = {alpha:g}" for alpha, number in rounds)
    faster = all(later <= earlier for (_, earlier), (_, later) in pairwise(rounds))
    condition = f"MNIST, IID, 97 %, N = {clients}, small network, one seed (`hypotheses`)"
    return Claim(where, what, paper, text, "strongly convex", condition, holds(faster))


def drops(found: Results) -> list[tuple[int, Spread]]:
    """Return how many points non-IID training is behind IID after the same rounds, when it reaches its target."""
    iid = {(run["clients"], run["seed"]): run for one in published(found["fig5"]) for run in one.runs}
    rows = []
    for one in published(found["fig6"]):
        behind = []
        for run in one.runs:
            other, reached = iid.get((run["clients"], run["seed"])), run["reached_target_at"]
            if other and reached:
                there = other["accuracy"][min(reached, len(other["accuracy"])) - 1]
                behind.append(100 * (there - run["accuracy"][reached - 1]))
        if spread := Spread.of(behind):
            rows.append((one.clients, spread))
    return rows


# The wall clock


def of_the_clock(found: Results) -> list[Claim]:
    """Return the claims about speed: a round's seconds, times the ratio of rounds where it is known.

    Rounds of Figure 5 are McMahan's network's where that was trained, as the seconds are; else the small network's.
    """
    return [_clock(found, name) for name in CLOCKS]


def _clock(found: Results, name: str) -> Claim:
    where, claimed = CLOCKS[name], SPEEDUPS[name]
    what, stated = "wall clock until the target, faster than SecAgg", "EC2 machines, 100 Mbit/s, α = 0.1"
    if name == "fig5":
        stated += ", N = 100"
    if "clock" not in found:
        return missing(where, what, f"{claimed:g}×", stated, "clock")
    clock = found["clock"]
    entries = clock["numbers"]["rounds"]
    speedups: dict[str, list[str]] = {}
    for place, one in enumerate(entries):
        if not one["system"].startswith("pairwise") or name not in one["figures"]:
            continue
        base = next(
            other
            for other, entry in enumerate(entries)
            if (entry["model"], entry["clients"], entry["system"]) == (one["model"], one["clients"], "SecAgg")
        )
        large = _rounds_ratio(found.get("mcmahan"), one["clients"]) if name == "fig5" else None
        rounds = large or _rounds_ratio(found.get(name), one["clients"])
        speedup = (rounds or 1.0) * split(clock, base).total / split(clock, place).total
        kind = "gaps" if one["system"] == "pairwise" else "d words per pair"
        mark = "†" if large else "" if rounds else "*"
        speedups.setdefault(kind, []).append(f"{speedup:.2f}×{mark} at N={one['clients']}")
    texts = [f"{kind}: {', '.join(each)}" for kind, each in speedups.items()]
    for mark, meaning in (("*", "with equal rounds"), ("†", "rounds of McMahan's network too")):
        if mark in "".join(texts):
            texts.append(f"{mark} {meaning}")
    models = {one["model"] for one in entries if name in one["figures"]}
    small = f"seconds of a round with McMahan's network ({', '.join(models)}), rounds with the small one; "
    network = "" if name == "fig3" else small
    return Claim(
        where,
        what,
        f"{claimed:g}×",
        "; ".join(texts) or "–",
        stated,
        f"{network}one machine, computing measured, transfer modelled",
        f"{CANNOT_TELL}: other machines, and another way to draw b_ij",
    )


def _rounds_ratio(result: Mapping[str, Any] | None, clients: int) -> float | None:
    """Return SecAgg's rounds to the target over the published pattern's, the median of the seeds."""
    if result is None or not result["complete"]:
        return None
    ratios = [
        base["reached_target_at"] / run["reached_target_at"]
        for one in published(result)
        if (one.clients, one.runs[0]["lr"]) == (clients, LEARNING_RATE)
        for run, base in one.pairs
    ]
    return median(ratios) if ratios else None


# Ours in the same figures


def ours(found: Results, cohorts: Sequence[int] = (25, 100)) -> list[str]:
    """Return what SecAgg, the published pattern and ours upload until the target, as lines of a table.

    SecAgg and ours in our UPLOAD messages, the published pattern in its own format; paired by seed.
    """
    lines = [
        "| | N | lr | rounds | MB, all users | less than SecAgg | less than published "
        "| with 32-bit words, one seed: less than SecAgg, published | fewest honest users in a sum | seeds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in ("fig5", "fig6", "mcmahan", "fig3"):
        settings = settings_of(found[name]["numbers"]["runs"]) if name in found else []
        for one in settings:
            if one.system == "sliced" and one.runs[0]["modulus_bits"] < 32 and one.clients in cohorts and one.pairs:
                figure = f"{name}{_unusual(one, found[name])}"
                lines.append(_ours_row(figure, one, found[name]["numbers"]["runs"]))
    return lines


def _ours_row(name: str, one: Setting, runs: Sequence[Run]) -> str:
    secagg = [base for _, base in one.pairs]
    mine = [run for run, _ in one.pairs]
    theirs = [other for run in mine if (other := published_of(runs, run)) and other["reached_target_at"]]
    totals = [[run["total_upload_bytes"] for run in secagg], [*map(paper_total, theirs)]]
    totals.append([run["total_upload_bytes"] for run in mine])
    rounds = [[run["reached_target_at"] for run in some] for some in (secagg, theirs, mine)]
    ratio = one.upload_ratio()
    assert ratio is not None
    same_words = [
        other
        for other in settings_of(runs)
        if (other.system, other.runs[0]["modulus_bits"]) == ("sliced", 32)
        and (other.clients, other.runs[0]["lr"]) == (one.clients, mine[0]["lr"])
    ]
    cells = (
        f"{name}, {mine[0]['modulus_bits']} bits",
        str(one.clients),
        f"{mine[0]['lr']:g}",
        _middle(rounds, "{:g}"),
        _middle([[size / MEGABYTE for size in some] for some in totals], "{:.4g}"),
        ratio.text(1, "×"),
        times(ours_against_published(one, runs)),
        ", ".join(
            times(ratio)
            for other in same_words
            for ratio in (other.upload_ratio(), ours_against_published(other, runs))
        )
        or "–",
        " / ".join(str(some[0]["anonymity"]["in_every_sum"]) if some else "–" for some in (secagg, theirs, mine)),
        str(len(mine)),
    )
    return f"| {' | '.join(cells)} |"


def rerun(found: Results, again: Results) -> str:
    """Return what another seed came to, beside the range in which one more is to be expected."""
    texts, within, seeds = [], [], set()
    for name in again:
        usual, first = found[name]["configuration"]["training"]["target"], again[name]["seed"]
        for one in settings_of([run for run in again[name]["numbers"]["runs"] if run["seed"] == first]):
            before = next(
                other
                for other in settings_of(found[name]["numbers"]["runs"])
                if (other.clients, other.label) == (one.clients, one.label)
            )
            (rounds,), expected = (
                one.rounds_until(one.target(usual)),
                one_more(before.rounds_until(before.target(usual))),
            )
            if expected is None:
                continue
            within.append(expected[0] <= rounds <= expected[1])
            seeds.add(first)
            between = f"{max(1.0, expected[0]):.1f} to {expected[1]:.1f}"
            texts.append(f"{name}, N = {one.clients}, {one.label}: {rounds:.1f} ({between})")
    if not texts:
        return "No other seed was run."
    seed = ", ".join(map(str, sorted(seeds)))
    return (
        f"Rounds until the target with another seed ({seed}, in `results/rerun/`; in parentheses where 19 of 20 more "
        f"seeds are to be expected, which is wide after three seeds): {'; '.join(texts)}. "
        f"{sum(within)} of {len(within)} are within."
    )


def ours_against_published(one: Setting, runs: Sequence[Run]) -> Spread | None:
    """Return how many times less ours uploads until the target than the published pattern does in its own format."""
    pairs = ((run, published_of(runs, run)) for run, _ in one.pairs)
    return Spread.of(
        paper_total(other) / run["total_upload_bytes"] for run, other in pairs if other and other["reached_target_at"]
    )


def _middle(columns: Sequence[Sequence[float]], form: str) -> str:
    """Return medians of SecAgg, the published pattern and ours."""
    return " / ".join(form.format(median(some)) if some else "–" for some in columns)


# Hypotheses


def hypotheses(found: Results) -> list[str]:
    """Return the joint table, as lines: what each predicts for the three figures, and the speed-up that it needs.

    Judged with most users; what fewer give stands behind it.
    """
    lines = [
        "| | Figure 3: 7.8× | Figure 5: 17.9× | Figure 6: 12× | needed τ | upload within 10 % |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    result = found.get("hypotheses", {"numbers": {"table": ()}})
    for one in HYPOTHESES:
        cells, speeds, fits = [], [], []
        for figure, claimed in PAPER_UPLOADS.items():
            many, few = (predicted(result, one.name, figure, cohort) for cohort in (max, min))
            speed = needed_speedup(result, one.name, figure)
            tried = _was_tried(found, one, figure)
            cell = f"{many:.1f}×" if many else "target not reached" if tried else f"R × {one.per_round(100):.1f}"
            cells.append(cell + (f" ({few:.1f}×)" if few and few != many else ""))
            speeds.append("–" if speed is None else f"{speed:.2f}")
            fits.append(abs(many / claimed - 1) <= 0.1 if many else False if tried else None)
        verdict = "–" if None in fits else f"{sum(map(bool, fits))} of {len(fits)}"
        lines.append(f"| {one.name}: {one.says} | {' | '.join(cells)} | {', '.join(speeds)} | {verdict} |")
    return lines


def _was_tried(found: Results, one: Hypothesis, figure: str) -> bool:
    runs = found["hypotheses"]["numbers"]["runs"] if "hypotheses" in found else ()
    trained = {(run["figure"], run["rule"]) for run in runs}
    return {(figure, one.base.key), (figure, one.sparse.key)} <= trained
