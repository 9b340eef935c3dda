"""`make soak`: many more fault schedules than `make test` has time for, on all cores."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from faults import run_schedules

CHUNK = 500


def main() -> None:
    """Run the schedules and print how they ended; a wrong sum or an untyped exception ends it with its number."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=1_000_000, help="number of the first schedule")
    parser.add_argument("--out", type=Path, help="also write the counts to this JSON file")
    options = parser.parse_args()
    begin, done, soaked = time.monotonic(), 0, commit()
    endings: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        starts = range(options.first, options.first + options.schedules, CHUNK)
        last = options.first + options.schedules
        jobs = [pool.submit(run_schedules, start, min(CHUNK, last - start)) for start in starts]
        for job in as_completed(jobs):
            some_endings, some_seen = job.result()
            endings += some_endings
            seen += some_seen
            done = min(options.schedules, done + CHUNK)
            left = (time.monotonic() - begin) / done * (options.schedules - done)
            sys.stderr.write(f"\r{done:,} of {options.schedules:,} schedules, {left / 60:.0f} min left   ")
    sys.stderr.write("\n")
    for title, counts in (("rounds ended with", endings), ("faults inflicted and errors raised", seen)):
        sys.stdout.write(f"{title}:\n")
        for name, number in counts.most_common():
            sys.stdout.write(f"  {number:>12,}  {name}\n")
    if options.out:
        result = {
            "command": f"python tests/soak.py --schedules {options.schedules} --first {options.first}",
            "commit": soaked,
            "schedules": done,
            "seconds": round(time.monotonic() - begin),
            "endings": dict(endings.most_common()),
            "faults_and_errors": dict(seen.most_common()),
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def commit() -> str:
    """Return the commit that was soaked."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    root = Path(__file__).parents[1]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    main()
