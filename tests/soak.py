"""`make soak`: many more fault schedules and interleavings than `make test` has time for, on all cores.

Counts are written down after each lot, so that a soak that was stopped goes on with `--resume`, as long as src/ is the
same; the lots of any other source do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from faults import run_schedules
from interleavings import MODES, run_interleavings
from sparsesecagg.protocol.parameters import VERSION

ROOT = Path(__file__).parents[1]
PROGRESS = ROOT / ".pytest_cache" / "soak.json"
LOT = 500
TITLES = {
    "endings": "rounds ended with",
    "faults_and_errors": "faults inflicted and errors raised",
    "interleavings_seen": "interleavings: answers given and errors raised",
}
Job = tuple[str, int, int]
"""What is run (a mode of interleavings, or `schedules`), from which number on, and how many."""


def main() -> None:
    """Soak, and print what happened; a wrong sum, a second answer or an untyped exception ends it with its number."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--schedules", type=int, default=100_000, help="runs over a broken network")
    parser.add_argument("--interleavings", type=int, default=200_000, help="crashes, copies and repeats on one node")
    parser.add_argument("--first", type=int, default=1_000_000, help="number of the first one of each")
    parser.add_argument("--resume", action="store_true", help="go on with one of the same source that was stopped")
    parser.add_argument("--out", type=Path, help="also write the counts to this JSON file")
    options = parser.parse_args()
    soak = Soak(
        {
            "commit": revision("HEAD"),
            "source": revision("HEAD:src"),
            **{name: getattr(options, name) for name in ("schedules", "interleavings", "first")},
        }
    )
    if options.resume:
        soak.resume()
    soak.run()
    for name, title in TITLES.items():
        sys.stdout.write(f"{title}:\n")
        for what, number in soak.counts[name].most_common():
            sys.stdout.write(f"  {number:>12,}  {what}\n")
    if options.out:
        options.out.write_text(json.dumps(soak.report(), indent=1) + "\n", encoding="utf-8")


class Soak:
    """All lots, and what came of those that are done."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in TITLES}
        self.done: set[Job] = set()
        self.seconds = 0.0

    def resume(self) -> None:
        """Take up what an earlier soak has written down."""
        if not PROGRESS.exists():
            return
        found = json.loads(PROGRESS.read_text(encoding="utf-8"))
        begun, now = ({**settings, "commit": ""} for settings in (found["settings"], self.settings))
        if begun != now:
            sys.stderr.write(f"what was stopped had another source or other numbers: beginning anew ({begun})\n")
            return
        self.done = {(kind, first, count) for kind, first, count in found["done"]}
        self.counts = {name: Counter(found["counts"][name]) for name in TITLES}
        self.seconds = found["seconds"]

    def run(self) -> None:
        """Run what is left, on all cores."""
        begin, before = time.monotonic(), self.seconds
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            left = [job for job in self._jobs() if job not in self.done]
            started = {pool.submit(run_lot, *job): job for job in left}
            for number, future in enumerate(as_completed(started), 1):
                for name, counts in future.result().items():
                    self.counts[name] += counts
                self.done.add(started[future])
                self.seconds = before + time.monotonic() - begin
                self._write_down()
                minutes = (time.monotonic() - begin) / number * (len(left) - number) / 60
                sys.stderr.write(f"\r{number:,} of {len(left):,} lots, {minutes:.0f} min left   ")
        sys.stderr.write("\n")

    def _jobs(self) -> Iterator[Job]:
        first, schedules = self.settings["first"], self.settings["schedules"]
        for start in range(0, schedules, LOT):
            yield "schedules", first + start, min(LOT, schedules - start)
        each = -(-self.settings["interleavings"] // len(MODES))
        for mode in MODES:
            for start in range(0, each, LOT):
                yield mode, first + start, min(LOT, each - start)

    def _write_down(self) -> None:
        content = {
            "settings": self.settings,
            "done": sorted(self.done),
            "counts": self.counts,
            "seconds": round(self.seconds),
        }
        PROGRESS.parent.mkdir(exist_ok=True)
        fresh = PROGRESS.with_suffix(".new")
        fresh.write_text(json.dumps(content), encoding="utf-8")
        fresh.replace(PROGRESS)

    def report(self) -> dict[str, Any]:
        """Return what is kept in the results."""
        numbers = (f"--{name} {self.settings[name]}" for name in ("schedules", "interleavings", "first"))
        return {
            "command": f"python tests/soak.py {' '.join(numbers)}",
            "protocol": VERSION,
            "complete": self.done == set(self._jobs()),
            **self.settings,
            "seconds": round(self.seconds),
            **{name: dict(counts.most_common()) for name, counts in self.counts.items()},
        }


def run_lot(kind: str, first: int, count: int) -> dict[str, Counter[str]]:
    """Run one lot, in a process of its own."""
    if kind == "schedules":
        endings, seen = run_schedules(first, count)
        return {"endings": endings, "faults_and_errors": seen}
    return {"interleavings_seen": run_interleavings("roster" if kind == "roster" else "plain", first, count)}


def revision(name: str) -> str:
    """Return a commit, or a folder as it was committed."""
    command = ["git", "rev-parse", "--short", name]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    main()
