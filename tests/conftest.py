"""How all tests run.

Hypothesis draws the same examples everywhere by default, so a red test is red for everybody.
`HYPOTHESIS_PROFILE=explore pytest` searches afresh, and longer.

`make test-fast` leaves out what is slow: tests that are marked so, and all in the folders and files below, which train,
start processes or browsers, or repeat something a thousand times.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadline: machines that build in parallel stall for longer than any example takes.
settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

ROOT = Path(__file__).parent
SLOW = (
    "attacks",
    "benchmarks",
    "cli",
    "downlink/test_accuracy.py",
    "engines",
    "experiments",
    "learning",
    "mutation",
    "privacy/test_attack.py",
    "privacy/test_audit.py",
    "privacy/test_lemmas.py",
    "privacy/test_lying.py",
    "privacy/test_many_rounds.py",
    "privacy/test_planner.py",
    "privacy/test_weights.py",
    "protocol/test_exactness.py",
    "protocol/test_exclusion.py",
    "protocol/test_faults.py",
    "protocol/test_fuzz.py",
    "protocol/test_interleavings.py",
    "protocol/test_lying_server.py",
    "protocol/test_memory.py",
    "report",
    "test_bugs_surface.py",
    "test_http_example.py",
    "test_install.py",
    "test_notebook.py",
    "test_readme.py",
    "test_site.py",
    "test_snippets.py",
    "vectors/test_verify.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test-fast` leaves out."""
    slow = [ROOT / part for part in SLOW]
    for item in items:
        if any(item.path.is_relative_to(part) for part in slow):
            item.add_marker(pytest.mark.slow)
