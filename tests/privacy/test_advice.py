"""Settings that protect little are named, and the warning is true."""

import numpy as np
import pytest

from sparsesecagg.privacy.advice import advice, weight_equations
from sparsesecagg.privacy.view import View
from sparsesecagg.protocol import RoundParameters, Transcript, run_round
from sparsesecagg.protocol.simulation import entropy_of_round


def weighted(**settings) -> RoundParameters:
    return RoundParameters.create(**{"clients": 25, "dim": 300, "max_weight": 100, "modulus_bits": 16} | settings)


def warns_of_weights(params: RoundParameters) -> bool:
    return any("private weights" in sentence for sentence in advice(params))


def weights_solved(params: RoundParameters, weights: list[int]) -> int:
    """How many weights follow from the aggregate and the public committees of a real round, by linear algebra."""
    transcript = Transcript()
    outcome = run_round(
        params,
        lambda user: np.zeros(params.dim),
        weights=weights,
        entropy_of=entropy_of_round(3, 0),
        transcript=transcript,
    )
    pattern = View(transcript, {}).members.pattern
    serves = np.array([np.isin(np.arange(params.clients), pattern.committee(b)) for b in range(params.layout.blocks)])
    found, _, rank, _ = np.linalg.lstsq(serves.astype(float), outcome.result.weight_per_block)
    assert rank <= weight_equations(params)
    _, _, directions = np.linalg.svd(serves)
    certain = np.sum(directions[:rank] ** 2, axis=0) > 1 - 1e-9
    assert np.allclose(found[certain], np.array(weights)[certain])
    return int(certain.sum())


@pytest.mark.parametrize(
    ("alpha", "stripes", "equations", "solved", "warned"),
    [
        (0.4, 4, 17, 0, True),
        (0.3, 4, 37, 25, True),
        (0.4, 1, 5, 0, False),
        (0.4, 2, 9, 0, False),
        (1.0, 4, 1, 0, False),
    ],
)
def test_sums_that_are_enough_to_solve_for_private_weights_are_warned_about(alpha, stripes, equations, solved, warned):
    params = weighted(alpha=alpha, stripes=stripes)
    weights = np.random.default_rng(4).integers(1, 101, 25).tolist()
    assert weight_equations(params) == equations
    assert weights_solved(params, weights) == solved
    assert warns_of_weights(params) is warned


def test_equal_weights_need_no_warning():
    assert not warns_of_weights(weighted(alpha=0.3, max_weight=0))
