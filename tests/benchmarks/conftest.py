"""The benchmarks live beside src, not in the package: put the repository on the path.

This directory must stay without an `__init__.py`, or it would be found as `benchmarks` in their place.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))


@pytest.fixture
def setting() -> Any:
    """Ten clients, of whom two drop out."""
    from benchmarks.setting import Setting

    return Setting(clients=10, dim=600, alpha=0.5, dropout=0.2, modulus_bits=16, seed=3)
