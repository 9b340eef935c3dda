"""`secure_sum`: a first try in three lines, the whole protocol in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparsesecagg.engines.in_process.run import run_round
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.result import Result
from sparsesecagg.protocol.stages import Stage
from sparsesecagg.protocol.work import Update


def secure_sum(
    updates: Sequence[Update],
    *,
    weights: Sequence[int] | None = None,
    drops: Mapping[int, Stage] | None = None,
    clip: float | None = None,
    **settings: Any,
) -> Result:
    """Add up the users' vectors as a server would that sees none of them; `result.sum()`, `result.mean()`.

    `settings` go to `Parameters.create`: alpha, pattern, modulus_bits, neighbours, threshold, … `drops` says at
    which stage a user falls silent. `clip` is by default the largest magnitude in the updates, which only works because
    all of them are in one process here: in a deployment it must be public beforehand.
    """
    if len(updates) < 3:
        raise InvalidInput("updates", f"must come from at least 3 users, not {len(updates)}")
    arrays = [np.asarray(update) for update in updates]
    if clip is None:
        largest = max(
            (float(np.abs(array).max(initial=0.0)) for array in arrays if array.dtype.kind == "f"), default=1.0
        )
        clip = largest if np.isfinite(largest) and largest > 0 else 1.0
    max_weight = max(weights) if weights is not None else 0
    params = Parameters.create(
        clients=len(arrays), dim=max(1, arrays[0].size), clip=clip, max_weight=max_weight, **settings
    )
    policy = Policy(patterns=frozenset({params.pattern}))  # Whoever names a pattern here has opted in.
    return run_round(params, arrays, weights=weights, drops=drops, policy=policy).result
