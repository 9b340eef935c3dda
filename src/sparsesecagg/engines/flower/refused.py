"""Strategies that can't be wrapped, by name, with the reason.

Secure aggregation gives a strategy one sum. Whoever needs to look at single updates gets nothing to look at.
"""

from __future__ import annotations

from flwr.serverapp.strategy import Strategy

from sparsesecagg.errors import InvalidInput

_SINGLE = "it compares single updates, and secure aggregation shows the server only their sum"
_TREES = "it collects trees as bytes, which have no sum"
_INSIDE_OUT = "wrap the other way round: {name}(SecAgg(...), ...) with secagg_mod before the clipping mod"

_REFUSED = {
    "Krum": _SINGLE,
    "MultiKrum": _SINGLE,
    "Bulyan": _SINGLE,
    "FedMedian": _SINGLE,
    "FedTrimmedAvg": _SINGLE,
    "QFedAvg": "it weighs each update by that client's own loss",
    "FedXgbBagging": _TREES,
    "FedXgbCyclic": _TREES,
    "DifferentialPrivacyServerSideFixedClipping": "the server would have to clip single updates",
    "DifferentialPrivacyServerSideAdaptiveClipping": "the server would have to clip single updates",
    "DifferentialPrivacyClientSideAdaptiveClipping": "it reads a bit of every single client",
    "DifferentialPrivacyClientSideFixedClipping": _INSIDE_OUT,
    "SecAgg": "it is already secure aggregation",
}


def require_averaging(strategy: object) -> Strategy:
    """Return the strategy, or say by name why it can't be wrapped."""
    if not isinstance(strategy, Strategy):
        raise InvalidInput(
            "strategy",
            f"must be a strategy of flwr.serverapp.strategy (the Message API), not {type(strategy).__name__}",
        )
    for ancestor in type(strategy).__mro__:
        if ancestor.__name__ in _REFUSED:
            name = ancestor.__name__
            raise InvalidInput("strategy", f"can't be {name}: {_REFUSED[name].format(name=name)}")
    return strategy
