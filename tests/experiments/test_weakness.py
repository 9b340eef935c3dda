"""The page on the weakness: its script prints what it says, its figures are measured or computed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from experiments import figures_in_prose, publish
from experiments.claims import weakness
from sparsesecagg.lab.audit.theory import pairwise_revealed_fraction

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "weakness_in_30_lines.py"
PAGE = publish.WEAKNESS.read_text(encoding="utf-8")


def test_thirty_lines_of_numpy_show_how_much_is_read() -> None:
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 30
    assert [line for line in lines if line.startswith(("import", "from"))] == ["import numpy as np"]
    ended = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True)  # noqa: S603
    nobody, third = (float(share) for share in re.findall(r"(\d+\.\d)% of all values read", ended.stdout))
    assert 28 <= nobody <= 30
    assert 51 <= third <= 53


def test_the_computed_table_is_the_formulas() -> None:
    assert weakness.published(PAGE) == PAGE, "run python -m experiments.publish"
    assert "| 0.1 | 0.1 | 1/3 |" in PAGE


def test_the_share_falls_only_to_the_figure_that_the_page_states() -> None:
    shares = [round(100 * pairwise_revealed_fraction(alpha, 100, 0.3, 1 / 3)) for alpha in (1e-4, 1.0)]
    assert f"falls only from {shares[0]} % (α → 0) to {shares[1]} %" in PAGE


def test_measured_figures_are_marked() -> None:
    assert len(figures_in_prose.MARK.findall(PAGE)) > 20
