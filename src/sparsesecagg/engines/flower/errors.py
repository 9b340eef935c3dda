"""What can go wrong between Flower and the protocol."""

from __future__ import annotations

from sparsesecagg.errors import ProtocolError, RoundRefused, ThresholdNotMet, TooLittleOpened, WrongStep

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
