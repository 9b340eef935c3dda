"""What is left of a round: Flower's result, the log, and a folder that a report is made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg

from flower.local_grid import LocalGrid, model, round_of, secagg, stage_of, training_app, values
from sparsesecagg.flower import SecAgg
from sparsesecagg.lab.report import read_run, write_report

START = np.zeros(400, np.float32)


def fail_in_round_two(node: int, message: Message) -> None:
    if round_of(message) == 2 and stage_of(message) == "UPLOAD" and node < 104:
        raise RuntimeError("no power")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"accuracy": float(values(arrays)["w"].mean()), "loss": 1.0 / (1 + server_round)})


@pytest.fixture
def run(tmp_path: Path) -> tuple[SecAgg, Any, Path]:
    """Three rounds of six nodes, of which the second fails."""
    app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(0.1)}, weight=lambda p: 5)
    grid = LocalGrid(app, 6, before=fail_in_round_two)
    strategy = secagg(alpha=0.5, group_size=3, threshold=3, max_weight=5, run_dir=tmp_path / "run")
    result = strategy.start(grid=grid, initial_arrays=model(w=START), num_rounds=3, evaluate_fn=evaluate)
    return strategy, result, tmp_path / "run"


def test_the_result_of_the_strategy_has_seven_figures_of_every_round(run: Any) -> None:
    _, result, _ = run
    first, second, third = (result.train_metrics_clientapp[number] for number in (1, 2, 3))
    for metrics in (first, second, third):
        assert len(metrics) == 7
    for metrics in (first, third):
        assert metrics["secagg-failed"] == 0
        assert metrics["secagg-survivors"] == 6
        assert metrics["secagg-contributors"] == 3
        assert metrics["secagg-coordinates-updated"] == 1
        assert metrics["secagg-sent-bytes"] > 0
        assert metrics["secagg-seconds"] > 0
    assert second["secagg-failed"] == 1


def test_the_rest_is_in_the_run_folder(run: Any) -> None:
    strategy, _, folder = run
    first, _, third = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    for line in (first, third):
        assert line["cohort"] == line["survivors"] == 6
        assert line["clipped"] == line["rejected"] == 0
        assert line["groups"] == line["groups_opened"] == 2
        assert sum(line["stage_seconds"].values()) == pytest.approx(2 * line["stage_seconds"]["total"])
    assert "ADVERTISE_KEYS" in first["stage_seconds"]
    assert "ADVERTISE_KEYS" not in third["stage_seconds"]
    assert len(strategy.history) == 3


def test_the_log_has_one_line_per_round_and_says_why_one_failed(run: Any, caplog: Any) -> None:
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("SecAgg round")]
    if not lines:  # The fixture ran before this test's log began.
        strategy, _, _ = run
        lines = [record.sentence() for record in strategy.history]
    assert len(lines) == 3
    assert "the sum of 6 of 6 nodes" in lines[0]
    assert "failed at UPLOAD, the model is unchanged: 2 users left at UPLOAD, 6 are needed" in lines[1]


def test_a_report_can_be_made_from_the_run_folder(run: Any) -> None:
    strategy, _, folder = run
    recorded = read_run(folder)
    assert recorded.aggregator == "sliced"
    assert [record.failed for record in recorded.rounds] == [False, True, False]
    assert [record.accuracy for record in recorded.rounds] == pytest.approx([0.1, 0.1, 0.2], abs=1e-3)
    assert [record.loss for record in recorded.rounds] == pytest.approx([1 / 2, 1 / 3, 1 / 4])
    assert recorded.rounds[0].contributors["min"] == 3
    assert recorded.rounds[0].contributors_histogram == {"3": 1.0}
    assert recorded.rounds[0].upload_bytes == strategy.history[0].by_stage("codec")["UPLOAD"]
    page = write_report(folder)
    assert "<html" in Path(page).read_text(encoding="utf-8")


def test_bytes_of_codec_and_wire_are_kept_apart(run: Any) -> None:
    _, _, folder = run
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["sent_bytes"]["UPLOAD"] < lines[0]["wire_bytes"]["UPLOAD"]
    config = json.loads((folder / "config.json").read_text())
    assert config["dim"] == 400
    assert config["strategy"] == "FedAvg"


def test_no_run_folder_is_written_unless_it_is_asked_for(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    grid = LocalGrid(training_app(lambda p, a, r: a), 4)
    secagg().start(grid=grid, initial_arrays=model(w=START), num_rounds=1)
    assert list(tmp_path.iterdir()) == []


def test_a_federated_evaluation_is_announced_as_not_masked_and_its_accuracy_noted(caplog: Any) -> None:
    grid = LocalGrid(training_app(lambda p, a, r: a), 4)
    strategy = secagg(FedAvg())
    strategy.start(grid=grid, initial_arrays=model(w=START), num_rounds=1)
    assert "federated evaluation is not masked" in caplog.text
    assert strategy.history[0].accuracy == 0.5
