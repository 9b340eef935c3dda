"""From an update to an upload: what is clipped is counted, whatever the size of the pieces."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.rounds import LENIENT, Run, small
from sparsesecagg.patterns.base import ArrayUpdate
from sparsesecagg.protocol import Stage
from sparsesecagg.simulate import Cohort, run_round


@pytest.mark.parametrize(("pattern", "alpha"), [("full", 1.0), ("sliced", 0.5), ("pairwise", 0.9)])
def test_clipped_values_are_counted(pattern: str, alpha: float) -> None:
    """Every second value is beyond the clip; a user counts those that it sends."""
    params = small(clients=8, dim=64, pattern=pattern, alpha=alpha)
    update = np.where(np.arange(64) % 2 == 0, 1.5, 0.5).astype(np.float32)
    run = Run(params)
    run.updates = [update] * 8
    result = run.round()
    beyond = int(result.contributors[::2].sum())
    assert sum(client.clipped for client in run.clients.values()) == beyond > 0
    assert result.clipped == (None if pattern == "pairwise" else beyond)


def test_values_at_the_clip_are_not_beyond_it() -> None:
    params = small(dim=6, clip=0.5)
    vectors = [np.array([0.5, -0.5, 0.25, 0.0, 0.501, -9.0], np.float32)] * 5
    outcome = run_round(params, vectors, Cohort(LENIENT))
    assert outcome.clipped == outcome.result.clipped == 10
    assert outcome.result.mean() == pytest.approx([0.5, -0.5, 0.25, 0.0, 0.5, -0.5], abs=1e-6)


def test_an_update_longer_than_a_piece_is_masked_in_one_go_with_the_next() -> None:
    """Two and a bit pieces of 2^16 coordinates: nothing is lost or doubled at the seams."""
    dim = 2 * (1 << 16) + 5
    params = small(clients=3, dim=dim)
    vectors = [np.linspace(-1, 1, dim).astype(np.float32)] * 3
    outcome = run_round(params, vectors, Cohort(LENIENT))
    assert outcome.exact
    assert np.abs(outcome.result.mean() - vectors[0]).max() < 1e-6


@pytest.mark.parametrize("shape", [(39,), (41,), (40, 1), (1, 40), ()])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    run = Run(small()).begin()
    with pytest.raises(ValueError, match="must have shape"):
        run.clients[0].upload(run.inbox[0], np.zeros(shape, np.float32))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_any_floats_will_do(kind: type) -> None:
    run = Run(small())
    run.updates = [np.full(40, 0.25, kind)] * 5
    assert run.round().mean() == pytest.approx([0.25] * 40, abs=1e-6)


@pytest.mark.parametrize("pattern", ["sliced", "pairwise"])
def test_a_source_is_asked_for_what_is_sent_and_nothing_else(pattern: str) -> None:
    class Source(ArrayUpdate):
        asked = 0

        def read(self, start: int, stop: int) -> np.ndarray:
            self.asked += stop - start
            return super().read(start, stop)

        def take(self, coordinates: np.ndarray) -> np.ndarray:
            self.asked += len(coordinates)
            return super().take(coordinates)

    run = Run(small(clients=12, dim=400, pattern=pattern, alpha=0.25)).begin()
    sources = [Source(update) for update in run.updates]
    for user in run.inbox:
        run.server.receive(None, run.clients[user].upload(run.inbox[user], sources[user]))
    run.inbox = run.server.close_stage()
    run.run_to(Stage.SHARE_KEYS)
    assert sum(source.asked for source in sources) == run.result.contributors.sum()


def test_a_source_of_another_length_is_refused() -> None:
    run = Run(small()).begin()
    with pytest.raises(ValueError, match="a source of 40 floats"):
        run.clients[0].upload(run.inbox[0], ArrayUpdate(np.zeros(39, np.float32)))
