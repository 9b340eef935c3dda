"""Mutation testing of protocol/, patterns/ and crypto/: `make mutants`, or `PYTHONPATH=tests python -m mutation`.

    changes    every small wrong that can be done to a source file
    coverage   which tests run which lines, recorded once
    hunt       mutants meet the tests that might notice them
    forks      running things in copies of this process
    results    results/mutation.json, and what `--again` remembers

A survivor that behaves like the original is no hole: whoever judges so writes the reason into equivalent.json.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "sparsesecagg"
PACKAGES = ("protocol", "patterns", "crypto")
CACHE = ROOT / ".pytest_cache" / "mutants"
