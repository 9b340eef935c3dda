"""Draw the theorems, and say which hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.experiment import Row
from experiments.common.plotting import COLOURS, MARKERS, panels, pyplot, save

_COLOURS = {"full": COLOURS["secagg"], "pairwise": COLOURS["pairwise"]}
_MARKERS = {"full": MARKERS["secagg"], "pairwise": MARKERS["pairwise"]}
_LINES = ("-", "--", ":", "-.")


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw Theorem 1's bounds, Theorem 3's growth, and Theorem 4's bound with Lemma 2's."""
    numbers = result["numbers"]
    costs, (compression, growth) = panels(2, "Theorems 1 and 3: what was counted, and what bounds it", 5.4, 4.4)
    _draw_compression(compression, numbers["oversize"])
    _draw_growth(growth, numbers["growth"])
    training, (loss, deviation) = panels(2, "Theorem 4 and Lemma 2: logistic regression on the digits", 5.4, 4.4)
    _draw_bounds(loss, numbers["convergence"], "loss", "bound", "Theorem 4: F(w) − F*")
    _draw_bounds(deviation, numbers["convergence"], "deviation", "deviation_bound", "Lemma 2: ‖w̄ − v̄‖² of one round")
    return save(costs, folder, result["name"]) + save(training, folder, f"{result['name']}_convergence")


def _draw_compression(axes: Any, points: Sequence[Mapping[str, Any]]) -> None:
    dims = sorted({point["dim"] for point in points})
    for place, dim in enumerate(dims):
        here = [point for point in points if point["dim"] == dim]
        colour = pyplot().get_cmap("Reds")(0.45 + 0.5 * place / max(1, len(dims) - 1))
        epsilons = [point["epsilon"] for point in here]
        seen = [point for point in here if point["exceeded"]]
        axes.plot(
            [point["epsilon"] for point in seen],
            [point["exceeded"] / point["draws"] for point in seen],
            "o",
            color=colour,
            markersize=4,
            label=f"measured, d = {dim:,}",
        )
        axes.plot(epsilons, [point["kl"] for point in here], "-", color=colour, linewidth=1)
        axes.plot(epsilons, [point["hoeffding"] for point in here], ":", color=colour, linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(5e-5, 2)
    axes.set_xlabel("ε")
    axes.set_ylabel("P[a user sends more than (p + ε)d values]")
    axes.set_title("Theorem 1\nsolid: e^(−D(p+ε‖p)d), dotted: e^(−2ε²d)", fontsize=10)
    axes.legend(fontsize=8, loc="lower left")


def _draw_growth(axes: Any, points: Sequence[Mapping[str, Any]]) -> None:
    """Draw along the direction in which both N and d double."""
    first = points[0]
    for pattern, colour in _COLOURS.items():
        here = [
            point
            for point in points
            if point["pattern"] == pattern and point["clients"] * first["dim"] == point["dim"] * first["clients"]
        ]
        here.sort(key=lambda point: point["clients"])
        cohorts = [point["clients"] for point in here]
        name = "SecAgg" if pattern == "full" else pattern
        for who, line in (("server", "-"), ("user", "--")):
            axes.plot(
                cohorts,
                [point[f"{who}_work"] for point in here],
                line,
                marker=_MARKERS[pattern],
                markersize=4,
                color=colour,
                label=f"{name}, {who}",
            )
    smallest = ("pairwise", first["clients"], first["dim"])
    base = next(point for point in points if (point["pattern"], point["clients"], point["dim"]) == smallest)
    scale = [count / first["clients"] for count in cohorts]
    axes.plot(cohorts, [base["server_work"] * one**3 for one in scale], color=COLOURS["theory"], linewidth=0.7)
    axes.plot(cohorts, [base["user_work"] * one for one in scale], ":", color=COLOURS["theory"], linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xticks(cohorts, [f"{count}\n{point['dim']:,}" for count, point in zip(cohorts, here, strict=True)])
    axes.set_xlabel("N, and d below it")
    axes.set_ylabel("bytes of key stream")
    axes.set_title("Theorem 3\nthin: dN² (server), dotted: N + d (user)", fontsize=10)
    axes.legend(fontsize=7.5, loc="upper left", ncols=3, columnspacing=1.0)
    low, high = axes.get_ylim()
    axes.set_ylim(low, 15 * high)


def _draw_bounds(axes: Any, runs: Sequence[Mapping[str, Any]], values: str, bounds: str, title: str) -> None:
    steps = sorted({run["local_steps"] for run in runs})
    for run in runs:
        colour, line = _COLOURS["pairwise"], _LINES[steps.index(run["local_steps"])]
        name = f"E = {run['local_steps']}"
        axes.plot(range(len(run[values])), run[values], line, color=colour, label=name)
        axes.plot(range(len(run[bounds])), run[bounds], line, color=colour, linewidth=0.9, alpha=0.55)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(low, 60 * high)
    axes.set_xlabel("round")
    axes.set_title(f"{title}\nstrong: measured, pale: bound", fontsize=10)
    axes.legend(fontsize=7.5, loc="upper right", ncols=2)


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return one line per statement of the paper, and every check that fails."""
    checks = defaultdict(list)
    for one in result["numbers"]["checks"]:
        checks[one["source"]].append(one)
    rows = []
    for source, found in checks.items():
        failed = [one for one in found if not one["holds"]]
        rates = {one["error_rate"] for one in found}
        rate = f"error rate {max(rates):g} each" if max(rates) else "counted, nothing left to chance"
        nearest = failed[0] if failed else found[0]
        against = nearest.get("bound", nearest.get("expected"))
        rows.append(
            Row(
                source,
                "holds",
                f"holds in all {len(found)} checks" if not failed else f"{len(failed)} of {len(found)} checks fail",
                f"{rate}; for example {nearest['what']}: {_number(nearest['measured'])} against {_number(against)}",
            )
        )
    rows += _read_as_privacy(result["numbers"]["anonymity"])
    rows.append(Row("Theorem 3, about SecAgg", "O(N + d) per user", "O(Nd)", result["numbers"]["remark"]))
    rows += _unmentioned(result["numbers"])
    rows += [_constants(run) for run in result["numbers"]["convergence"]]
    return rows


def _read_as_privacy(points: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The other half of Theorem 2: its mean holds, "at least T" and what it is read as do not."""
    largest = max(points, key=lambda one: one["clients"])
    return [
        Row(
            "Theorem 2: at least T honest users, with probability → 1",
            "at least T",
            f"{largest['below']:.0%} of the coordinates have fewer",
            f"N = {largest['clients']}; T is the mean",
        ),
        Row(
            "Theorem 2, read as privacy: every value hides among T honest users",
            "T users",
            f"refuted: {largest['revealed_fraction']:.0%} of the values are read in the clear",
            f"N = {largest['clients']}, where {largest['measured']:.1f} honest users per coordinate are counted; masks "
            "tie together only the users joined by an edge. Its proof applies Hoeffding's bound to selections that "
            "share b_ij, which are not independent",
        ),
    ]


def _unmentioned(numbers: Mapping[str, Any]) -> list[Row]:
    """Theorem 3's factor of two, and the work that it does not count."""
    found = numbers["unmentioned"]
    return [
        Row(
            "Theorem 3's factor: work of the published pattern beside SecAgg's",
            "2×",
            f"user {found['user_factor']:.2g}×, server {found['server_factor']:.2g}×",
            f"key stream, N = {found['clients']}, d = {found['dim']:,}. Two streams of d words per pair, as in "
            "the paper, are 2×; gaps between ones, and masks only where they are used, take far less",
        ),
        Row(
            "Theorem 3, with keys and shares: exponents of a user's work as N grows",
            "at most 1",
            f"key agreements {found['agreements_exponent']:.2f}, sharing {found['sharing_exponent']:.2f}",
            "sharing among N users with a threshold of N/2 takes O(N²) multiplications, as Bonawitz et al. state",
        ),
    ]


def _constants(run: Mapping[str, Any]) -> Row:
    constants = run["constants"]
    return Row(
        f"Theorem 4, E = {run['local_steps']}: loss and bound after {len(run['loss']) - 1} rounds",
        "loss below the bound",
        f"{run['loss'][-1]:.3g} below {run['bound'][-1]:.3g}",
        f"L = {constants['L']:.3g}, μ = {constants['mu']:g}, G² = {constants['G_squared']:.3g}, "
        f"largest σ² = {constants['sigma_squared_largest']:.3g}, Γ = {constants['Gamma']:.2g}, "
        f"‖w⁰ − w*‖² = {constants['initial_distance_squared']:.3g}, p′ = {constants['p_prime']:.3g}, "
        f"d = {constants['dim']}",
    )


def _number(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(_number(one) for one in value)
    return f"{value:.4g}"
