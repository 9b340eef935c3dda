"""A bug is reported as what it is: a TypeError in a client is never taken for a dropout or a refusal."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsesecagg import Parameters, run_round, secure_sum
from sparsesecagg.lab.cli import main
from sparsesecagg.protocol import Client

pytestmark = pytest.mark.slow

STAGES = ["advertise_keys", "join", "share_keys", "upload", "unmask"]
"""Every method by which a client takes part in a round."""

BUG = "unsupported operand type(s): injected"


def inject(patch: pytest.MonkeyPatch, method: str) -> None:
    """Let one method of every client raise a TypeError."""

    def broken(*_: Any, **__: Any) -> Any:
        raise TypeError(BUG)

    patch.setattr(Client, method, broken)


@pytest.mark.parametrize("method", STAGES)
def test_from_secure_sum(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    inject(monkeypatch, method)
    with pytest.raises(TypeError, match="injected"):
        secure_sum([np.ones(8, np.float32)] * 4)


def test_from_a_round_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    inject(monkeypatch, "unmask")
    with pytest.raises(TypeError, match="injected"):
        run_round(Parameters.create(4, 8), [np.ones(8, np.float32)] * 4)


@pytest.mark.parametrize("method", STAGES)
def test_from_simulate(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    inject(monkeypatch, method)
    with pytest.raises(TypeError, match="injected"):
        main("simulate --clients 6 --dim 20 --alpha 0.5 --json".split())


@pytest.mark.parametrize("method", ["share_keys", "upload", "unmask"])
def test_from_train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str) -> None:
    inject(monkeypatch, method)
    command = "train --clients 6 --rounds 1 --hidden 4 --samples 100 --alpha 0.5 --dropout 0 --workers 1 --json --out"
    with pytest.raises(TypeError, match="injected"):
        main([*command.split(), str(tmp_path / "run")])


class TestFromFlower:
    """The server goes on without the node, as it must; its log says what happened there."""

    @pytest.fixture(autouse=True)
    def own_ledger(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Keep the nodes away from the ledger in the home folder, which may be of another version."""
        pytest.importorskip("flwr")
        monkeypatch.setenv("SPARSESECAGG_LEDGER", str(tmp_path))

    def log_of_a_round(self, caplog: pytest.LogCaptureFixture, shift: Any) -> str:
        """Return what the server has logged of a round among five nodes."""
        from flwr.serverapp.strategy import FedAvg

        from flower.local_grid import LocalGrid, model, training_app
        from sparsesecagg.flower import SecAgg

        strategy = SecAgg(FedAvg(fraction_evaluate=0.0), timeout=0.3)
        start = model(w=np.zeros(60, np.float32))
        with caplog.at_level(logging.INFO, "flwr"):
            strategy.start(grid=LocalGrid(training_app(shift), 5), initial_arrays=start, num_rounds=1, timeout=0.3)
        return "\n".join(record.getMessage() for record in caplog.records if record.getMessage().startswith("SecAgg:"))

    def test_what_the_train_function_raises_is_one_fixed_text(self, caplog: pytest.LogCaptureFixture) -> None:
        """Its own words stay in the node's log: they may depend on data."""

        def shift(partition: int, arrays: dict[str, np.ndarray], server_round: int) -> dict[str, np.ndarray]:
            if partition == 2:
                raise TypeError(BUG)
            return arrays

        log = self.log_of_a_round(caplog, shift)
        assert "node 102 refused at UPLOAD" in log
        assert "the ClientApp failed in this round; the log of the node says why" in log
        assert "injected" not in log

    @pytest.mark.parametrize("method", STAGES)
    def test_a_bug_of_ours_is_no_silence(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        """Its text could hold a secret: that is in the node's log only."""
        from sparsesecagg.flower.errors import RefusedByAll

        inject(monkeypatch, method)
        told = ""
        try:
            self.log_of_a_round(caplog, lambda partition, arrays, server_round: arrays)
        except RefusedByAll as problem:  # All nodes fail alike, so the run stops.
            told = str(problem)
        told += "".join(text for record in caplog.records if (text := record.getMessage()).startswith("SecAgg"))
        assert "the log of the node says why" in told
        assert "injected" not in told
