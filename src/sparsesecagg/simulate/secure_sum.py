"""`secure_sum`: a first try in three lines, the whole protocol in one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparsesecagg.errors import InvalidInput, require, require_type
from sparsesecagg.protocol.combine import Result
from sparsesecagg.protocol.parameters import MAX_WEIGHT, Parameters, RoundOptions
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.stages import Stage
from sparsesecagg.simulate.run import Cohort, run_round


def secure_sum(
    updates: Sequence[ArrayLike],
    *,
    weights: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    drops: Mapping[int, Stage | str] | None = None,
    options: RoundOptions | None = None,
) -> Result:
    """Add up the users' vectors as a server would that sees none of them; `result.sum()`, `result.mean()`.

    Updates are vectors of finite floats or integers, all of one length. `drops` says at which stage a user drops out,
    by the stage or its name. `options` say how users aggregate: alpha, pattern, modulus_bits, … The clip is by default
    the largest magnitude in the updates, which only works because all of them are in one process here: in a deployment
    it must be public beforehand.
    """
    require_type("options", options, RoundOptions, optional=True)
    arrays = [_vector(user, update) for user, update in enumerate(_list("updates", updates, "vectors"))]
    require("updates", len(arrays) >= 3, f"must come from at least 3 users, got {len(arrays)}")
    dim = max(1, arrays[0].size)
    for user, array in enumerate(arrays):
        same = array.shape == (dim,)
        require("updates", same, f"must be vectors of one length, here {dim}, got shape {array.shape} from user {user}")
    options = options or RoundOptions()
    if options.clip is None:
        options = replace(options, clip=max(float(np.abs(array).max()) for array in arrays) or 1.0)
    if weights is not None:
        weights = _weights(weights, len(arrays))
        options = replace(options, max_weight=max(weights))
    params = Parameters.create(len(arrays), dim, options)
    cohort = Cohort(Policy(patterns=frozenset({params.pattern})))  # The caller that names a pattern has opted in.
    stages = _stages({} if drops is None else drops, len(arrays))
    return run_round(params, arrays, cohort, weights=weights, drops=stages).result


def _list(option: str, values: Iterable[Any], what: str) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise InvalidInput(option, f"must be a list of {what}, one per user, got {type(values).__name__}") from None


def _vector(user: int, update: Any) -> NDArray[np.floating[Any]]:
    """Return an update as finite floats; integers are exact up to 2^53."""
    try:
        array = np.asarray(update)
    except ValueError:
        raise InvalidInput("updates", f"must be vectors, got lists of unequal length from user {user}") from None
    require("updates", array.dtype.kind in "fiub", f"must be vectors of numbers, got {array.dtype} from user {user}")
    finite = np.isfinite(array)
    if not finite.all():  # A node would send 0 instead, so as to tell nobody; here there is nothing to hide.
        raise InvalidInput("updates", f"must be finite, got {array[~finite][0]} from user {user}")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _weights(weights: Iterable[Any], users: int) -> list[int]:
    """Return the weights as Python's integers."""
    given = _list("weights", weights, "whole numbers")
    require("weights", len(given) == users, f"must be one for each of {users} users, got {len(given)}")
    for weight in given:
        if not isinstance(weight, int | np.integer) or isinstance(weight, bool) or not 0 <= weight <= MAX_WEIGHT:
            raise InvalidInput("weights", f"must be whole numbers from 0 to 2^40, got {weight!r}")
    require("weights", any(given), "must not all be 0")
    return [int(weight) for weight in given]


def _stages(drops: Mapping[int, Stage | str], clients: int) -> dict[int, Stage]:
    """Return the stage at which each user drops out."""
    found = {}
    if not isinstance(drops, Mapping):
        raise InvalidInput("drops", f"must map users to stages, as {{2: 'UPLOAD'}} does, got {type(drops).__name__}")
    for user, stage in drops.items():
        known = isinstance(user, int | np.integer) and 0 <= user < clients
        require("drops", known, f"must name users from 0 to {clients - 1}, got {user!r}")
        name = stage.name if isinstance(stage, Stage) else str(stage).upper()
        require("drops", name in Stage.__members__, f"must name one of {', '.join(Stage.__members__)}, got {stage!r}")
        found[int(user)] = Stage[name]
    return found
