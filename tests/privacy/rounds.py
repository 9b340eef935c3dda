"""Small attacked rounds for the tests of the attacker: everything in them follows from a seed."""

import numpy as np

from sparsesecagg.privacy.audit import STEPS, AttackedRound, attack_round
from sparsesecagg.protocol import RoundParameters, Stage
from sparsesecagg.protocol.simulation import entropy_of_round


def steps_of(seed, dim, largest=STEPS):
    """Return each user's update in whole quantisation steps."""
    return lambda user: np.random.default_rng([seed, user, 1]).integers(-largest, largest + 1, dim)


def parameters(**options) -> RoundParameters:
    """Return parameters with `STEPS` quantisation steps per unit, so that updates are exact."""
    params = RoundParameters.create(**options)
    return params.replace(clip=params.quantizer.limit / STEPS)


def attacked(params, *, colluders=(), dropped=(), weights=None, seed=0) -> AttackedRound:
    """Run a round of seeded users, and attack it."""
    steps = steps_of(seed, params.dim)
    return attack_round(
        params,
        lambda user: steps(user) / STEPS,
        colluders=colluders,
        drops=dict.fromkeys(dropped, Stage.UPLOAD),
        weights=weights,
        entropy_of=entropy_of_round(seed, 1),
    )
