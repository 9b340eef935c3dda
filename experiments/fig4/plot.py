"""Draw Figure 4 and compare it with the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.experiment import Row
from experiments.common.plotting import COLOURS, panels, pyplot, save
from experiments.fig4.config import PAPER


def plot(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw T, the paper's count, and what the audit finds."""
    numbers, config = result["numbers"], result["configuration"]
    clients = max(config["cohorts"])
    figure, (users, counted, audited) = panels(
        3, f"a third of the users adversarial; N = {clients} on the left, θ = {config['dropout']:g} elsewhere", 4.6, 4.2
    )
    _draw_contributors(users, numbers["contributors"], config)
    _draw_counted(counted, numbers["revealed"], config)
    _draw_audited(audited, numbers["revealed"], numbers["audits"], config)
    return save(figure, folder, result["name"])


def _shade(place: int, count: int) -> Any:
    """Return a colour, darker for later places."""
    return pyplot().get_cmap("Reds")(0.4 + 0.55 * place / max(1, count - 1))


def _draw_contributors(axes: Any, points: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> None:
    dropouts = config["dropouts"]
    for place, dropout in enumerate(dropouts):
        here = [one for one in points if one["dropout"] == dropout]
        alphas, colour = [one["alpha"] for one in here], _shade(len(dropouts) - 1 - place, len(dropouts))
        axes.plot(alphas, [one["theorem_2"] for one in here], "-", color=colour, linewidth=1)
        axes.errorbar(
            alphas,
            [one["measured"] for one in here],
            [3 * one["standard_error"] for one in here],
            fmt="o",
            color=colour,
            markersize=4,
            label=f"θ = {dropout:g}",
        )
    axes.set_title("T: honest users per coordinate\nlines: Theorem 2; bars: 3 standard errors", fontsize=10)
    axes.set_xlabel("α")
    axes.set_ylabel("T")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, loc="upper left")


def _draw_counted(axes: Any, points: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> None:
    cohorts = config["cohorts"]
    for place, clients in enumerate(cohorts):
        here = [one for one in points if one["clients"] == clients]
        alphas, colour = [one["alpha"] for one in here], _shade(place, len(cohorts))
        found = [one["singled_out"] for one in here]
        axes.plot(alphas, _percent(found, "theory"), "-", color=colour, linewidth=1)
        axes.plot(alphas, _percent(found, "mean"), "o", color=colour, markersize=4, label=f"N = {clients}")
        axes.fill_between(alphas, _percent(found, "min"), _percent(found, "max"), color=colour, alpha=0.12, linewidth=0)
    axes.plot(
        PAPER["alpha"],
        100 * PAPER["singled_out"],
        "x",
        color=COLOURS["theory"],
        markersize=9,
        label="the paper's 0.07 %, N = 100",
        zorder=5,
    )
    axes.set_title("singled out, as the paper counts it\nlines: exact; shaded: single rounds", fontsize=10)
    _percent_axis(axes, 1e-5, 100, loc="lower left")


def _draw_audited(
    axes: Any, points: Sequence[Mapping[str, Any]], audits: Sequence[Mapping[str, Any]], config: Mapping[str, Any]
) -> None:
    cohorts = config["cohorts"]
    for place, clients in enumerate(cohorts):
        here = [one for one in points if one["clients"] == clients]
        colour, alphas = _shade(place, len(cohorts)), [one["alpha"] for one in here]
        sampled = [one["revealed"] for one in here]
        axes.plot(alphas, _percent(sampled, "theory"), color=colour, label=f"pairwise, N = {clients}")
        axes.plot(alphas, _percent(sampled, "mean"), ".", color=colour, markersize=4)
        attacked = [one for one in audits if (one["pattern"], one["clients"]) == ("pairwise", clients)]
        axes.plot(
            [one["alpha"] for one in attacked],
            _percent([one["revealed"] for one in attacked], "mean"),
            "o",
            color=colour,
            markersize=7,
            markerfacecolor="none",
        )
    read = sum(one["read"] for one in audits if one["pattern"] == "sliced")
    axes.plot([], [], "D", color=COLOURS["sliced"], label=f"sliced: {read} values read in attacked rounds")
    axes.set_ylim(0, 100)
    axes.set_xlabel("α")
    axes.set_ylabel("% of honest survivors' values")
    axes.set_title("truly revealed: large marks are attacked rounds\nlines: exact; dots: sampled patterns", fontsize=10)
    axes.legend(fontsize=7.5, loc="upper center")


def _percent(found: Sequence[Mapping[str, float]], name: str) -> list[float]:
    """Return percentages; what is 0 has no place on a logarithmic axis and goes below it."""
    return [max(1e-9, 100 * one[name]) for one in found]


def _percent_axis(axes: Any, least: float, most: float, **legend: Any) -> None:
    axes.set_yscale("log")
    axes.set_ylim(least, most)
    ticks = [tick for tick in (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 100) if least <= tick <= most]
    axes.set_yticks(ticks, [f"{tick:g}" if tick > 1e-4 else f"{tick:.0e}".replace("e-0", "e−") for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("α")
    axes.set_ylabel("% of honest survivors' values")
    axes.legend(fontsize=7.5, **legend)


def compare(result: Mapping[str, Any]) -> Sequence[Row]:
    """Return Theorem 2's test, the paper's 0.07 %, and what is revealed at the same settings."""
    numbers, config = result["numbers"], result["configuration"]
    test = numbers["test"]
    rows = [
        Row(
            "T agrees with Theorem 2 within sampling error",
            "linear in α",
            "yes" if test["holds"] else "no",
            f"{test['points']} points, largest |z| {test['largest_z']:.2f}, limit {test['limit']:.2f} at an error rate "
            f"of {test['error_rate']:g} for all together; root mean square z {test['root_mean_square_z']:.2f}",
        ),
        _slope(numbers["contributors"], config["dropout"]),
    ]
    for clients in config["cohorts"]:
        for alpha in config["alphas"]:
            named = (clients, alpha) == (PAPER["clients"], PAPER["alpha"])
            if named or (clients == max(config["cohorts"]) and alpha == 0.1):
                rows += _revealed_rows(numbers, clients, alpha, f"{100 * PAPER['singled_out']:.2f} %" if named else "–")
    return rows


def _slope(points: Sequence[Mapping[str, Any]], dropout: float) -> Row:
    """How far from a straight line T is: it is (1 − e^−α), whose slope falls as α grows."""
    here = [one for one in points if one["dropout"] == dropout]
    first, last = here[0], here[-1]
    slopes = [one["measured"] / one["alpha"] for one in (first, last)]
    return Row(
        f"T/α at α = {first['alpha']:g} and {last['alpha']:g}, θ = {dropout:g}",
        "linear",
        f"{slopes[0]:.1f} and {slopes[1]:.1f}",
        "T = (1 − e^−α)(1−θ)(1−γ)N bends: linear for small α only, as Theorem 2 says",
    )


def _revealed_rows(numbers: Mapping[str, Any], clients: int, alpha: float, paper: str) -> list[Row]:
    (sampled,) = [one for one in numbers["revealed"] if (one["clients"], one["alpha"]) == (clients, alpha)]
    counted, read = sampled["singled_out"], sampled["revealed"]
    where = f"N={clients}, α={alpha:g}"
    rows = [
        Row(f"pairwise, {where}: singled out, as the paper counts", paper, _share(counted["mean"]), _extremes(counted)),
        Row(f"pairwise, {where}: truly revealed", "–", _share(read["mean"]), _extremes(read)),
    ]
    for one in numbers["audits"]:
        if (one["clients"], one["alpha"]) == (clients, alpha):
            right = f"{one['read_correctly']:,} of {one['read']:,} values read correctly"
            rows.append(Row(f"{one['pattern']}, {where}: attacked rounds", "–", _share(one["revealed"]["mean"]), right))
    return rows


def _extremes(found: Mapping[str, float]) -> str:
    return f"rounds from {_share(found['min'])} to {_share(found['max'])}; theory {_share(found['theory'])}"


def _share(fraction: float) -> str:
    return f"{100 * fraction:.2g} %"
