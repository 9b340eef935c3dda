"""Result files: what was measured, with all that is needed to measure it again.

`numbers` follow from seed, configuration and commit, up to floating point. `timings` are measured and differ each time.
Files of trainings hold the commit of every run; `commit` then names them all.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sparsesecagg import __version__
from sparsesecagg.files import write_atomically

ROOT = Path(__file__).parents[2]


def describe(name: str, scale: str, seed: int, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies a measurement."""
    return {
        "name": name,
        "scale": scale,
        "seed": seed,
        "configuration": dict(configuration),
        "version": __version__,
    }


def write(
    path: Path,
    identity: Mapping[str, Any],
    numbers: Mapping[str, Any],
    timings: Mapping[str, Any],
    complete: bool,
    *,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write one result file and return what it holds; `about` has seeds, data, commit and load before the start."""
    scale = "" if identity["scale"] == "default" else f" --{identity['scale']}"
    result = {
        "command": f"sparsesecagg reproduce {identity['name']}{scale} --seed {identity['seed']}",
        **identity,
        "complete": complete,
        "seeds": about["seeds"],
        "data": about["data"],
        "commit": about["commit"],
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {**machine(), "load_before": about["load_before"]},
        "numbers": numbers,
        "timings": timings,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(result, indent=1, allow_nan=False) + "\n")
    return read(path)


def read(path: Path) -> dict[str, Any]:
    """Read a result file."""
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def machine() -> dict[str, Any]:
    """Return what the machine is, without its name."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def commit() -> str | None:
    """Return the commit that was measured, with a + if files were changed since; None outside of a repository."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "experiments")
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed else "")


def clean(commits: str | None) -> bool:
    """Return whether a commit, or each of several, stands for what was measured."""
    return bool(commits) and "+" not in str(commits)


def _git(*arguments: str) -> str:
    return subprocess.run(  # noqa: S603
        ["git", *arguments],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.strip()
