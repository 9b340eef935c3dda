"""Networks that a fixed clip ruins learn with the defaults as they do in the clear: ten nodes, five rounds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import fmean

import pytest

pytest.importorskip("torch")

from experiments.flower_defaults.apps import play
from experiments.flower_defaults.run import RESULTS, cifar, published, ranges_table, secured, table
from sparsesecagg.downlink.gain import DEFAULT_ALPHA
from sparsesecagg.flower import SecAgg
from sparsesecagg.lab.learning.data.sources import DATA_VARIABLE

DATA = os.environ.get(DATA_VARIABLE)
WAYS = {"uniform": SecAgg, "weighted": secured(max_weight=100)}


def test_the_pages_say_what_was_measured_with_the_defaults() -> None:
    """At least eight times fewer bytes, within a point of plain FedAvg; and ranges as good as none."""
    result = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert result["alpha"] == DEFAULT_ALPHA
    docs = RESULTS.parents[1] / "docs"
    assert published(result) in (docs / "flower.md").read_text(encoding="utf-8")
    assert "\n".join(ranges_table(result)) in (docs / "flower-settings.md").read_text(encoding="utf-8")
    plain, ours = result["bytes"]["plain"], result["bytes"]["secured"]
    assert fmean(plain["bytes_per_round"]) > 8 * fmean(ours["bytes_per_round"])
    assert fmean(ours["accuracy"]) > fmean(plain["accuracy"]) - 0.01
    for name in ("CIFAR-10, BatchNorm", "raw tabular data, BatchNorm"):
        found = {way: fmean(each) for way, each in result["ranges"][name].items()}
        assert min(found["uniform"], found["weighted"]) > found["plain"] - 0.01
        assert found["clip=1.0"] < found["plain"] - 0.1


@pytest.mark.parametrize("way", WAYS)
def test_raw_tabular_data_behind_batch_normalisation(way: str) -> None:
    """Variances span nine decimal places, and all of them have to arrive."""
    plain, ours = play(table(0), 5, 0, None), play(table(0), 5, 0, WAYS[way])
    assert ours.accuracy[-1] > plain.accuracy[-1] - 0.02


def test_with_a_clip_of_one_the_same_network_is_lost() -> None:
    assert play(table(0), 5, 0, secured(clip=1.0)).accuracy[-1] < 0.7


@pytest.mark.soak
@pytest.mark.skipif(not DATA, reason="needs CIFAR-10 in the folder that SPARSESECAGG_DATA names")
@pytest.mark.parametrize("way", WAYS)
def test_a_convolutional_network_with_batch_normalisation_on_cifar(way: str) -> None:
    data = Path(str(DATA))
    plain, ours = play(cifar(0, data, 2000), 5, 0, None), play(cifar(0, data, 2000), 5, 0, WAYS[way])
    assert ours.accuracy[-1] > plain.accuracy[-1] - 0.02
