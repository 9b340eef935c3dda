"""`python -m benchmarks`: measure everything, part by part, into benchmarks/results/, and write docs/performance.md.

    python -m benchmarks --only whole,profile     # these parts alone
    python -m benchmarks --only whole --json      # print the result and write nothing
    python -m benchmarks --full                   # also what takes long: Flower with 100 users, SecAgg with 1,000

Measure on a machine with nothing else to do, from a clean commit; it takes about 20 minutes. Each part is written as
soon as it is done, and one that fails stops no other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import typer

from benchmarks import (
    authenticated,
    command,
    compare,
    deployment,
    growth,
    page,
    profiling,
    results,
    scale,
    threads,
    whole,
)
from benchmarks.setting import Setting
from sparsesecagg.errors import InvalidInput, ProtocolError

FLOWER = Setting(clients=50, dim=170_000, alpha=0.1, dropout=0.1, modulus_bits=8)
SECAGG = Setting(clients=100, dim=1_663_370, alpha=0.1, dropout=0.3, modulus_bits=16)
_PAIR = ("secagg", "sliced")


def _parts(full: bool) -> dict[str, tuple[int, Callable[[], dict[str, Any]]]]:
    """Return, by the name of the result file, about how many seconds a part takes, and what measures it."""
    return {
        "whole": (150, lambda: whole.measure(full=full)),
        "compare-flower": (120, lambda: compare.compare(FLOWER, repeats=3)),
        "compare-secagg": (60, lambda: compare.compare(SECAGG, _PAIR, repeats=2)),
        "compare-short": (60, lambda: compare.compare(replace(SECAGG, modulus_bits=9), _PAIR, repeats=2)),
        "growth": (100, lambda: growth.measure(full=full)),
        "profile": (75, profiling.measure),
        "scale": (300, scale.measure),
        "scale-sample": (60, scale.measure_sample),
        "threads": (60, threads.measure),
        "authenticated": (35, authenticated.measure),
        "deployment": (240, lambda: deployment.measure(secagg_plus=True)),
        "deployment-roster": (130, lambda: deployment.measure(roster=True)),
    }


NAMES = tuple(_parts(full=False))


def main(
    full: Annotated[bool, typer.Option("--full", help="All points and cohorts; takes much longer.")] = False,
    only: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(NAMES)}; all if left out.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each part, and write nothing.")] = False,
) -> None:
    """Measure, and write benchmarks/results/*.json and docs/performance.md."""
    chosen = [name.strip() for name in only.split(",") if name.strip()] or NAMES
    for name in chosen:
        if name not in NAMES:
            raise InvalidInput("only", f"must be some of {', '.join(NAMES)}, got {name!r}")
    begun, failed = results.begin(publish=not json), []  # Once: later parts would find the load of the earlier ones.
    for name in chosen:
        seconds, measure = _parts(full)[name]
        command.err.print(f"{name}, about {seconds} s" + " or more" * full, highlight=False)
        try:
            found = measure()
        except Exception:  # The other parts take minutes each, and are worth having.
            command.err.print_exception()
            failed.append(name)
            continue
        if json:
            command.print_json({"name": name, **found})
        else:
            results.write(name, found, begun)
            page.write()
    if failed:
        raise ProtocolError(f"some parts failed; --only {','.join(failed)} measures them again")


if __name__ == "__main__":
    command.run(main)
