"""The model on its way to the users: whole, or in steps."""

from pathlib import Path

import numpy as np
import pytest

from sparsesecagg.lab.learning import FederatedRun
from sparsesecagg.lab.learning.downlink import ModelSteps, WholeModels
from sparsesecagg.lab.learning.models import Layer

from .support import small_task
from .test_federated import finish

LAYERS = (Layer("weights", 0, 3000), Layer("bias", 3000, 3010))
RANDOM = np.random.default_rng(0)
MODEL = RANDOM.standard_normal(3010).astype(np.float32)


def test_whole_models_cost_four_bytes_per_coordinate_in_every_round() -> None:
    """And the model is what it is set to."""
    way = WholeModels(MODEL)
    assert way.deliver([0, 1]) == way.deliver([0]) == MODEL.nbytes and way.deliver([]) == 0
    way.advance(MODEL + 1)
    assert np.array_equal(way.model, MODEL + 1) and way.state() == {}


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_steps_are_smaller_than_models_and_follow_them(bits: int) -> None:
    """The whole model once; then steps, whose errors are made good later."""
    way = ModelSteps(MODEL, LAYERS, bits, 5)
    assert np.array_equal(way.model, MODEL)
    assert MODEL.nbytes <= way.deliver([0, 1]) < 1.3 * MODEL.nbytes
    target = MODEL
    for _ in range(30):
        target = (target + 0.01 * RANDOM.standard_normal(3010)).astype(np.float32)
        way.advance(target)
        assert way.deliver([0]) < 1.4 * bits / 32 * MODEL.nbytes
    assert np.abs(way.model - target).max() < 0.1
    # User 0 has it already, 1 is 30 steps behind, 2 has nothing.
    assert way.deliver([0]) < 100 < MODEL.nbytes <= way.deliver([1]) == way.deliver([2])


def test_a_user_that_missed_a_round_gets_both_steps() -> None:
    """Or the whole model, if that is smaller."""
    way = ModelSteps(MODEL, LAYERS, 4, 2)
    way.deliver([0, 1])
    sizes = []
    for number in (1, 2):
        way.advance((MODEL + 0.01 * number * RANDOM.standard_normal(3010)).astype(np.float32))
        sizes.append(way.deliver([0]))
    assert way.deliver([1]) == pytest.approx(sum(sizes), rel=0.05)


def test_layers_have_scales_of_their_own() -> None:
    """A layer of large values does not round a layer of small ones away."""
    way = ModelSteps(MODEL, LAYERS, 4, 1)
    step = np.full(3010, 1e-4, np.float32)
    step[3000:] = 100
    way.advance(MODEL + step)
    assert np.allclose((way.model - MODEL)[:3000], 1e-4, atol=2e-5)


def test_a_restored_way_goes_on_with_the_same_bits_and_bytes() -> None:
    """Kept errors, steps and who holds what are in the state."""
    one, other = (ModelSteps(MODEL, LAYERS, 4, 3) for _ in range(2))
    one.deliver([0, 1])
    one.advance((MODEL + 0.03).astype(np.float32))
    other.restore(one.state())
    for way in (one, other):
        way.advance((MODEL - 0.07).astype(np.float32))
    assert np.array_equal(one.model, other.model)
    assert [one.deliver([user]) for user in range(3)] == [other.deliver([user]) for user in range(3)]


def test_a_run_counts_what_goes_down(tmp_path: Path) -> None:
    """Steps are on by default; the first round brings the whole model, and transfer counts every byte."""
    lines = {}
    for kind in ("steps", "model"):
        config, task = small_task(rounds=3, hidden=64, downlink=kind, dropout=0)
        lines[kind] = finish(FederatedRun.create(config, task, tmp_path / kind))
    assert small_task()[0].downlink == "steps"
    whole = 4 * task.model.dim
    assert [line["downlink_bytes"] for line in lines["model"]] == [whole] * 3
    assert lines["steps"][0]["downlink_bytes"] >= whole
    assert all(line["downlink_bytes"] < whole / 2 for line in lines["steps"][1:])
    config, task = small_task(rounds=3, hidden=4096, dropout=0, alpha=0.1)
    sliced = finish(FederatedRun.create(config, task, tmp_path / "sliced"))
    assert all(line["downlink_bytes"] < 4 * task.model.dim / 8 / 2 for line in sliced[1:])  # Of what 4 bits would be.
    for recorded in lines.values():
        for line in recorded:
            moved = line["sent_bytes"]["total"] + line["received_bytes"]["total"] + line["downlink_bytes"]
            seconds = 8 * moved / 100e6 + line["exchanges"] * 2 * 0.020
            assert line["transfer_seconds"] == pytest.approx(seconds)
    assert [line["exchanges"] for line in lines["steps"]] == [4, 2, 2]


def test_a_stopped_run_with_steps_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Rounding errors that were kept are not lost."""
    config, task = small_task(rounds=4, downlink_bits=2)
    finish(FederatedRun.create(config, task, tmp_path / "whole"))
    finish(FederatedRun.create(config.replace(rounds=2), task, tmp_path / "part"))
    resumed = FederatedRun.resume(tmp_path / "part", {"rounds": 4}, task=task)
    finish(resumed)
    assert (tmp_path / "part" / "model.npz").read_bytes() == (tmp_path / "whole" / "model.npz").read_bytes()
    assert [line["downlink_bytes"] for line in resumed.folder.metrics()] == [
        line["downlink_bytes"] for line in FederatedRun.resume(tmp_path / "whole", task=task).folder.metrics()
    ]
