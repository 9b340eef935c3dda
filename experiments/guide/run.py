"""Write the tables of docs/decision-guide.md; nothing is sampled, and a test compares the page with this program.

.venv/bin/python -m experiments.guide.run
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sparsesecagg import Goal, Plan, plan_round
from sparsesecagg.privacy.anonymity import ServerModel

PAGE = Path(__file__).parents[2] / "docs" / "decision-guide.md"
USERS = (5, 10, 25, 50, 100, 300, 1000, 3000, 10_000)
SITUATIONS: tuple[tuple[ServerModel, float, float], ...] = (
    ("semi-honest", 0.1, 0.1),
    ("malicious", 0.1, 0.1),
    ("malicious", 0.1, 0.2),
    ("semi-honest", 0.3, 0.1),
    ("malicious", 0.3, 0.1),
)
"""Server, dropout θ, colluding γ."""
DIM, ALPHAS = 1_000_000, (1.0, 0.5, 0.2, 0.1)


def main() -> None:
    """Write the page."""
    PAGE.write_text(published(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def published(page: str) -> str:
    """Return the page with its tables written anew."""
    for name, lines in (("promises", promises()), ("bytes", sizes())):
        begin, end = f"<!-- table: {name} -->\n", f"<!-- end: {name} -->\n"
        before, rest = page.split(begin)
        page = before + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]
    return page


def plan(clients: int, server: ServerModel, dropout: float, colluding: float, alpha: float = 0.1) -> Plan:
    """Return the plan that keeps five honest users in every sum, or as many as a small cohort can."""
    wanted = 3 if clients < 10 else 5
    return plan_round(Goal(clients, DIM, dropout, colluding, wanted, server=server, alpha=alpha))


def promises() -> Iterator[str]:
    """Yield honest users in every sum, by users and situation."""
    heads = [f"{server}, θ = {dropout:.0%}, γ = {colluding:.0%}" for server, dropout, colluding in SITUATIONS]
    yield f"| users | {' | '.join(heads)} |"
    yield f"| ---: |{' --- |' * len(heads)}"
    for clients in USERS:
        yield f"| {clients:,} | {' | '.join(_promise(plan(clients, *each)) for each in SITUATIONS)} |"


def _promise(found: Plan) -> str:
    if not found.feasible:
        return "no"
    return f"**{found.anonymity}** of {found.group_size}; t = {found.threshold}; {found.abort_probability:.1%} lost"


def sizes() -> Iterator[str]:
    """Yield what a user sends and receives, by users and α."""
    yield f"| users | {' | '.join(f'α = {alpha:g}' for alpha in ALPHAS)} | received |"
    yield f"| ---: |{' ---: |' * (len(ALPHAS) + 1)}"
    for clients in (5, 10, 50, 100, 10_000):
        plans = [plan(clients, "malicious", 0.1, 0.1, alpha) for alpha in ALPHAS]
        cells = [f"{_kilobytes(each.all_bytes_sent)} ({4 * DIM / (each.all_bytes_sent or 1):.0f}×)" for each in plans]
        yield f"| {clients:,} | {' | '.join(cells)} | {_kilobytes(plans[0].all_bytes_received)} |"


def _kilobytes(count: int | None) -> str:
    return f"{(count or 0) / 1000:,.1f} kB" if (count or 0) < 100_000 else f"{(count or 0) / 1000:,.0f} kB"


if __name__ == "__main__":
    main()
