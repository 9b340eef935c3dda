"""The pages on noise and malicious users have the figures that were measured, with the real mechanism."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from experiments.private import run as private
from experiments.robust import run as robust
from experiments.silos import run as silos
from sparsesecagg.privacy.mechanism import Mechanism


@pytest.mark.parametrize("experiment", [private, robust, silos], ids=["private", "robust", "silos"])
def test_the_table_of_the_page_is_that_of_the_results(experiment: Any) -> None:
    result = json.loads(experiment.RESULTS.read_text(encoding="utf-8"))
    page = experiment.DOCUMENT.read_text(encoding="utf-8")
    assert page.split(experiment.BEGIN)[1].split(experiment.END)[0] == experiment.table(result)
    assert "+" not in result["commit"]


def test_many_users_are_rounded_as_one_is() -> None:
    """Norms within the bound, the mean right; slices longer than the clip are shortened."""
    mechanism = Mechanism(clip=0.5, multiplier=1.0, fraction=0.2, length=300)
    slices = np.random.default_rng(0).standard_normal((400, 300)).astype(np.float32)
    slices[0, 7] = 1000
    peak = 8.0
    rounded = private.quantised(mechanism, slices, np.random.default_rng(1), peak)
    assert (np.square(rounded).sum(axis=1) <= mechanism.squared_norm).all()
    clipped = slices / np.linalg.norm(slices, axis=1, keepdims=True) * mechanism.slice_clip
    cut = np.clip(clipped, -peak / mechanism.scale, peak / mechanism.scale)
    assert np.abs((rounded / mechanism.scale - cut).mean(axis=0)).max() < 5 * 0.5 / mechanism.scale / 20
    one = mechanism.steps(1, bytes, peak)[:2]
    one[0].begin(lambda: [slices[0]])
    one[1].begin(lambda: [one[0].apply(slices[0])])
    alone = one[1].apply(one[0].apply(slices[0]))
    assert np.abs(alone - cut[0] * mechanism.scale).max() <= 1 + 1e-6
    assert alone[7] == rounded[0, 7] == peak


def test_what_was_asked_of_the_figures() -> None:
    """Uploads of at most 3.2 bits per parameter; what malicious users cost under the mean and centred clipping."""
    result = json.loads(private.RESULTS.read_text(encoding="utf-8"))
    for run in result["runs"]:
        if run["system"] == "planned":
            assert run["bits_per_parameter"] <= 3.21
    attacked = json.loads(robust.RESULTS.read_text(encoding="utf-8"))
    clean = robust.mean_of(attacked, "mean", "none")
    figures = {attack: robust.mean_of(attacked, "centred clipping", attack) for attack in ("none", "range", "reverse")}
    spoilt = robust.mean_of(attacked, "mean", "range")
    assert clean is not None and spoilt is not None and spoilt < clean - 20
    for attack, most in {"none": 0.3, "range": 1.5, "reverse": 5.0}.items():
        found = figures[attack]
        assert found is not None and found > clean - most
