"""Result files: what was measured, when, with which settings, on which machine and versions."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).resolve().parent / "results"
_PACKAGES = ("numpy", "cryptography", "flwr", "pycryptodome")


def machine() -> dict[str, Any]:
    """Return what a reader needs to judge a number; a load above the cores means a busy machine."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        **{name: found for name in _PACKAGES if (found := _version(name)) is not None},
    }


def write(name: str, payload: dict[str, Any], directory: Path | None = None) -> Path:
    """Write results/<name>.json and return its path."""
    path = (directory or DIRECTORY) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"name": name, **payload, "machine": machine(), "commit": _commit()}
    path.write_text(json.dumps(_rounded(content), indent=1, allow_nan=False) + "\n")
    return path


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
    """Return the commit that was measured, or None outside a repository."""
    command = ["git", "-C", str(DIRECTORY.parent), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # Fixed arguments.
    except (OSError, subprocess.CalledProcessError):
        return None
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
