"""Arrays side by side: each in blocks of its own, what a round changes close together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.downlink import BLOCK, Spread, StepLog
from sparsesecagg.protocol import Parameters, RoundOptions


@given(st.lists(st.integers(1, 1200), min_size=1, max_size=5), st.sampled_from([None, 1, 3, 10]))
def test_arrays_come_back_as_they_were(sizes: list[int], length: int | None) -> None:
    random = np.random.default_rng(sum(sizes))
    turns = None if length is None else random.integers(0, length, sum(sizes))
    arrays = [random.standard_normal(size).astype(np.float32) for size in sizes]
    spread = Spread(sizes, turns)
    vector = spread.join(arrays)
    assert len(vector) == spread.size == sum(-(-size // BLOCK) * BLOCK for size in sizes)
    for one, other in zip(arrays, spread.split(vector), strict=True):
        assert np.array_equal(one, other)


def test_coordinates_of_one_turn_are_neighbours_inside_their_array() -> None:
    turns = np.array([2, 0, 1, 0, 1, 0, 2])
    vector = Spread([4, 3], turns).join([np.arange(1, 5), np.arange(5, 8)])
    assert vector[:4].tolist() == [2, 4, 3, 1]
    assert vector[BLOCK : BLOCK + 3].tolist() == [6, 5, 7]


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.037, 1.0])
@pytest.mark.parametrize("group_size", [10, 5])
def test_a_pattern_knows_what_its_rounds_send_together(alpha: float, group_size: int) -> None:
    """A round's slice has exactly the numbers that are its turn."""
    shape = Parameters.create(10, 1003, RoundOptions(alpha=alpha, group_size=group_size)).shape
    turns = shape.turns(bytes(32))
    if alpha == 1:
        assert turns is None
        return
    assert turns is not None and len(turns) == 1003
    for number in (1, 2, 7):
        for group in range(10 // group_size):
            pieces = shape.masked_sum(group, number, bytes(32), bytes(32)).indices()
            sent = np.concatenate([np.arange(1003)[piece] for piece in pieces])
            assert np.array_equal(np.sort(sent), np.flatnonzero(np.isin(turns, np.unique(turns[sent]))))
            assert len(np.unique(turns[sent])) == pytest.approx(alpha * (turns.max() + 1), rel=0.01)


def test_a_step_costs_in_proportion_to_the_part_that_a_round_covers() -> None:
    """A tenth of the coordinates, spread over the whole model, for about a tenth of the bytes."""
    dim, random = 100_000, np.random.default_rng(1)
    turns = Parameters.create(10, dim, RoundOptions(alpha=0.1)).shape.turns(bytes(32))
    sizes = []
    for order in (turns, None):
        spread = Spread([dim], order)
        model = random.standard_normal(dim).astype(np.float32)
        log = StepLog(spread.join([model]), 4)
        log.advance(spread.join([np.where(turns == 3, model + np.float32(0.01), model)]))
        sizes.append(len(log.for_node(0)))
    assert sizes[0] < 0.12 * sizes[1]
