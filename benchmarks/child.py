"""One measurement in a process of its own: nobody else's memory or caches in it.

`measure(job, …)` starts `python -m benchmarks.child`, which does the job and prints its result as JSON, with the peak
memory of the process. A round that fails comes back as the error it was.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import memory
from benchmarks.cohort import Cohort
from sparsesecagg.errors import ProtocolError

_ROOT = Path(__file__).resolve().parent.parent


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


def _system(system: str, cohort: dict[str, Any]) -> dict[str, Any]:
    from benchmarks import peer_flower, systems

    if system == peer_flower.NAME:
        return asdict(peer_flower.measure(Cohort(**cohort)))
    return asdict(systems.measure(system, Cohort(**cohort)))


def _planned(cohort: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    from benchmarks import systems

    return asdict(systems.measure_planned(Cohort(**cohort), plan))


def _upload(**arguments: Any) -> dict[str, Any]:
    from benchmarks import lone_client

    return lone_client.measure_upload(**arguments)


def _scale(**arguments: Any) -> dict[str, Any]:
    from benchmarks import scale

    return scale.measure_round(**arguments)


def _whole(cohort: dict[str, Any], downlink_bits: int) -> dict[str, Any]:
    from benchmarks import whole

    return whole.measure_with_steps(Cohort(**cohort), downlink_bits)


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "system": _system,
    "planned": _planned,
    "upload": _upload,
    "scale": _scale,
    "whole": _whole,
}


def _main(job: str, arguments: str) -> None:
    try:
        answer = JOBS[job](**json.loads(arguments))
    except ProtocolError as problem:
        answer = {"failed": str(problem)}
    sys.stdout.write(json.dumps({**answer, "peak_memory_bytes": memory.peak()}) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
