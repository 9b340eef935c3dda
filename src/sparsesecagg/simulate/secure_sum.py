"""`secure_sum`: a first try in three lines, the whole protocol in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.protocol.combine import Result
from sparsesecagg.protocol.parameters import Parameters, RoundOptions
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.stages import Stage
from sparsesecagg.simulate.run import Cohort, run_round


def secure_sum(
    updates: Sequence[ArrayLike],
    *,
    weights: Sequence[int] | None = None,
    drops: Mapping[int, Stage | str] | None = None,
    options: RoundOptions | None = None,
) -> Result:
    """Add up the users' vectors as a server would that sees none of them; `result.sum()`, `result.mean()`.

    Updates are vectors of floats or integers, all of one length. `drops` says at which stage a user drops out, by the
    stage or its name. `options` say how users aggregate: alpha, pattern, modulus_bits, … The clip is by
    default the largest magnitude in the updates, which only works because all of them are in one process here: in a
    deployment it must be public beforehand.
    """
    if not isinstance(options, RoundOptions | None):
        raise InvalidInput("options", f"must be RoundOptions, got {type(options).__name__}: RoundOptions(alpha=0.1)")
    if not hasattr(updates, "__len__"):
        raise InvalidInput("updates", f"must be a list of vectors, one per user, got {type(updates).__name__}")
    require("updates", len(updates) >= 3, f"must come from at least 3 users, got {len(updates)}")
    arrays = [_vector(user, update) for user, update in enumerate(updates)]
    if weights is not None and len(weights) != len(arrays):
        raise InvalidInput("weights", f"must be one for each of {len(arrays)} users, got {len(weights)}")
    for weight in weights or ():
        if not isinstance(weight, int | np.integer) or isinstance(weight, bool) or weight < 0:
            raise InvalidInput("weights", f"must be whole numbers of at least 0, got {weight!r}")
    options = options or RoundOptions()
    if options.clip is None:
        largest = max(float(np.abs(array).max(initial=0.0)) for array in arrays)
        options = replace(options, clip=largest if np.isfinite(largest) and largest > 0 else 1.0)
    if weights is not None:
        options = replace(options, max_weight=max(weights))
    params = Parameters.create(len(arrays), max(1, arrays[0].size), options)
    cohort = Cohort(Policy(patterns=frozenset({params.pattern})))  # The caller that names a pattern has opted in.
    return run_round(params, arrays, cohort, weights=weights, drops=_stages(drops or {}, len(arrays))).result


def _vector(user: int, update: Any) -> NDArray[np.floating[Any]]:
    """Return an update as floats; integers are exact up to 2^53."""
    array = np.asarray(update)
    require("updates", array.dtype.kind in "fiub", f"must be vectors of numbers, got {array.dtype} from user {user}")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _stages(drops: Mapping[int, Stage | str], clients: int) -> dict[int, Stage]:
    """Return the stage at which each user drops out."""
    found = {}
    for user, stage in drops.items():
        require("drops", 0 <= user < clients, f"must name users from 0 to {clients - 1}, got {user}")
        name = stage.name if isinstance(stage, Stage) else str(stage).upper()
        require("drops", name in Stage.__members__, f"must name one of {', '.join(Stage.__members__)}, got {stage!r}")
        found[user] = Stage[name]
    return found
