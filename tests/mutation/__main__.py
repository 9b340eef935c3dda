"""Change protocol/, patterns/, crypto/ and privacy/ in every small way, and see whether some test notices."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from functools import partial

from mutation import CACHE, PACKAGES, ROOT, SOURCE
from mutation.changes import Module
from mutation.coverage import record
from mutation.forks import in_forks
from mutation.hunt import Limits, work
from mutation.results import OUTCOMES, RESULTS, is_settled, remembered, summary


def main() -> None:
    """Run the mutants and write down which of them nobody noticed."""
    parser = argparse.ArgumentParser(prog="python -m mutation", description=main.__doc__)
    parser.add_argument(
        "--again", action="store_true", help="leave out what was noticed before, in functions unchanged"
    )
    parser.add_argument("--resume", action="store_true", help="leave out all that ran before, in functions unchanged")
    parser.add_argument("--only", default="", help="mutants whose name contains this, such as privacy/mechanism")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop then; what ran is a random sample")
    parser.add_argument("--seconds", type=float, default=3.0, help="of tests for one mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    limits = Limits(options.seconds, time.monotonic() + 60 * options.minutes)
    sys.path.insert(0, str(SOURCE.parent))  # Of this tree, wherever the installed package may be.

    paths = [path for package in PACKAGES for path in sorted((SOURCE / package).glob("*.py"))]
    modules = {module.file: module for module in (Module(path, ROOT) for path in paths)}
    mutants = [mutant for module in modules.values() for mutant in module.mutants if options.only in mutant.name]
    CACHE.mkdir(parents=True, exist_ok=True)
    if not (options.again or options.resume):
        OUTCOMES.unlink(missing_ok=True)
    found = remembered(modules)
    due = [
        mutant for mutant in mutants if not (mutant.name in found if options.resume else is_settled(mutant.name, found))
    ]
    # Last time's survivors and checks first, the rest in random order: a run that is cut short has all of those and a
    # fair sample of these.
    random.Random(2026).shuffle(due)
    due.sort(key=lambda mutant: (mutant.name not in found, not mutant.check))
    tests = record(options.jobs)
    sys.stderr.write(f"{len(due):,} of {len(mutants):,} mutants, {len(tests):,} tests\n")
    at_import, inside = ([mutant for mutant in due if mutant.at_import is wanted] for wanted in (True, False))
    parts = [at_import, *(inside[start :: options.jobs] for start in range(options.jobs))]
    for some in in_forks([partial(work, modules, part, tests, limits) for part in parts]):
        found |= some

    report = summary(mutants, found)
    if not options.only:
        RESULTS.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write("\n" + json.dumps({name: report[name] for name in ("total", "checks", "others")}, indent=1) + "\n")


if __name__ == "__main__":
    main()
