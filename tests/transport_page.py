"""The parts of docs/transport.md that are made and not written: states, sizes, the program over queues.

    python tests/transport_page.py

writes them into the page, and the two diagrams into docs/img. `tests/test_transport_page.py` compares.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from sparsesecagg import Parameters, RoundOptions
from sparsesecagg.planning.message_sizes import default_levels, message_bytes, shortest_word
from sparsesecagg.protocol.stages import CLIENT_TRANSITIONS, SERVER_TRANSITIONS, Progress, Stage

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "transport.md"
Table = Mapping[Stage, Mapping[str, Stage]] | Mapping[Progress, Mapping[str, Progress]]
WIDTH, HEIGHT, GAP, TOP = 150, 40, 90, 90


def edges(table: Table) -> dict[tuple[int, int], list[str]]:
    """Return the calls from place to place, near ones first; what leads from anywhere to one place is drawn once."""
    names, everywhere = [place.name for place in table], common(table)
    found: dict[tuple[int, int], list[str]] = defaultdict(list)
    for start, calls in enumerate(table.values()):
        for call, following in calls.items():
            end = names.index(following.name)
            if call not in everywhere or end == start + 1:
                found[start, end].append(call)
    return dict(sorted(found.items(), key=lambda each: abs(each[0][1] - each[0][0])))


def common(table: Table) -> dict[str, str]:
    """Return the calls that lead from every place, or all but the first, to the same one."""
    found: dict[str, str] = {}
    for call in {call for calls in table.values() for call in calls}:
        targets = {calls[call].name for calls in table.values() if call in calls}
        if len(targets) == 1 and sum(call in calls for calls in table.values()) >= len(table) - 1:
            found[call] = targets.pop()
    return found


def diagram(table: Table) -> str:
    """Return the places in a row, the calls between them as arrows."""
    names = [place.name for place in table]
    left = [20 + at * (WIDTH + GAP) for at in range(len(names))]
    width = left[-1] + WIDTH + 20
    parts = []
    below = 0
    for (start, end), calls in edges(table).items():
        label = ", ".join(calls)
        steps = end - start
        if steps == 1:
            x, y = left[start] + WIDTH, TOP + HEIGHT // 2
            parts.append(f'<path d="M{x} {y}H{x + GAP - 4}" marker-end="url(#tip)"/>')
            parts.append(f'<text x="{x + GAP // 2}" y="{y - 8}">{label}</text>')
        elif steps == 0:
            x, y = left[start] + WIDTH // 2, TOP
            parts.append(f'<path d="M{x - 20} {y}C{x - 30} {y - 45} {x + 30} {y - 45} {x + 20} {y - 3}" {TIP}/>')
            parts.append(f'<text x="{x}" y="{y - 42}">{label}</text>')
        else:
            below += 1
            x, to, y = left[start] + WIDTH // 2 + 14 * below, left[end] + WIDTH // 2, TOP + HEIGHT
            deep = y + 30 * below
            parts.append(f'<path d="M{x} {y}V{deep}H{to + 14 * below}V{y + 4}" {TIP}/>')
            parts.append(f'<text x="{(x + to) // 2}" y="{deep - 6}">{label}</text>')
    boxes = [
        f'<rect x="{x}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        f'<text x="{x + WIDTH // 2}" y="{TOP + 25}">{name}</text>'
        for name, x in zip(names, left, strict=True)
    ]
    height = TOP + HEIGHT + 30 * below + 30
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            "<style>path,rect{fill:none;stroke:#555;stroke-width:1.5}text{font:13px sans-serif;text-anchor:middle;"
            "fill:#222}.tip{fill:#555}@media(prefers-color-scheme:dark){path,rect{stroke:#aaa}text{fill:#ddd}"
            ".tip{fill:#aaa}}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>',
            *parts,
            *boxes,
            "</svg>",
            "",
        ]
    )


TIP = 'marker-end="url(#tip)"'


def rows_of(table: Table) -> str:
    """Return the table as one reads it."""
    lines = ["| at | call | then at |", "| --- | --- | --- |"]
    for place, calls in table.items():
        for call, following in calls.items():
            lines.append(f"| {place.name} | {f'`{call}`' if call.isidentifier() else call} | {following.name} |")
    return "\n".join(lines)


def sizes() -> str:
    """Return what one user sends and receives in a round, as the planner computes it."""
    lines = [
        "| users | coordinates | bits per word | UPLOAD, α = 1 | UPLOAD, α = 0.1 | other messages sent | received |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for clients in (10, 100, 1000):
        for dim in (10_000, 1_000_000):
            bits = shortest_word(min(clients, 100), default_levels(min(clients, 100)))
            whole, part = (
                message_bytes(Parameters.create(clients, dim, RoundOptions(alpha=alpha, modulus_bits=bits)))
                for alpha in (1.0, 0.1)
            )
            numbers = (clients, dim, bits, whole.upload, part.upload, part.all_sent - part.upload, part.all_received)
            lines.append(f"| {' | '.join(f'{number:,}' for number in numbers)} |")
    return "\n".join(lines)


def made() -> dict[str, str]:
    """Return the made parts of the page, by name."""
    program = (ROOT / "examples" / "queues.py").read_text(encoding="utf-8").rstrip()
    return {
        "queues": f"```python\n{program}\n```",
        "server": rows_of(SERVER_TRANSITIONS),
        "client": rows_of(CLIENT_TRANSITIONS),
        "sizes": sizes(),
    }


def diagrams() -> dict[Path, str]:
    """Return the diagrams, by file."""
    images = ROOT / "docs" / "img"
    return {
        images / "server-states.svg": diagram(SERVER_TRANSITIONS),
        images / "client-states.svg": diagram(CLIENT_TRANSITIONS),
    }


def filled(page: str) -> str:
    """Return the page with its made parts renewed."""
    for name, content in made().items():
        pattern = re.compile(rf"(<!-- made: {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        page, count = pattern.subn(lambda found, content=content: found[1] + content + found[2], page)  # type: ignore[misc]
        if count != 1:
            sys.exit(f"{PAGE.name} has no place for {name}, or several")
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for path, drawn in diagrams().items():
        path.write_text(drawn, encoding="utf-8")
