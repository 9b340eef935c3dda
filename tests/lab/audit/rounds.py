"""Small attacked runs for the tests of the attacker: everything in them follows from a seed."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sparsesecagg.simulate.simulation import entropy_of_run
from sparsesecagg.lab.audit.audit import STEPS, AttackedRound, AttackedRun
from sparsesecagg.protocol import Parameters, Stage


def steps_of(seed, dim, largest=STEPS):
    """Return each user's update in whole quantisation steps."""
    return lambda user: np.random.default_rng([seed, user, 1]).integers(-largest, largest + 1, dim)


def parameters(**options) -> Parameters:
    """Return parameters with `STEPS` quantisation steps per unit, so that updates are exact."""
    params = Parameters.create(**options)
    return params.replace(clip=params.quantizer.limit / STEPS)


def attacked_run(params: Parameters, *, colluders: Sequence[int] = (), seed: int = 0, **options: Any) -> AttackedRun:
    """Set up a run of seeded users, some of which collude."""
    return AttackedRun(params, colluders=colluders, entropy_of=entropy_of_run(seed), **options)


def next_round(
    run: AttackedRun, *, dropped: Iterable[int] = (), weights: Sequence[int] | None = None, seed: int = 0
) -> AttackedRound:
    """Run the next round, and attack it."""
    steps = steps_of(seed, run.params.dim)
    return run.round(lambda user: steps(user) / STEPS, drops=dict.fromkeys(dropped, Stage.UPLOAD), weights=weights)


def attacked(
    params: Parameters,
    *,
    colluders: Sequence[int] = (),
    dropped: Iterable[int] = (),
    weights: Sequence[int] | None = None,
    seed: int = 0,
) -> AttackedRound:
    """Run the first round of a run, and attack it."""
    return next_round(attacked_run(params, colluders=colluders, seed=seed), dropped=dropped, weights=weights, seed=seed)


def committee_of(params, number=0):
    """Return the users of a committee; who drops or colludes does not change it."""
    run = attacked_run(params)
    for pod in run.run.server.groups.pods:
        if pod.first <= number < pod.first + len(pod.committees):
            return pod.users[pod.committees[number - pod.first]].tolist()
    raise ValueError(number)
