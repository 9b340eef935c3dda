"""One measurement in a process of its own: nobody else's memory or caches in it.

`measure(job, …)` starts `python -m benchmarks.child`, which does the job and prints its result as JSON, with the peak
memory of the process. A round that fails comes back as the error it was.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from benchmarks.setting import Setting
from sparsesecagg.errors import ProtocolError
from sparsesecagg.simulate.memory import peak

_ROOT = Path(__file__).resolve().parent.parent
JOBS = {
    "flower_secagg_plus": ("peer_flower", "measure"),
    "system": ("systems", "measure"),
    "whole": ("whole", "measure_with_steps"),
    "upload": ("lone_client", "measure_upload"),
    "scale": ("scale", "measure_round"),
}
"""Module and function of each job. An argument `setting` becomes a `Setting`."""


class ChildFailed(ProtocolError):
    """A round failed in its process; the text is the error's."""


def measure(job: str, **arguments: Any) -> dict[str, Any]:
    """Do a job in a fresh process and return what it printed, with `peak_memory_bytes`."""
    command = [sys.executable, "-m", "benchmarks.child", job, json.dumps(arguments)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)  # noqa: S603  # Our own program.
    if done.returncode:
        raise RuntimeError(f"measuring {job} {arguments} ended with code {done.returncode}:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "failed" in answer:
        raise ChildFailed(answer["failed"])
    return answer


def measure_system(system: str, setting: Setting) -> dict[str, Any]:
    """Run one round of a system, ours or the peer's."""
    if system in JOBS:
        return measure(system, setting=setting.settings())
    return measure("system", system=system, setting=setting.settings())


def _main(job: str, arguments: str) -> None:
    module, function = JOBS[job]
    given = json.loads(arguments)
    if "setting" in given:
        given["setting"] = Setting(**given["setting"])
    try:
        found = getattr(importlib.import_module(f"benchmarks.{module}"), function)(**given)
        answer = asdict(found) if is_dataclass(found) and not isinstance(found, type) else found
    except ProtocolError as problem:
        answer = {"failed": str(problem)}
    sys.stdout.write(json.dumps({**answer, "peak_memory_bytes": peak()}) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
