"""Networks that a fixed clip ruins learn with the defaults as they do in the clear: ten nodes, five rounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from experiments.flower_defaults.apps import play
from experiments.flower_defaults.run import cifar, secured, table
from sparsesecagg.flower import SecAgg
from sparsesecagg.lab.learning.data.catalogue import DATA_VARIABLE

DATA = os.environ.get(DATA_VARIABLE)
WAYS = {"uniform": SecAgg, "weighted": secured(max_weight=100)}


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
