"""What a check is: a statement, what was measured, what it is held against, and how often it errs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsesecagg.privacy.anonymity import log_binomial


def check(
    source: str,
    what: str,
    measured: Any,
    *,
    holds: bool,
    error_rate: float,
    bound: Any = None,
    expected: Any = None,
    note: str = "",
) -> dict[str, Any]:
    """Describe one check. `error_rate` is 0 where nothing is left to chance: the same run gives the same counts."""
    against = {"expected": expected} if bound is None else {"bound": bound}
    return {
        "source": source,
        "what": what,
        "measured": measured,
        **against,
        "error_rate": error_rate,
        "holds": bool(holds),
        "note": note,
    }


def exceeds(count: int, trials: int, bound: float, error_rate: float) -> bool:
    """Whether `count` of `trials` shows a probability above `bound`: as many would come with less than `error_rate`."""
    if count == 0 or bound >= 1:
        return False
    if bound == 0:
        return True
    counts = np.arange(count, trials + 1)
    return float(np.exp(log_binomial(trials, counts, bound)).sum()) < error_rate


def t_statistic(samples: Sequence[float], expected: float) -> float:
    """Return the samples' mean less what is expected, in standard errors."""
    values = np.asarray(samples, np.float64)
    return float((values.mean() - expected) / (values.std(ddof=1) / math.sqrt(len(values))))
