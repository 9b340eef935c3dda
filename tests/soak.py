"""`make soak`: many more fault schedules and interleavings than `make test` has time for, on all cores."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from faults import run_schedules
from interleavings import LOT, MODES, run_interleavings

CHUNK = 500
Job = tuple[Callable[..., Any], tuple[Any, ...]]


def main() -> None:
    """Soak, and print what happened; a wrong sum, a second answer or an untyped exception ends it with its number."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--schedules", type=int, default=100_000, help="runs over a broken network")
    parser.add_argument("--interleavings", type=int, default=200_000, help="crashes, copies and repeats on one node")
    parser.add_argument("--first", type=int, default=1_000_000, help="number of the first schedule")
    parser.add_argument("--out", type=Path, help="also write the counts to this JSON file")
    options = parser.parse_args()
    begin, soaked = time.monotonic(), commit()
    endings: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    schedules, interleavings = _schedules(options), _interleavings(options)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(act, *arguments): arguments for act, arguments in (*schedules, *interleavings)}
        for done, job in enumerate(as_completed(jobs), 1):
            found = job.result()
            if isinstance(found, tuple):
                endings += found[0]
                seen += found[1]
            else:
                answers.update(found)
            left = (time.monotonic() - begin) / done * (len(jobs) - done)
            sys.stderr.write(f"\r{done:,} of {len(jobs):,} lots, {left / 60:.0f} min left   ")
    sys.stderr.write("\n")
    titles = "rounds ended with", "faults inflicted and errors raised", "interleavings: answers given and errors raised"
    for title, counts in zip(titles, (endings, seen, answers), strict=True):
        sys.stdout.write(f"{title}:\n")
        for name, number in counts.most_common():
            sys.stdout.write(f"  {number:>12,}  {name}\n")
    if options.out:
        result = {
            "command": f"python tests/soak.py --schedules {options.schedules} "
            f"--interleavings {options.interleavings} --first {options.first}",
            "commit": soaked,
            "schedules": options.schedules,
            "interleavings": options.interleavings,
            "seconds": round(time.monotonic() - begin),
            "endings": dict(endings.most_common()),
            "faults_and_errors": dict(seen.most_common()),
            "interleavings_seen": dict(answers.most_common()),
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _schedules(options: argparse.Namespace) -> Iterator[Job]:
    last = options.first + options.schedules
    for start in range(options.first, last, CHUNK):
        yield run_schedules, (start, min(CHUNK, last - start))


def _interleavings(options: argparse.Namespace) -> Iterator[Job]:
    for lot, start in enumerate(range(0, options.interleavings, LOT)):
        mode, confirm = MODES[lot % len(MODES)]
        yield run_interleavings, (mode, confirm, min(LOT, options.interleavings - start), options.first + lot)


def commit() -> str:
    """Return the commit that was soaked."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    root = Path(__file__).parents[1]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    main()
