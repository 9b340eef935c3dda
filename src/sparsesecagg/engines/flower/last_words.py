"""An error of ours is the last line that a user of `flwr run` sees.

When a ServerApp raises, Flower logs a traceback through its own frames and Ray's, then an exit code and the address of
a page. A mistake in the settings has a sentence that names the remedy, and it would be lost above all that. So Flower's
logger gets a filter: it leaves the traceback out for errors that say themselves what to change, and repeats the
sentence below the exit code. All other errors keep their tracebacks.
"""

from __future__ import annotations

import logging

from sparsesecagg.engines.flower.errors import MissingMod
from sparsesecagg.errors import InvalidInput

_LOG = logging.getLogger("flwr")
_EXIT = "Exit Code:"


class LastWords(logging.Filter):
    """Takes the traceback from our own sentences, and puts the last of them below Flower's exit code."""

    def __init__(self) -> None:
        super().__init__()
        self._sentence = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change records about our own errors; let all of them pass."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, InvalidInput | MissingMod):
            self._sentence = f"SecAgg: {error}"
            record.msg, record.args = f"the run was stopped. {self._sentence}", ()
            record.exc_info = record.exc_text = None
        elif self._sentence and str(record.msg).startswith(_EXIT):
            record.msg = f"{str(record.msg).rstrip()}\n\n{self._sentence}"
        return True


def listen() -> None:
    """Put one such filter on Flower's logger."""
    if not any(isinstance(each, LastWords) for each in _LOG.filters):
        _LOG.addFilter(LastWords())
