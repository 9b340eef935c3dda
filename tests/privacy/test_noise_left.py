"""What is left of the noise when as few users stay as may, and all planned colluders take theirs away: at least μ."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np
import pytest

from sparsesecagg import Cohort, InProcessRun, Parameters, Policy, RoundOptions, Stage
from sparsesecagg.privacy.mechanism import Mechanism

DIM, CLIENTS, COLLUDERS = 96, 10, 1


class Silent(Mechanism):
    """A colluder's: it rounds and adds nothing, as if it had told the server its noise."""

    def steps(self, honest: int, entropy: Any, peak: float = inf) -> Any:
        return super().steps(honest, entropy, peak)[:2]


def variance_left(rounds: int, silent: int = COLLUDERS) -> tuple[float, float, int]:
    """Return the variance of sums without any update in them, μ, and how many values it was measured on."""
    options = RoundOptions(alpha=0.5, clip_norm=1.0, noise_multiplier=2.0, modulus_bits=24, dropout=0.1, colluding=0.1)
    params = Parameters.create(CLIENTS, DIM, options)
    assert params.mechanism is not None
    run = InProcessRun(params, Cohort(policy=Policy(server="semi-honest", colluding=COLLUDERS / CLIENTS)))
    quiet = Parameters.decode(params.encode())
    vars(quiet)["mechanism"] = Silent(**vars_of(params.mechanism))
    for user in range(silent):
        run.clients[user].params = quiet
    leaving = dict.fromkeys(range(params.threshold, CLIENTS), Stage.UPLOAD)
    found = []
    for number in range(rounds):
        # Others drop out in the next round, or they would have no keys for the one after.
        away = (
            leaving if number % 2 else dict.fromkeys(range(silent, silent + CLIENTS - params.threshold), Stage.UPLOAD)
        )
        result = run.round([np.zeros(DIM, np.float32)] * CLIENTS, drops=away).result
        assert len(result.survivors) == params.threshold
        found.append(result.total[result.updated])
    values = np.concatenate(found).astype(float)
    return float(np.mean(values**2)), params.mechanism.variance, len(values)


def vars_of(mechanism: Mechanism) -> dict[str, Any]:
    return {name: getattr(mechanism, name) for name in ("clip", "multiplier", "fraction", "length")}


@pytest.mark.parametrize("rounds", [40, pytest.param(2000, marks=pytest.mark.soak)])
def test_the_variance_of_opened_sums_is_never_below_the_planned_one(rounds: int) -> None:
    """Semi-honest: t − c honest users are left, just H of them, so the variance is just μ."""
    variance, planned, count = variance_left(rounds)
    assert abs(variance / planned - 1) < 5 * sqrt(2 / count)


def test_control_three_times_as_many_colluders_as_planned_leave_too_little() -> None:
    variance, planned, count = variance_left(40, silent=3)
    assert variance < planned * (1 - 5 * sqrt(2 / count))
