"""What is fed to the model is the plain average of the same quantised, sparse updates."""

import numpy as np
import pytest

from sparsesecagg.lab.learning.seeds import Purpose, generator
from sparsesecagg.protocol import Client, Stage
from sparsesecagg.simulate.simulation import draw_dropouts

from .test_aggregators import CLIENTS, MODEL, UPDATES, aggregator


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch):
    """Record, per user, the integers that it puts into its message before masking: NaN where it sends none."""
    recorded = {}
    upload = Client.upload

    def recording(self, data, update, weight=1, *, context, trace):
        values = np.full(self.params.dim, np.nan)

        def both(where, integers) -> None:
            values[where] = integers
            trace(where, integers)

        answer = upload(self, data, update, weight, context=context, trace=both)
        recorded[self.user] = values
        return answer

    monkeypatch.setattr(Client, "upload", recording)
    return recorded


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("name", ["sliced", "pairwise", "secagg", "secagg-plus"])
def test_the_mean_is_the_plain_average_of_what_was_quantised(sent, name: str, bits: int) -> None:
    """Over several rounds with dropouts and adapting clips: equal to the last bit."""
    one = aggregator(name, modulus_bits=bits)
    for number in range(1, 4):
        clip = one._clip.per_coordinate()
        drops = draw_dropouts(CLIENTS, 0.15, [Stage.UPLOAD], generator(5, Purpose.DROPOUT, number))
        users = one.taking_part(CLIENTS, drops)
        sent.clear()
        done = one.aggregate({user: UPDATES[user] for user in users}, None, drops, number, bytes(32))
        assert done.exact and done.coordinates_updated > 0.45 and sorted(sent) == users
        integers = np.stack([sent[user] for user in users])
        contributors = np.count_nonzero(~np.isnan(integers), axis=0)
        average = np.nansum(integers, axis=0) / one.parameters.quantizer.scale / np.maximum(contributors, 1)
        assert np.array_equal(done.step, average.astype(np.float32) * clip)
        assert contributors[contributors > 0].min() == done.contributors["min"]
        # And what was quantised is each user's own update: within one step of it, or cut off at the clip.
        for user in users:
            own = np.clip(UPDATES[user] / clip, -1, 1).astype(np.float64) * one.parameters.quantizer.limit
            assert np.nanmax(np.abs(sent[user] - own)) <= 1 + 1e-3
    assert MODEL.dim == len(done.step)
