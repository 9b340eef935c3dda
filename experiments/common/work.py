"""An experiment's checkpoints, so that one that was cut off goes on where it was.

A finished piece of work is a *cell*: a JSON file under the experiment's working folder. Training runs are folders of
`FederatedRun`, which checkpoint after every round. A working folder belongs to one configuration: what another one
left behind is refused as stale, never mixed in.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparsesecagg.errors import InvalidInput
from sparsesecagg.files import write_atomically

Json = Any
Report = Callable[[str, int, int], None]
"""Called with what is going on, how many pieces are done, and how many there are."""

_IDENTITY, _FINISHED = "work.json", "finished"


class OutOfTime(Exception):
    """The time that was given is used up; what is done is in the working folder."""


class Work:
    """The working folder of one experiment."""

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, Json],
        *,
        data_dir: Path | None = None,
        deadline: float | None = None,
        report: Report = lambda *_: None,
        fresh: bool = False,
    ) -> None:
        """Open or begin `folder` for the work that `identity` (name, scale, seed, configuration, version) describes."""
        self.folder, self.data_dir, self.report = folder, data_dir, report
        self.earlier: Mapping[str, Json] | None = None
        """The result file as it was, if it was measured on the same data: what is finished in it need not be redone."""
        self.commit: str | None = None
        self.save: Callable[[Any], object] = lambda _: None
        """Called with the findings so far, whenever a long piece is done."""
        self._deadline = deadline
        # Through JSON and back, because tuples come back as lists.
        wanted = json.loads(json.dumps(dict(identity)))
        if fresh or (folder / _FINISHED).exists():
            shutil.rmtree(folder, ignore_errors=True)
        begun = folder / _IDENTITY
        if begun.exists():
            if changed := _differences(json.loads(begun.read_text(encoding="utf-8")), wanted):
                raise InvalidInput(
                    "fresh",
                    f"is needed: {folder} is stale, it was begun with {'; '.join(changed)}. "
                    "Say --fresh to throw it away, or go back to what it was begun with",
                )
        else:
            folder.mkdir(parents=True, exist_ok=True)
            begun.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")

    @property
    def resumed(self) -> bool:
        """Whether there is earlier work in the folder."""
        return any(self.folder.glob("cells/*.json")) or any(self.folder.glob("runs/*"))

    def cell(self, key: str, compute: Callable[[], Json]) -> Json:
        """Return what `compute` gives, from an earlier time if it is done already."""
        path = self.folder / "cells" / f"{key}.json"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
        self.check_time()
        value = compute()
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, json.dumps(value, allow_nan=False))
        # As it will be read, so that a resumed experiment sees the same.
        return json.loads(path.read_text(encoding="utf-8"))

    def check_time(self) -> None:
        """Raise `OutOfTime` when the deadline has passed."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise OutOfTime

    def finish(self) -> None:
        """Mark the work as done: the next one begins anew."""
        (self.folder / _FINISHED).touch()


def _differences(begun: Mapping[str, Json], wanted: Mapping[str, Json], prefix: str = "") -> list[str]:
    """Return what two descriptions don't have in common, as `name old (now new)`."""
    found: list[str] = []
    for key in sorted({*begun, *wanted}):
        old, new = begun.get(key), wanted.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key} {old} (now {new})")
    return found
