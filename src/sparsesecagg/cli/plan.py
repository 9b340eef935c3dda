"""`sparsesecagg plan`: settings of a round from what it has to promise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from rich.table import Table

from sparsesecagg.cli.shared import JsonOption, SeedOption, check_picture, out, print_json
from sparsesecagg.errors import MissingExtra
from sparsesecagg.privacy.plan import DEFAULT_FAILURE_LOG2, DEFAULT_LEVELS, Goal, Plan
from sparsesecagg.privacy.planner import UPLOAD_HEADER, plan_each, plan_round

_BLUE: Final = "#1f6fb2"
_RED: Final = "#c0392b"


def plan(
    *,
    clients: Annotated[int, typer.Option(help="Users in the round (N), at least 3.")],
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")],
    dropout: Annotated[float, typer.Option(help="Chance that a user drops out (θ), from 0 to below 0.5.")],
    colluding: Annotated[float, typer.Option(help="Fraction of users that help the server (γ), from 0 to below 0.5.")],
    min_anonymity: Annotated[
        int, typer.Option(help="Honest users that every sum must contain at least (T), from 1 to N.")
    ],
    failure_log2: Annotated[
        float, typer.Option(help="Allowed probability per round that it fails, as a power of two.")
    ] = DEFAULT_FAILURE_LOG2,
    clip: Annotated[float, typer.Option(help="Largest magnitude of an update's coordinate.")] = 1.0,
    levels: Annotated[
        int, typer.Option(help="Quantisation steps from 0 to the clip, at least (to 1 if the clip is above 1).")
    ] = DEFAULT_LEVELS,
    plot: Annotated[
        Path | None, typer.Option(help="Draw bytes against anonymity into this .png, .pdf or .svg.")
    ] = None,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> None:
    """Find the smallest upload that keeps an anonymity, or say why there is none.

    Exact tail probabilities, nothing sampled: --seed changes nothing. "Not feasible" is an answer, with the
    nearest feasible settings, and exits with 0.
    """
    _ = seed  # Every command takes one.
    goal = Goal(
        clients=clients,
        dim=dim,
        dropout=dropout,
        colluding=colluding,
        min_anonymity=min_anonymity,
        failure_log2=failure_log2,
        clip=clip,
        levels=levels,
    )
    if plot is not None:
        check_picture(plot)
    answer = plan_round(goal)
    if plot is not None:
        draw(answer, plot)
    if json:
        print_json(as_json(answer))
        return
    out.print(_settings_table(answer) if answer.feasible else _nearest_table(answer))
    out.print(f"{'Feasible' if answer.feasible else 'Not feasible'}: {answer.reason}.", highlight=False)
    if plot is not None:
        out.print(f"Drawn to {plot}.", highlight=False)


def as_json(answer: Plan) -> dict[str, Any]:
    """Return the command's JSON object."""
    nearest = answer.nearest
    return {
        "feasible": answer.feasible,
        "reason": answer.reason,
        "alpha": answer.alpha,
        "committee_size": answer.committee_size,
        "blocks_per_stripe": answer.blocks_per_stripe,
        "blocks_per_user": answer.blocks_per_user,
        "stripes": answer.stripes,
        "threshold": answer.threshold,
        "neighbours": answer.neighbours,
        "min_survivors": answer.min_survivors,
        "modulus_bits": answer.modulus_bits,
        "quantisation_levels": answer.quantisation_levels,
        "upload_bytes": answer.upload_bytes,
        "share_bytes": answer.share_bytes,
        "compression_vs_secagg": answer.compression_vs_secagg,
        "privacy_failure_log2": answer.privacy_failure_log2,
        "lying_server_failure_log2": answer.lying_server_failure_log2,
        "abort_probability": answer.abort_probability,
        "nearest": nearest
        and {
            "clients": nearest.clients,
            "min_anonymity": nearest.min_anonymity,
            "failure_log2": nearest.failure_log2,
        },
    }


def _settings_table(answer: Plan) -> Table:
    goal = answer.goal
    table = Table(title=f"{goal.clients} users, {goal.dim:,} coordinates", title_justify="left", show_header=False)
    rows: list[tuple[str, str, str]] = [
        ("alpha", f"{answer.alpha:.4g}", f"each user sends {answer.share} of the model"),
        (
            "committee size",
            f"{answer.committee_size}",
            f"{answer.stripes} stripes of {answer.blocks_per_stripe} blocks",
        ),
        ("threshold", f"{answer.threshold}", "shares that open a secret"),
        ("neighbours", f"{answer.neighbours or 'all'}", "users that hold shares of a secret"),
        ("min survivors", f"{answer.min_survivors}", "clients refuse to open a block with fewer"),
        ("modulus bits", f"{answer.modulus_bits}", f"{answer.quantisation_levels} steps from 0 to the clip"),
        ("upload", f"{answer.upload_bytes:,} B", f"1/{answer.compression_vs_secagg:.1f} of 32-bit SecAgg"),
        ("shares", f"{answer.share_bytes:,} B", "sent to set up and to open"),
        (
            "privacy fails",
            f"2^{answer.privacy_failure_log2:.1f}",
            f"fewer than {goal.min_anonymity} honest users in a sum",
        ),
        ("  if the server lies", f"2^{answer.lying_server_failure_log2:.1f}", "about who dropped out"),
        ("round aborts", f"{answer.abort_probability:.2g}", "at most; nothing is revealed then"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _nearest_table(answer: Plan) -> Table:
    table = Table(title="Nearest feasible, one change at a time", title_justify="left", show_header=False)
    nearest = answer.nearest
    if nearest is not None:
        table.add_row("--clients", _or_none(nearest.clients))
        table.add_row("--min-anonymity", _or_none(nearest.min_anonymity))
        table.add_row("--failure-log2", _or_none(nearest.failure_log2))
    return table


def _or_none(value: float | None) -> str:
    return "no value would do" if value is None else f"{value:g}"


def draw(answer: Plan, path: Path) -> None:
    """Draw upload bytes against anonymity at the plan's other settings, with the plan marked."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtra("learn", "--plot") from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    goal = answer.goal
    curve = [
        (plan.goal.min_anonymity, plan.upload_bytes)
        for plan in plan_each(goal, _anonymities(goal))
        if plan.upload_bytes is not None
    ]
    figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
    axes.set(xscale="log", yscale="log", xlim=(0.9, goal.clients * 1.1))
    axes.set(xlabel="honest users in every sum, at least (T)", ylabel="upload per user")
    axes.margins(y=0.12)
    if curve:
        axes.plot(*zip(*curve, strict=True), color=_BLUE, linewidth=1.5, marker=".", markersize=5)
    full = UPLOAD_HEADER + 4 * goal.dim
    axes.axhline(full, color="0.45", linestyle="--", linewidth=1)
    axes.annotate(
        "SecAgg, 32-bit words",
        (0.01, full),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        color="0.35",
    )
    beyond = curve[-1][0] if curve else 0.9
    axes.axvspan(beyond, goal.clients * 1.1, color=_RED, alpha=0.08, linewidth=0, label="not feasible")
    axes.legend(loc="lower right")
    _mark(axes, answer)
    axes.set_title(
        f"N = {goal.clients}, d = {goal.dim:,}, θ = {goal.dropout:.3g}, γ = {goal.colluding:.3g}, "
        f"failure probability $2^{{{goal.failure_log2:g}}}$",
        fontsize=10,
    )
    for axis, text in ((axes.yaxis, _bytes), (axes.xaxis, "{:g}".format)):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _, text=text: text(value)))
        axis.set_minor_locator(NullLocator())
    axes.grid(True, alpha=0.3)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _anonymities(goal: Goal) -> list[int]:
    """Return up to 60 values of T from 1 to N, evenly spread on a log scale, the wanted one among them."""
    spread = np.unique(np.geomspace(1, goal.clients, 60).round().astype(int)).tolist()
    return sorted({*spread, goal.min_anonymity})


def _mark(axes: Any, answer: Plan) -> None:
    """Mark the wanted anonymity: a point on the curve, or a line where nothing is feasible."""
    wanted = answer.goal.min_anonymity
    # Towards the side that has more room.
    left = wanted**2 > answer.goal.clients
    place = {"textcoords": "offset points", "color": _RED, "ha": "right" if left else "left"}
    if answer.upload_bytes is None:
        axes.axvline(wanted, color=_RED, linewidth=1.5)
        axes.annotate(
            f"T = {wanted}: not feasible",
            (wanted, 0.5),
            xycoords=("data", "axes fraction"),
            xytext=(-8 if left else 8, 0),
            **place,
        )
        return
    axes.plot(wanted, answer.upload_bytes, "o", color=_RED, markersize=8)
    axes.annotate(
        f"T = {wanted}: {_bytes(answer.upload_bytes)}\n"
        f"committees of {answer.committee_size}, {answer.modulus_bits}-bit words",
        (wanted, answer.upload_bytes),
        xytext=(-10, 8) if left else (10, -8),
        va="bottom" if left else "top",
        **place,
    )


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
