"""The comparison to read: what each system takes, and how many times less than which other."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

NAMES = {
    "flower_secagg_plus": "Flower SecAgg+",
    "secagg": "SecAgg",
    "secagg_plus": "SecAgg+",
    "pairwise": "pairwise",
    "committee": "committee",
}
_AGAINST = {"flower": "Flower SecAgg+", "secagg": "our SecAgg"}


def comparison_table(answer: dict[str, Any]) -> Group:
    """Return a table with a row per system, and one of the ratios."""
    return Group(_costs(answer), "", _ratios(answer))


def _costs(answer: dict[str, Any]) -> Table:
    settings = answer["settings"]
    table = Table(
        title=f"{settings['clients']} clients, {settings['dim']:,} coordinates, α = {settings['alpha']:g}, "
        f"{settings['dropped']} drop out at UPLOAD",
        caption="milliseconds are medians: the mean client's, the whole server's",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
    )
    _columns(table, "bits", "client\nms", "UPLOAD\nms", "server\nms", "sent\nkB", "received\nkB", "peak\nMB")
    for system, measured in answer["systems"].items():
        table.add_row(
            NAMES[system] + ("" if measured["exact"] else " WRONG SUM"),
            str(measured["settings"]["modulus_bits"]),
            _milliseconds(measured["client_seconds"]["total"]),
            _milliseconds(measured["client_seconds"]["UPLOAD"]),
            _milliseconds(measured["server_seconds"]["total"]),
            f"{measured['sent_bytes'] / 1e3:,.1f}",
            f"{measured['received_bytes'] / 1e3:,.1f}",
            f"{measured['peak_memory_bytes'] / 1e6:,.0f}",
        )
    return table


def _ratios(answer: dict[str, Any]) -> Table:
    table = Table(title="How many times less", box=box.SIMPLE_HEAD, collapse_padding=True)
    _columns(table, "than", "client", "UPLOAD", "server", "bytes sent")
    for base, ratios in answer["ratios"].items():
        for system, ratio in ratios.items():
            keys = ("client", "client_upload", "server", "sent_bytes")
            table.add_row(NAMES[system], _AGAINST[base], *(f"{ratio[key]:,.1f}×" for key in keys))
        table.add_section()
    return table


def _columns(table: Table, *headings: str) -> None:
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}" if seconds < 10 else f"{1000 * seconds:,.0f}"
