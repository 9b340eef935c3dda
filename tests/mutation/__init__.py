"""Mutation testing of protocol/, patterns/, crypto/ and privacy/: `make mutants`, or `python -m mutation`
with PYTHONPATH=tests.

    changes    every small wrong that can be done to a source file
    coverage   which tests run which lines, recorded once
    hunt       mutants meet the tests that might notice them
    forks      running things in copies of this process
    results    results/mutation.json, and what `--again` and `--resume` remember

A survivor that behaves like the original is no hole: whoever judges so writes the reason into equivalent.json, as
`[{"reason": "…", "mutants": ["…"]}]`; a mutant is named by its function and the change, in whatever file that is.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "sparsesecagg"
PACKAGES = ("protocol", "patterns", "crypto", "privacy")
CACHE = ROOT / ".pytest_cache" / "mutants"
