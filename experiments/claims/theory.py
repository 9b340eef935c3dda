"""Claims about theory and privacy: the theorems, and Figures 4 and 5c."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from experiments.claims.claim import CANNOT_TELL, DIRECTION, EXACT, NO, Claim, Results, compared, holds, missing
from experiments.fig4.config import PAPER as SINGLED_OUT
from experiments.theory.formulas import anonymity_limit
from sparsesecagg.lab.audit.theory import pairwise_revealed_fraction

Points = Sequence[Mapping[str, Any]]
READ = 0.2
"""A privacy claim is refuted if more than this part of the values is read in the clear."""


def claims(found: Results) -> list[Claim]:
    """Return all of them, in the paper's order."""
    return [*_theorems(found), *_figures(found)]


def _theorems(found: Results) -> list[Claim]:
    if "theory" not in found:
        return [missing("Theorems 1–4, Lemmas 1, 2", "all statements", "hold", "–", "theory")]
    numbers, config = found["theory"]["numbers"], found["theory"]["configuration"]
    checks: dict[str, list[Any]] = {}
    for one in numbers["checks"]:
        checks.setdefault(one["source"], []).append(one)
    crowd, growth, lemmas, runs = (config[name] for name in ("anonymity", "growth", "lemmas", "in_a_run"))
    sent, sizes = config["compression"], f"N = {crowd['cohorts'][0]} to {crowd['cohorts'][-1]}"
    setting = f"{sizes}, α = {crowd['alpha']:g}, θ = {crowd['dropout']:g}, γ = 1/3, d = {crowd['dim']:,}"
    points, more = numbers["anonymity"], numbers["unmentioned"]
    shares = sorted(one["revealed_fraction"] for one in points)
    below = [one["below"] for one in points]
    mean_share = numbers["oversize"][-1]["mean_share"]
    fits = {(one["pattern"], one["along"]): one for one in numbers["exponents"]}
    in_runs, given = (
        ", ".join(_with_error(one[name]) for one in numbers["in_a_run"]) for name in ("means", "given_survivors")
    )
    lengths = f"d = {growth['dim']:,} to {growth['dim'] << growth['doublings']:,}"
    grown = (
        f"N = {growth['clients']} to {growth['clients'] << growth['doublings']}, {lengths}, α = {growth['alpha']:g}, "
        f"θ = {growth['dropout']:g}, counted in key-stream bytes"
    )
    bounds = [(run["bound"][0], run["bound"][-1]) for run in numbers["convergence"]]
    most = max(
        loss / bound for run in numbers["convergence"] for loss, bound in zip(run["loss"], run["bound"], strict=True)
    )
    least, largest_read = (pairwise_revealed_fraction(one, 100, 0.3, 1 / 3) for one in (1.0, 1e-3))
    return [
        Claim(
            "Theorem 1",
            "a user sends at most αd values",
            f"≤ {sent['alpha']:g}d",
            f"{mean_share:.4f}d on average (p < α); {_all(checks['Theorem 1'])}",
            "d → ∞",
            f"N = {sent['clients']}, d = {', '.join(f'{dim:,}' for dim in sent['dims'])}",
            holds(_hold(checks["Theorem 1"])),
        ),
        Claim(
            "Theorem 2",
            "T = (1 − e^−α)(1−θ)(1−γ)N honest users per coordinate, as a mean",
            f"{anonymity_limit(crowd['alpha'], 100, crowd['dropout'], 1 / 3):.2f} at N = 100",
            f"{next(one['measured'] for one in points if one['clients'] == 100):.2f}; {_all(checks['Theorem 2'])}"
            if any(one["clients"] == 100 for one in points)
            else _all(checks["Theorem 2"]),
            "N → ∞",
            setting,
            holds(_hold(checks["Theorem 2"])),
        ),
        Claim(
            "Theorem 2",
            "at least T, with probability → 1",
            "→ 0 below T",
            f"{100 * min(below):.0f} to {100 * max(below):.0f} % of the coordinates have fewer than T",
            "N → ∞",
            setting,
            holds(max(below) < 0.05),
        ),
        Claim(
            "Theorem 2, Section 4",
            "adversaries “can only learn the sum of local updates from T users”",
            "T users",
            f"{100 * shares[0]:.0f} to {100 * shares[-1]:.0f} % of the values are read in the clear",
            "γ < 1/2, θ < 1/2",
            setting,
            NO if shares[0] > READ else EXACT,
        ),
        Claim(
            "Corollary (trade-off)",
            "a larger α gives more privacy",
            "T rises",
            f"T rises; the part that is read falls only from {100 * largest_read:.0f} % (α → 0) to "
            f"{100 * least:.0f} % (α = 1), computed",
            "large N",
            "N = 100, θ = 0.3, γ = 1/3",
            DIRECTION,
        ),
        Claim(
            "Theorem 3",
            "server's work O(dN²)",
            "exponent ≤ 3 as N and d double",
            f"{fits['pairwise', 'N and d']['server_work']:.2f} with gaps drawn in place of bits; SecAgg "
            f"{fits['full', 'N and d']['server_work']:.2f}, and the paper's construction draws twice its words",
            "–",
            grown,
            holds(max(fits[one, "N and d"]["server_work"] for one in ("pairwise", "full")) <= 3.1),
        ),
        Claim(
            "Theorem 3",
            "a user's work O(N + d)",
            "exponent ≤ 1 as N and d double",
            f"masks {fits['pairwise', 'N and d']['user_work']:.2f} (gaps; the paper's d words per pair: 2), shares "
            f"in N {more['sharing_exponent']:.2f}, SecAgg {fits['full', 'N and d']['user_work']:.2f}",
            "“the same as” SecAgg",
            grown,
            holds(max(more["sharing_exponent"], fits["full", "N and d"]["user_work"]) <= 1.1),
        ),
        Claim(
            "Theorem 3, proof",
            "sparsification costs a factor of 2",
            "2×",
            f"2× by its construction (two streams of d words per pair); {more['user_factor']:.2g}× with gaps",
            "–",
            "a judgement, by counting words",
            EXACT,
        ),
        Claim(
            "Corollary (dropouts)",
            "rounds succeed for θ < 1/2",
            "N/2 − 1 dropouts",
            _all(checks["Corollary (dropouts)"]),
            "N → ∞",
            f"N = {', '.join(map(str, config['dropouts']['cohorts']))}, each stage",
            holds(_hold(checks["Corollary (dropouts)"])),
        ),
        Claim(
            "Lemma 1",
            "the aggregate is unbiased",
            "1",
            f"{in_runs} over the rounds of a run (keys arrive, keys missing, unequal β; ± a standard error); given how "
            f"many survived {given}; {_all(checks['Lemma 1'])}",
            "β_i, θ, any N",
            f"N = {runs['clients']}, α = {runs['alpha']:g}, θ = {runs['dropout']:g}, rounds {runs['first']} to "
            f"{runs['rounds']}; single rounds with N = {lemmas['clients']}",
            holds(_hold(checks["Lemma 1"])),
        ),
        Claim(
            "Lemma 2",
            "its variance is bounded",
            "holds",
            _all(checks["Lemma 2"]),
            "–",
            f"N = {lemmas['clients']}, α = {lemmas['alpha']:g}, θ = {lemmas['dropout']:g}",
            holds(_hold(checks["Lemma 2"])),
        ),
        Claim(
            "Theorem 4",
            "training converges at the rate of the bound",
            "O(1/J)",
            f"loss is at most {100 * most:.2g} % of the bound, so it can't fail; the bound falls from "
            f"{' and '.join(f'{first:,.4g} to {last:,.4g}' for first, last in bounds)} here, and in the end grows with "
            "J (errata)",
            "strongly convex",
            f"logistic regression, digits, {config['convergence']['rounds']} rounds, E = "
            f"{' and '.join(map(str, config['convergence']['local_steps']))}",
            CANNOT_TELL,
        ),
    ]


def _with_error(rounds: Sequence[float]) -> str:
    """Return the mean, and its standard error."""
    return f"{fmean(rounds):.3f} ± {stdev(rounds) / sqrt(len(rounds)):.3f}"


def _hold(checks: Points) -> bool:
    return all(one["holds"] for one in checks)


def _all(checks: Points) -> str:
    failed = sum(not one["holds"] for one in checks)
    return f"{failed} of {len(checks)} checks fail" if failed else f"all {len(checks)} checks hold"


def _figures(found: Results) -> list[Claim]:
    if "fig4" not in found:
        return [missing("Figures 4, 5c", "honest users and revealed values", "–", "A = N/3", "fig4")]
    numbers, config = found["fig4"]["numbers"], found["fig4"]["configuration"]
    points, test = numbers["revealed"], numbers["test"]
    wanted = (SINGLED_OUT["clients"], SINGLED_OUT["alpha"])
    named = next((one for one in points if (one["clients"], one["alpha"]) == wanted), points[-1])
    counted = named["singled_out"]
    audited = [one for one in numbers["audits"] if one["pattern"] == "pairwise"]
    read = [one["revealed"]["mean"] for one in points]
    at = sorted((one for one in points if one["alpha"] == 0.1), key=lambda one: int(one["clients"]))
    slopes = {one["alpha"]: one["measured"] / one["alpha"] for one in numbers["contributors"] if one["dropout"] == 0.3}
    (least, steepest), (most, flattest) = min(slopes.items()), max(slopes.items())
    rounds = f"{config['rounds']} rounds of {config['dim']:,} coordinates"
    return [
        Claim(
            "Figure 4a",
            "T grows linearly with α, at every θ",
            "linear",
            f"T/α falls from {steepest:.1f} (α = {least:g}) to {flattest:.1f} (α = {most:g}); Theorem 2's 1 − e^−α "
            f"{'is' if test['holds'] else 'is not'} met at all {test['points']} points",
            "N = 100, A = N/3",
            f"{rounds}, θ = 0.3",
            compared(flattest / steepest, 1),
        ),
        Claim(
            "Figure 4b",
            "parameters selected by one honest user only",
            "0.07 %",
            f"{_percent(counted['mean'])}; exactly {_percent(counted['theory'])}",
            "α = 0.2, N = 100, A = N/3",
            f"{rounds}, θ = {config['dropout']:g}",
            compared(counted["mean"], float(SINGLED_OUT["singled_out"])),
        ),
        Claim(
            "Figures 4b, 5c",
            "that share falls with N",
            "falls",
            ", ".join(f"{_percent(one['singled_out']['mean'])} at {one['clients']}" for one in at),
            "α = 0.1",
            f"{rounds}, θ = {config['dropout']:g}",
            holds(_falls(at)),
        ),
        Claim(
            "Section 7",
            "the parameters that may be revealed from a user vanish as N grows",
            "vanish",
            f"{100 * min(read):.0f} to {100 * max(read):.0f} % are read in the clear at every N and α; "
            f"{sum(one['read_correctly'] for one in audited):,} of {sum(one['read'] for one in audited):,} values read "
            "in attacked rounds were right",
            "A = N/3",
            f"N = {config['cohorts'][0]} to {config['cohorts'][-1]}, θ = {config['dropout']:g}",
            NO if min(read) > READ else EXACT,
        ),
    ]


def _falls(points: Points) -> bool:
    shares = [one["singled_out"]["mean"] for one in points]
    return all(later < earlier for earlier, later in pairwise(shares))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
