"""Result files: what was measured, of which commit and protocol, with which settings, on which machine.

A result is worth publishing only if it can be repeated: from a clean commit, on a machine with nothing else to do. So
`begin` looks at both before anything is measured, and the file says what it found.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol.parameters import VERSION

DIRECTORY = Path(__file__).resolve().parent / "results"
QUIET = 1.0
"""A load below this before the start means that the machine had nothing else to do."""
_PACKAGES = ("numpy", "cryptography", "flwr", "pycryptodome")
_MEASURED = ("src", "benchmarks", ":!benchmarks/results")
"""What must be committed: the results themselves, and pages made from them, may change while measuring."""


def begin(publish: bool = False) -> dict[str, Any]:
    """Return the conditions before a measurement, for `write`; with `publish`, refuse a tree with changes.

    The load is the mean of the last minute.
    """
    commit = _commit()
    if publish and commit is not None and commit.endswith("+"):
        raise InvalidInput("save", "must wait until all changes in src and benchmarks are committed")
    load = os.getloadavg()[0]
    return {"commit": commit, "load_before": round(load, 2), "quiet": load < QUIET}


def machine() -> dict[str, Any]:
    """Return what a reader needs to judge a number."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        **{name: found for name in _PACKAGES if (found := _version(name)) is not None},
    }


def write(name: str, payload: dict[str, Any], begun: dict[str, Any], directory: Path | None = None) -> Path:
    """Write results/<name>.json and return its path; `begun` is what `begin` returned before the measurement."""
    path = (directory or DIRECTORY) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"name": name, **payload, "machine": {**machine(), **begun}, "protocol": VERSION}
    content["commit"] = content["machine"].pop("commit")
    path.write_text(json.dumps(_rounded(content), indent=1, allow_nan=False) + "\n")
    return path


def names(directory: Path | None = None) -> list[str]:
    """Return the names of the result files that there are."""
    return sorted(path.stem for path in (directory or DIRECTORY).glob("*.json"))


def exists(name: str, directory: Path | None = None) -> bool:
    """Tell whether there is such a result file."""
    return name in names(directory)


def read(name: str, directory: Path | None = None) -> dict[str, Any]:
    """Return results/<name>.json."""
    content: dict[str, Any] = json.loads(((directory or DIRECTORY) / f"{name}.json").read_text())
    return content


def _rounded(value: Any) -> Any:
    """Cut floats to five digits: more are noise, and make a change of results hard to read."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value


def _commit() -> str | None:
    """Return the commit that is measured, with a + if something was changed since; None outside a repository."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", *_MEASURED)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(  # noqa: S603  # Fixed arguments.
        ["git", *arguments],  # noqa: S607
        cwd=DIRECTORY.parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
