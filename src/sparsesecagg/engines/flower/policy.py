"""The client's policy, read from the node's own configuration and from the run's.

The owner of a node sets it with `flower-supernode --node-config`, the author of an app in `[tool.flwr.app.config]`.
Where both speak, the stricter one counts: whoever submits a run can't talk a node out of its demands. A node that has a
roster demands authenticated rounds, or a server could turn authentication off by not speaking of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context

from sparsesecagg.engines.flower.identity import IDENTITY_KEYS, is_enrolled
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Policy

PREFIX = "secagg-"


def policy_of(context: Context) -> Policy:
    """Return the node's policy: the stricter of node and run configuration, over the package's defaults."""
    settings: dict[str, Any] = {}
    _refuse_unknown(context.node_config)
    for config in (context.node_config, context.run_config):
        for option, (name, read, stricter) in _OPTIONS.items():
            if (key := PREFIX + option) in config:
                wanted = read(key, config[key])
                settings[name] = stricter(settings[name], wanted) if name in settings else wanted
    if is_enrolled(context):
        settings["authenticated"] = True
    return Policy(**settings)


def _refuse_unknown(node_config: Mapping[str, Any]) -> None:
    """Raise for a demand that nobody would read: a typing error must not weaken a policy."""
    for key in node_config:
        if key.startswith(PREFIX) and key.removeprefix(PREFIX) not in _OPTIONS and key not in IDENTITY_KEYS:
            known = ", ".join([*(PREFIX + option for option in _OPTIONS), *IDENTITY_KEYS])
            raise InvalidInput(key, f"in the node-config is no demand that a client can make: use one of {known}")


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(key, f"must be a whole number of at least 1, not {value!r}")
    return value


def _fraction(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise InvalidInput(key, f"must be a number from 0 to below 1, not {value!r}")
    return float(value)


def _positive(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InvalidInput(key, f"must be a positive number, not {value!r}")
    return float(value)


def _switch(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(key, f"must be true or false, not {value!r}")
    return value


def _patterns(key: str, value: Any) -> frozenset[str]:
    names = frozenset(str(value).replace(",", " ").split())
    if not names or not names <= PATTERNS.keys():
        raise InvalidInput(key, f"must list some of {', '.join(PATTERNS)}, not {value!r}")
    return names


def _bits(key: str, value: Any) -> frozenset[int]:
    words = str(value).replace(",", " ").split()
    if not words or not all(word.isdigit() and int(word) in WORD_BITS for word in words):
        raise InvalidInput(key, f"must list some of {', '.join(map(str, WORD_BITS))}, not {value!r}")
    return frozenset(int(word) for word in words)


def _both(one: frozenset[Any], other: frozenset[Any]) -> frozenset[Any]:
    return one & other


_OPTIONS: dict[str, tuple[str, Callable[[str, Any], Any], Callable[[Any, Any], Any]]] = {
    "min-clients": ("min_clients", _whole, max),
    "min-threshold": ("min_threshold", _fraction, max),
    "min-survivors": ("min_survivors", _whole, max),
    "max-exposure": ("max_exposure", _positive, min),
    "authenticated": ("authenticated", _switch, max),
    "patterns": ("patterns", _patterns, _both),
    "modulus-bits": ("modulus_bits", _bits, _both),
}
"""Name in a configuration: name in `Policy`, how to read it, which of two values is stricter."""
