"""Work that was cut off goes on, and never mixes with work of another kind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from experiments.common.work import OutOfTime, Work
from sparsesecagg.errors import InvalidInput

IDENTITY: dict[str, Any] = {"name": "fig5", "seed": 0, "configuration": {"lr": 0.01, "clients": (25, 100)}}


def test_a_finished_cell_is_not_computed_again(tmp_path: Path) -> None:
    assert Work(tmp_path / "w", IDENTITY).cell("a", lambda: {"x": (1, 2)}) == {"x": [1, 2]}
    assert Work(tmp_path / "w", IDENTITY).cell("a", lambda: pytest.fail("computed twice")) == {"x": [1, 2]}


def test_a_cell_that_failed_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("cut off")

    with pytest.raises(RuntimeError):
        Work(tmp_path / "w", IDENTITY).cell("a", fail)
    assert Work(tmp_path / "w", IDENTITY).cell("a", lambda: 7) == 7


def test_work_of_another_configuration_is_named_as_stale(tmp_path: Path) -> None:
    Work(tmp_path / "w", IDENTITY)
    other = IDENTITY | {"configuration": {"lr": 0.05, "clients": (25, 100)}}
    with pytest.raises(InvalidInput, match=r"fresh is needed: .*stale.*configuration.lr 0.01 \(now 0.05\)"):
        Work(tmp_path / "w", other)
    assert not Work(tmp_path / "w", other, fresh=True).resumed


def test_finished_work_begins_anew(tmp_path: Path) -> None:
    work = Work(tmp_path / "w", IDENTITY)
    work.cell("a", lambda: 1)
    assert work.resumed
    work.finish()
    again = Work(tmp_path / "w", IDENTITY)
    assert not again.resumed
    assert again.cell("a", lambda: 2) == 2


def test_no_cell_begins_after_the_deadline(tmp_path: Path) -> None:
    work = Work(tmp_path / "w", IDENTITY, deadline=time.monotonic() - 1)
    with pytest.raises(OutOfTime):
        work.cell("a", lambda: 1)
