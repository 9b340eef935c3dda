"""How all tests run.

Hypothesis draws the same examples everywhere by default, so a red test is red for everybody.
`HYPOTHESIS_PROFILE=explore pytest` searches afresh, and longer.

`make test-fast` leaves out the tests that are marked `slow`: they train, start processes or browsers, or repeat
something a thousand times.
"""

import os

import pytest

# Two workers share the cores: the threads that matrix products and torch would start in each only get in the way.
# Set before NumPy is imported, and inherited by the processes that tests start.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings  # noqa: E402  # After the environment is set.

# No deadline: machines that build in parallel stall for longer than any example takes.
settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with real deployments: they wait a lot, which the other worker fills with everything else."""
    items.sort(key=lambda item: item.path.name != "test_deployment.py")
