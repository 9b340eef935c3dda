"""The ranges of a model's layers follow public aggregates, and mend themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.field import Word
from sparsesecagg.lab.learning.models import Layer
from sparsesecagg.lab.learning.secure import LEAST_HEADROOM, MOST_HEADROOM, AdaptiveClip
from sparsesecagg.ranges import FASTEST
from sparsesecagg.rounding import Quantizer

LAYERS = (Layer("wide", 0, 900), Layer("narrow", 900, 1000))


def test_before_any_aggregate_a_clip_follows_the_first_model() -> None:
    """Each layer its own largest weight; layers of zeros the widest; or one clip for all, if it is given."""
    model = np.zeros(1000, np.float32)
    model[5] = -0.25
    assert AdaptiveClip(LAYERS, model, 12).clips.tolist() == [0.25, 0.25]
    model[950] = 0.5
    assert AdaptiveClip(LAYERS, model, 12).clips.tolist() == [0.25, 0.5]
    assert AdaptiveClip(LAYERS, np.zeros(1000, np.float32), 12).clips.tolist() == [1.0, 1.0]
    assert set(AdaptiveClip(LAYERS, 0.125, 12).per_coordinate().tolist()) == {0.125}


def test_each_layer_follows_its_own_largest_value() -> None:
    """Layers of different size get different clips, within the speed limit."""
    clip = AdaptiveClip(LAYERS, 0.3, 12)
    mean = np.zeros(1000, np.float32)
    mean[3], mean[950] = -0.2, 0.05
    clip.follow(mean)
    assert clip.clips == pytest.approx([0.6, 0.15])
    assert clip.per_coordinate()[[0, 899, 900, 999]] == pytest.approx([0.6, 0.6, 0.15, 0.15])


@given(st.integers(1, 2**31))
def test_headroom_grows_with_the_steps_there_are(steps) -> None:
    """Three where steps are scarce; never so much that fewer than 64 steps remain, unless it is the least."""
    headroom = AdaptiveClip(LAYERS, 1.0, steps).headroom
    assert LEAST_HEADROOM <= headroom <= MOST_HEADROOM
    assert headroom == LEAST_HEADROOM or steps / headroom >= 64


@given(st.floats(1e-8, 1e8), st.floats(1e-8, 1e8))
def test_one_odd_round_changes_a_clip_by_a_bounded_factor(first, size) -> None:
    """Also where an aggregate is zero everywhere."""
    for mean in (np.full(1000, size, np.float32), np.zeros(1000, np.float32)):
        clip = AdaptiveClip(LAYERS, first, 12)
        clip.follow(mean)
        assert (clip.clips <= first * FASTEST * 1.0001).all() and (clip.clips >= first / FASTEST * 0.9999).all()


@pytest.mark.parametrize("first", [1e-4, 1.0, 1e3])
def test_a_wrong_first_clip_is_mended_within_a_few_rounds(first: float) -> None:
    """Eight-bit words, ten users: from far too tight or far too wide to within a factor of the right one."""
    random = np.random.default_rng(0)
    updates = [0.01 * random.standard_normal(1000) for _ in range(10)]
    common = 0.02 * random.standard_normal(1000)
    clip = AdaptiveClip(LAYERS, first, 12)
    quantizer = Quantizer.fit(Word.of(8), 10, 1.0)
    for _ in range(8):
        scale = clip.per_coordinate()
        integers = [quantizer.quantize((common + own) / scale, 1.0, random)[0] for own in updates]
        mean = (np.mean(integers, axis=0) / quantizer.scale * scale).astype(np.float32)
        clip.follow(mean)
    largest = np.abs(common).max()
    assert largest < clip.clips.max() < 10 * largest
    assert np.corrcoef(mean, common + np.mean(updates, axis=0))[0, 1] > 0.95
