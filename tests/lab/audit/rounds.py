"""Small attacked runs for the tests of the attacker: everything in them follows from a seed."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sparsesecagg.lab.audit.adversary import Adversary
from sparsesecagg.lab.audit.audit import STEPS, AttackedRound, AttackedRun
from sparsesecagg.protocol import Parameters, RoundOptions, Stage
from sparsesecagg.simulate.simulation import entropy_of_run


def steps_of(seed, dim, largest=STEPS):
    """Return each user's update in whole quantisation steps."""
    return lambda user: np.random.default_rng([seed, user, 1]).integers(-largest, largest + 1, dim)


def parameters(clients: int, dim: int, roster=None, **options) -> Parameters:
    """Return parameters with `STEPS` quantisation steps per unit, so that updates are exact."""
    params = Parameters.create(clients, dim, RoundOptions(**options), session=bytes(32), roster=roster)
    return params.replace(clip=params.quantizer.limit / STEPS)


def attacked_run(params: Parameters, *, colluders: Iterable[int] = (), seed: int = 0, **options: Any) -> AttackedRun:
    """Set up a run of seeded users, some of which collude."""
    return AttackedRun(params, colluders=list(colluders), entropy_of=entropy_of_run(seed), **options)


def next_round(
    run: AttackedRun, *, dropped: Iterable[int] = (), weights: Sequence[int] | None = None, seed: int = 0
) -> AttackedRound:
    """Run the next round, and attack it."""
    steps = steps_of(seed, run.params.dim)
    return run.round(lambda user: steps(user) / STEPS, drops=dict.fromkeys(dropped, Stage.UPLOAD), weights=weights)


def attacked(
    params: Parameters,
    *,
    colluders: Iterable[int] = (),
    dropped: Iterable[int] = (),
    weights: Sequence[int] | None = None,
    seed: int = 0,
) -> AttackedRound:
    """Run the first round of a run, and attack it."""
    return next_round(attacked_run(params, colluders=colluders, seed=seed), dropped=dropped, weights=weights, seed=seed)


def users_of(adversary: Adversary, indices: Iterable[int]) -> set[int]:
    """Return users by number."""
    return {adversary.epoch.user(index) for index in indices}
