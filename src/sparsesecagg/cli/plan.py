"""`sparsesecagg plan`: settings of a round from what it has to promise."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, cast

import numpy as np
import typer
from rich.table import Table

from sparsesecagg.cli.shared import JsonOption, SeedOption, check_picture, out, print_json
from sparsesecagg.errors import MissingExtra
from sparsesecagg.privacy.anonymity import ROUNDS, Server
from sparsesecagg.planning.plan import DEFAULT_FAILURE_LOG2, LOWEST_FAILURE_LOG2, Goal, Plan
from sparsesecagg.planning.planner import plan_each, plan_round, secagg_upload

_BLUE: Final = "#1f6fb2"
_RED: Final = "#c0392b"
_LYING: Final = (
    "If the server lies: it may declare users dropped who did not drop out, tell different users different things, and "
    "choose among draws, in order to open sums of fewer users. The figure above counts all of that. It holds for users "
    "who know each other by a roster (sparsesecagg roster); without one such a server can play all other users itself. "
    "--server curious plans for a server that follows the protocol and keeps what it sees."
)


def plan(
    *,
    clients: Annotated[int, typer.Option(help="Users of the run (N), at least 3.")],
    dim: Annotated[int, typer.Option(help="Coordinates of the model (d).")],
    dropout: Annotated[float, typer.Option(help="Chance that a user drops out of a round (θ), from 0 to below 0.5.")],
    colluding: Annotated[float, typer.Option(help="Fraction of users that help the server (γ), from 0 to below 0.5.")],
    min_anonymity: Annotated[int, typer.Option(help="Minimum number of honest users in every sum (T), from 1 to N.")],
    failure_log2: Annotated[
        float, typer.Option(help="Allowed probability per run that it fails, as a power of two.")
    ] = DEFAULT_FAILURE_LOG2,
    server: Annotated[
        str,
        typer.Option(
            help="lying: it may say anything about who dropped out. curious: it follows the protocol and looks on."
        ),
    ] = "lying",
    confirm: Annotated[
        bool | None,
        typer.Option(
            "--confirm/--no-confirm",
            help="With or without CONFIRM, a third exchange per round (default: the planner chooses).",
            show_default=False,
        ),
    ] = None,
    clip: Annotated[float, typer.Option(help="Largest magnitude of an update's coordinate.")] = 1.0,
    levels: Annotated[
        int | None,
        typer.Option(
            help="Minimum number of quantisation steps from 0 to the clip, or to 1 if the clip is above 1 "
            "(default: by committee size).",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw bytes against anonymity into this .png, .pdf or .svg.")
    ] = None,
    json: JsonOption = False,
    seed: SeedOption = 0,
) -> None:
    """Find the groups with the fewest bytes that keep an anonymity, or say why there are none.

    Exact tail probabilities, nothing sampled: --seed changes nothing. "Not feasible" is an answer, with the
    nearest feasible settings, and exits with 0.

    In the JSON, privacy_failure_log2 is per run and about the chosen --server. abort_probability is the chance per
    round that a given committee's slices are lost, because too few of the committee or of its pod take part. Bytes are
    per round and user, without the model.
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
        server=cast(Server, server),  # `Goal` rejects anything else.
        confirm=confirm,
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
    if answer.goal.server == "lying":
        out.print(_LYING, highlight=False)
    if plot is not None:
        out.print(f"Drawn to {plot}.", highlight=False)


def as_json(answer: Plan) -> dict[str, Any]:
    """Return the command's JSON object."""
    nearest = answer.nearest
    return {
        "feasible": answer.feasible,
        "reason": answer.reason,
        "server": answer.goal.server,
        "alpha": answer.alpha,
        "committees": answer.committees,
        "committee_size": answer.committee_size,
        "min_survivors": answer.min_survivors,
        "pods": answer.pods,
        "pod_size": answer.pod_size,
        "threshold": answer.threshold,
        "slices_per_user": answer.slices_per_user,
        "confirm": answer.confirm,
        "exchanges": answer.exchanges,
        "modulus_bits": answer.modulus_bits,
        "quantisation_levels": answer.quantisation_levels,
        "upload_bytes": answer.upload_bytes,
        "all_bytes_sent": answer.all_bytes_sent,
        "all_bytes_received": answer.all_bytes_received,
        "compression_vs_secagg": answer.compression_vs_secagg,
        "privacy_failure_log2": answer.privacy_failure_log2,
        "abort_probability": answer.abort_probability,
        "nearest": nearest and asdict(nearest),
    }


def _settings_table(answer: Plan) -> Table:
    goal = answer.goal
    table = Table(title=f"{goal.clients} users, {goal.dim:,} coordinates", title_justify="left", show_header=False)
    lies = "even if the server lies about who dropped out"
    honest = f"the server follows the protocol for {ROUNDS:,} rounds"
    rows: list[tuple[str, str, str]] = [
        ("alpha", f"{answer.alpha:.4g}", f"each user sends 1 of {answer.committees} slices of the model"),
        ("committee size", f"{answer.committee_size}", f"smallest of {answer.committees}; users mask inside it"),
        ("min survivors", f"{answer.min_survivors}", "of that committee, or its slice is not opened"),
        ("pod size", f"{answer.pod_size}", f"smallest of {answer.pods}; users hold each other's shares inside it"),
        ("threshold", f"{answer.threshold}", "shares of that pod that open a secret"),
        ("confirm", "yes" if answer.confirm else "no", f"{answer.exchanges} exchanges per round"),
        ("modulus bits", f"{answer.modulus_bits}", f"{answer.quantisation_levels} steps from 0 to the clip"),
        ("upload", _bytes(answer.upload_bytes or 0), f"1/{answer.compression_vs_secagg:.1f} of 32-bit SecAgg"),
        ("all sent", _bytes(answer.all_bytes_sent or 0), "per user and round: upload, keys, shares, tags"),
        ("all received", _bytes(answer.all_bytes_received or 0), "per user and round, without the model"),
        (
            "privacy fails",
            _chance(answer.privacy_failure_log2),
            f"per run: fewer than {goal.min_anonymity} honest users in a sum,",
        ),
        (f"  {goal.server} server", "", lies if goal.server == "lying" else honest),
        ("slice lost", f"{answer.abort_probability:.2g}", "per round and committee, at most; nothing is revealed then"),
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
        table.add_row("--dropout", _or_none(nearest.dropout))
        table.add_row("--colluding", _or_none(nearest.colluding))
        if answer.goal.server == "lying":
            table.add_row("--server", nearest.server or "no other would do")
    return table


def _chance(log2: float) -> str:
    return f"2^{log2:.1f}" if log2 > LOWEST_FAILURE_LOG2 else "never"


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
    axes.set(xlabel="minimum number of honest users in every sum (T)", ylabel="upload per user")
    axes.margins(y=0.12)
    if curve:
        axes.plot(*zip(*curve, strict=True), color=_BLUE, linewidth=1.5, marker=".", markersize=5)
    full = secagg_upload(goal.dim)
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
        f"{goal.server} server, failure $2^{{{goal.failure_log2:g}}}$ per run",
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
    """Return up to 40 values of T from 1 to N, evenly spread on a log scale, the wanted one among them."""
    spread = np.unique(np.geomspace(1, goal.clients, 40).round().astype(int)).tolist()
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
