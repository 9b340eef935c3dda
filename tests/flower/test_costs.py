"""What a round costs a node: bytes on the wire, and memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower.local_grid import LocalGrid, content_of, model, round_of, secagg, stage_of, training_app, values
from sparsesecagg.flower import secagg_mod
from sparsesecagg.flower.messages import wire_bytes

MEGABYTE = 1_000_000


def test_a_tenth_of_100_000_parameters_takes_25_kilobytes_with_the_keys_of_a_later_round_and_the_whole_round_28() -> (
    None
):
    """50 nodes, α = 0.1, 16 bits, private weights, in steady state. The peer sends 801 kB."""
    grid = LocalGrid(training_app(lambda p, a, r: {"w": a["w"] + np.float32(0.01)}, weight=lambda p: 1 + p), 50)
    settings: dict[str, Any] = {
        "alpha": 0.1,
        "modulus_bits": 16,
        "max_weight": 50,
        "downlink_bits": 4,
    }
    strategy = secagg(**settings)
    strategy.start(grid=grid, initial_arrays=model(w=np.zeros(100_000, np.float32)), num_rounds=2)
    for number, record in enumerate(strategy.history, start=1):
        assert record.survivors == 50
        stages = ("UPLOAD", "UNMASK")
        replies = [(n, reply) for n, reply in grid.replied if round_of(reply) == number and stage_of(reply) in stages]
        uploads = [wire_bytes(reply) for _, reply in replies if stage_of(reply) == "UPLOAD"]
        sent = {node: sum(wire_bytes(reply) for who, reply in replies if who == node) for node, _ in replies}
        assert max(uploads) <= 25_000
        assert max(sent.values()) <= 28_000
        # What the strategy reports is what was sent.
        assert abs(record.by_stage("wire")["UPLOAD"] - np.mean(uploads)) < 1
        both = record.by_stage("wire")["UPLOAD"] + record.by_stage("wire")["UNMASK"]
        assert abs(both - np.mean(list(sent.values()))) < 1
        assert record.by_stage("codec")["total"] < record.by_stage("wire")["total"]
        # The whole model once, then a tenth of it in words of 4 bits.
        assert all(size == 400_000 if number == 1 else size < 6_200 for size in record.model_bytes.values())


class _Gauge:
    """A ClientApp that measures what the mod needs beside the received message and the trained reply."""

    def __init__(self) -> None:
        self.peak = 0
        self._app = ClientApp()

        @self._app.train(mods=[secagg_mod])
        def train(message: Message, context: Context) -> Message:
            trained = values(content_of(message)["arrays"])["w"]
            trained += np.float32(0.25)
            reply = Message(
                RecordDict({"arrays": model(w=trained), "metrics": MetricRecord({"num-examples": 1})}), reply_to=message
            )
            del trained
            tracemalloc.reset_peak()  # What training needs is not ours; its reply, which stays, is counted.
            return reply

    def __call__(self, message: Message, context: Context) -> Message:
        tracemalloc.start()
        try:
            return self._app(message, context)
        finally:
            self.peak = max(self.peak, tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()


def test_a_model_of_16_megabytes_passes_and_a_client_needs_less_than_twice_that() -> None:
    """In one array, the worst case: nothing can be freed before everything is done."""
    size = 16 * MEGABYTE
    app: Any = _Gauge()
    grid = LocalGrid(app, 3)
    strategy = secagg(alpha=1 / 3, gain=1.0, modulus_bits=16, clip=1.0, max_weight=0, timeout=60.0)
    result = strategy.start(grid=grid, initial_arrays=model(w=np.zeros(size // 4, np.float32)), num_rounds=1)
    after = values(result.arrays)["w"]
    after = after[after != 0]
    assert len(after) == pytest.approx(size / 12, rel=0.01)
    assert strategy.history[0].survivors == 3
    assert np.abs(after - np.float32(0.25)).max() < 1e-3
    assert app.peak < 2 * size
