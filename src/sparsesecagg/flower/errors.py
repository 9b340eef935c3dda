"""What can go wrong between Flower and the protocol, with the remedy in the sentence."""

from __future__ import annotations

from sparsesecagg.errors import PolicyViolation, ProtocolError, ThresholdNotMet, TooLittleOpened

CLIENT_LINE = "@app.train(mods=[secagg_mod])"
SERVER_LINE = "strategy = SecAgg(FedAvg(...))"
_GONE = "more nodes must stay to the end: see why they dropped out (above, and in their own logs), or raise timeout="
_REMEDIES: dict[type[ProtocolError], str] = {
    ThresholdNotMet: _GONE,
    TooLittleOpened: _GONE,
    PolicyViolation: "a node's owner sets what it demands in its node-config",
}


def remedy_of(error: Exception) -> str:
    """Return what would keep a round from failing in this way; nothing if the error says it itself."""
    return next((words for kind, words in _REMEDIES.items() if isinstance(error, kind)), "")


class MissingMod(ProtocolError):
    """The server has secure aggregation switched on, the ClientApp has not."""

    def __init__(self, nodes: int, found: str) -> None:
        super().__init__(
            f"the ClientApp of {nodes} node(s) did not let secagg_mod answer the key exchange ({found}): either the "
            f"line {CLIENT_LINE} is missing in it (with `from sparsesecagg.flower import secagg_mod`), or another mod "
            "runs first: put secagg_mod first, in ClientApp(mods=[secagg_mod, ...]) if the app has such a list"
        )


class MissingStrategy(ProtocolError):
    """The ClientApp has secure aggregation switched on, the server has not; nothing was trained or sent."""

    def __init__(self) -> None:
        super().__init__(
            "the server asked for a model in the clear, and this ClientApp sends none: the line "
            f"{SERVER_LINE} is missing in the ServerApp, with `from sparsesecagg.flower import SecAgg`"
        )


class AppFailed(ProtocolError):
    """The ClientApp raised, or answered with something that is not an update. One text, whatever the reason was.

    What an app does depends on private data, so a server that learned how it failed would learn about them.
    """

    def __init__(self) -> None:
        super().__init__("the ClientApp failed in this round; the log of the node says why")


class UnprovenNode(ProtocolError):
    """A node that does not prove to be a user of the roster, or a second one for the same user; it is rejected."""

    def __init__(self, node: int, problem: str) -> None:
        super().__init__(f"node {node} is rejected: {problem}")


class RefusedByAll(ProtocolError):
    """No round has succeeded, and every node refused this one for the same reason: the next would fail alike."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"every node refused for the same reason, so the run stops: {reason}")
