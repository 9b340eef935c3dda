"""What can go wrong between Flower and the protocol, and how a user of `flwr run` gets to see it.

When a ServerApp raises, Flower logs a traceback through its own frames and Ray's, then an exit code and the address of
a page. A mistake in the settings has a sentence that names the remedy, and it would be lost above all that. So Flower's
logger gets a filter: it leaves the traceback out for errors that say themselves what to change, and repeats the
sentence below the exit code. All other errors keep their tracebacks.
"""

from __future__ import annotations

import logging

from sparsesecagg.errors import InvalidInput, ProtocolError, RoundRefused, ThresholdNotMet, TooLittleOpened, WrongStep

_LOG = logging.getLogger("flwr")
_EXIT = "Exit Code:"
CLIENT_LINE = "@app.train(mods=[secagg_mod])"
SERVER_LINE = "strategy = SecAgg(FedAvg(...), ...)"
_GONE = "more nodes must stay to the end: see why they dropped out (above, and in their own logs), or raise timeouts="
_REMEDIES: dict[type[ProtocolError], str] = {
    ThresholdNotMet: _GONE,
    TooLittleOpened: f"{_GONE}, or use larger committees (committee_size=)",
    RoundRefused: "a node's owner sets what it demands in its node-config; `sparsesecagg doctor` compares both sides",
}


def remedy_of(error: Exception) -> str:
    """Return what would keep a round from failing in this way; nothing if the error says it itself."""
    return next((words for kind, words in _REMEDIES.items() if isinstance(error, kind)), "")


class MissingMod(ProtocolError):
    """The server has secure aggregation switched on, the ClientApp has not."""

    def __init__(self, nodes: int, found: str) -> None:
        self.nodes = nodes
        super().__init__(
            f"the ClientApp of {nodes} node(s) ran its own train function on a message of the key exchange ({found}): "
            f"the line {CLIENT_LINE} is missing in the ClientApp, with `from sparsesecagg.flower import secagg_mod`"
        )


class MissingStrategy(ProtocolError):
    """The ClientApp has secure aggregation switched on, the server has not; nothing was trained or sent."""

    def __init__(self) -> None:
        super().__init__(
            "the server asked for a model in the clear, and this ClientApp sends none: the line "
            f"{SERVER_LINE} is missing in the ServerApp, with `from sparsesecagg.flower import SecAgg`"
        )


class NotInRun(ProtocolError):
    """The node's ledger knows nothing of this run: it was not there when the run began, or it has another ledger."""

    def __init__(self) -> None:
        super().__init__("this node has no keys in this run; it can take part in the next one")


class NoModel(WrongStep):
    """The node has kept no model that the steps lead from; it needs the whole one."""

    def __init__(self) -> None:
        super().__init__("this node holds none of the models that it starts from, and needs the whole one")


class UnprovenNode(ProtocolError):
    """A node that does not prove to be a user of the roster, or a second one for the same user; it is rejected."""

    def __init__(self, node: int, problem: str) -> None:
        self.node = node
        super().__init__(f"node {node} is rejected: {problem}")


class EmptyCohort(ProtocolError):
    """The wrapped strategy chose nobody to train."""

    def __init__(self) -> None:
        super().__init__("the wrapped strategy chose no node for this round")


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
