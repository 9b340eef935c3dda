"""A federated run: it learns, records, fails gracefully and resumes."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning import FederatedRun, Task, TrainingConfig
from sparsesecagg.lab.learning.aggregators import AGGREGATORS
from sparsesecagg.lab.learning.federated import transfer_seconds

from .support import blobs, small_task

KEYS = {
    "round", "accuracy", "loss", "status", "reason", "survivors", "dropped", "upload_bytes", "sent_bytes",
    "received_bytes", "client_seconds", "server_seconds", "training_seconds", "transfer_seconds", "contributors",
    "contributors_histogram", "clipped", "exchanges",
    "coordinates_updated", "groups_opened", "gain", "lost", "downlink_bytes",
}  # fmt: skip


def finish(run, workers=1):
    """Run all rounds and return the lines."""
    with run.task.pool(run.config, workers) as pool:
        return [msgspec.to_builtins(line) for line in run.rounds(pool)]


@pytest.mark.parametrize("name", AGGREGATORS)
def test_every_aggregator_learns_an_easy_task(tmp_path: Path, name) -> None:
    """Four rounds of ten users on three clouds of points."""
    config, task = small_task(aggregator=name, rounds=4)
    run = FederatedRun.create(config, task, tmp_path / "run")
    lines = finish(run)
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert run.summary().accuracy > 0.9
    assert all(set(line) >= KEYS for line in lines)


def test_the_folder_holds_what_was_yielded(tmp_path: Path) -> None:
    """One line per round, the options, the partition, the model, and the same as CSV."""
    config, task = small_task(partition="dirichlet")
    run = FederatedRun.create(config, task, tmp_path / "run")
    lines = finish(run)
    stored = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert stored == lines
    described = json.loads((tmp_path / "run" / "config.json").read_text())
    assert described["dim"] == task.model.dim and described["effective"]["modulus_bits"] == 16
    assert TrainingConfig.from_json(described) == config
    with np.load(tmp_path / "run" / "model.npz") as model:
        assert np.array_equal(model["parameters"], run.summary().parameters)


@pytest.mark.parametrize("name", ["sliced", "plain"])
def test_a_part_of_the_users_may_be_invited_to_each_round(tmp_path: Path, name) -> None:
    """Half of twenty, others in every round; a resumed run invites the same ones. Each secure round has a set-up."""
    config, task = small_task(aggregator=name, clients=20, sample=0.5, rounds=5, dropout=0.0, downlink="steps")
    lines = finish(run := FederatedRun.create(config, task, tmp_path / "run"))
    assert [line["survivors"] for line in lines] == [10] * 5 and run.summary().accuracy > 0.8
    cohorts = [tuple(run._cohort(number)) for number in range(1, 6)]
    assert len(set(cohorts)) == 5 and len(set().union(*cohorts)) > 15
    assert {line["exchanges"] for line in lines} == {4 if name == "sliced" else 1}
    finish(FederatedRun.create(config.replace(rounds=2), task, tmp_path / "two"))
    again = FederatedRun.resume(tmp_path / "two", {"rounds": 5}, dataset=blobs())
    finish(again)
    assert np.array_equal(again.summary().parameters, run.summary().parameters)


def test_totals_are_sums_of_rounds(tmp_path: Path) -> None:
    """Bytes per user and in all, computing and transfer apart."""
    config, task = small_task(rounds=3, dropout=0.2, seed=3)
    run = FederatedRun.create(config, task, tmp_path / "run")
    lines, summary = finish(run), run.summary()
    assert summary.total_upload_bytes == round(sum(line["uploads"] * line["upload_bytes"] for line in lines))
    uploads = sum(line["uploads"] for line in lines)
    assert summary.upload_bytes_per_client_round == pytest.approx(summary.total_upload_bytes / uploads, abs=1)


def test_a_failed_round_leaves_the_model_and_training_goes_on(tmp_path: Path) -> None:
    """Four of ten users are lost on average, so now and then fewer than the threshold are left."""
    config, task = small_task(rounds=8, dropout=0.4, seed=1)
    lines = finish(FederatedRun.create(config, task, tmp_path / "run"))
    failed = [line for line in lines if line["status"] == "failed"]
    assert 0 < len(failed) < len(lines)
    for line in failed:
        before = next((other for other in lines if other["round"] == line["round"] - 1), None)
        assert line["reason"] and (before is None or line["loss"] == before["loss"])
    assert lines[-1]["accuracy"] > 0.8


def test_a_seed_decides_the_model_bit_for_bit(tmp_path: Path) -> None:
    """Also with another number of workers; another seed gives another model."""
    models = []
    for number, (seed, workers) in enumerate(((0, 1), (0, 3), (1, 1))):
        config, task = small_task(seed=seed, rounds=2)
        run = FederatedRun.create(config, task, tmp_path / str(number))
        finish(run, workers)
        models.append((tmp_path / str(number) / "model.npz").read_bytes())
    assert models[0] == models[1] != models[2]


def test_training_stops_at_the_target(tmp_path: Path) -> None:
    """And says in which round it was reached."""
    config, task = small_task(rounds=20, target_accuracy=0.9)
    run = FederatedRun.create(config, task, tmp_path / "run")
    lines = finish(run)
    assert len(lines) == run.summary().rounds == run.summary().reached_target_at
    assert len(lines) < 20
    assert lines[-1]["accuracy"] >= 0.9 and all(line["accuracy"] < 0.9 for line in lines[:-1])


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Stopped after two rounds, resumed, and extended: the model of an undisturbed run."""
    config, task = small_task(rounds=5)
    whole = FederatedRun.create(config, task, tmp_path / "whole")
    finish(whole)
    finish(FederatedRun.create(config.replace(rounds=2), task, tmp_path / "part"))
    resumed = FederatedRun.resume(tmp_path / "part", {"rounds": 5, "alpha": config.options.alpha}, dataset=blobs())
    assert [line["round"] for line in finish(resumed)] == [3, 4, 5]
    assert (tmp_path / "part" / "model.npz").read_bytes() == (tmp_path / "whole" / "model.npz").read_bytes()
    assert resumed.summary().total_upload_bytes == whole.summary().total_upload_bytes
    assert json.loads((tmp_path / "part" / "config.json").read_text())["rounds"] == 5


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    """Resuming it changes nothing."""
    config, task = small_task(rounds=2)
    finish(FederatedRun.create(config, task, tmp_path / "run"))
    before = (tmp_path / "run" / "model.npz").read_bytes()
    assert finish(FederatedRun.resume(tmp_path / "run", task=task)) == []
    assert (tmp_path / "run" / "model.npz").read_bytes() == before


def contents(folder):
    """Return every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alpha": 0.25}, "begun with alpha 0.5, not 0.25"),
        ({"seed": 5}, "seed"),
        ({"seed": [5, 6]}, r"begun with seed \d, not \[5, 6\]"),
        ({"rounds": 1}, "at least 2"),
        ({"rounds": "x"}, "must be a whole number, got 'x'"),
    ],
)
def test_another_configuration_can_not_resume(tmp_path: Path, options, said: str) -> None:
    """One sentence, and nothing is written."""
    config, task = small_task(rounds=2)
    finish(FederatedRun.create(config, task, tmp_path / "run"))
    before = contents(tmp_path / "run")
    with pytest.raises(InvalidInput, match=said):
        FederatedRun.resume(tmp_path / "run", options, dataset=blobs())
    assert contents(tmp_path / "run") == before


def test_other_data_or_another_model_can_not_resume(tmp_path: Path) -> None:
    """The hash of the samples and the size of the model are part of a run."""
    config, task = small_task()
    FederatedRun.create(config, task, tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(InvalidInput, match="other samples"):
        FederatedRun.resume(tmp_path / "run", dataset=blobs(seed=1))
    with pytest.raises(InvalidInput, match="another model"):
        wider = Task.prepare(config.replace(hidden=9), dataset=blobs())
        FederatedRun.resume(tmp_path / "run", task=wider)
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"alpha": 0.001}, "alpha"),
        ({"aggregator": "secag"}, "aggregator"),
        ({"modulus_bits": 33}, "modulus_bits"),
        ({"threshold": 3}, "threshold"),
        ({"gain": 3}, "gain"),
        ({"group_size": 2}, "group_size"),
        ({"weights": "examples", "aggregator": "pairwise", "normalisation": "observed"}, "normalisation"),
    ],
)
def test_bad_input_writes_nothing(tmp_path: Path, options, named: str) -> None:
    """Everything is checked before the folder is made."""
    config, task = small_task(**options)
    with pytest.raises(InvalidInput) as caught:
        FederatedRun.create(config, task, tmp_path / "run")
    assert caught.value.option == named and not (tmp_path / "run").exists()


def test_more_users_than_samples_are_refused() -> None:
    """Nobody may be without data."""
    with pytest.raises(InvalidInput, match="clients must be at most 96, the number of training samples"):
        small_task(clients=97)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_training_that_diverges_says_so(tmp_path: Path) -> None:
    """Instead of feeding NaN to the protocol."""
    config, task = small_task(lr=1e30)
    with pytest.raises(InvalidInput, match=r"lr of 1e\+30 makes local training diverge in round 1"):
        finish(FederatedRun.create(config, task, tmp_path / "run"))


def test_weights_follow_the_sizes_of_the_users(tmp_path: Path) -> None:
    """Weighted by samples, sliced averaging stays close to plain averaging."""
    models = {}
    for name in ("plain", "sliced"):
        config, task = small_task(
            partition="dirichlet",
            concentration=0.3,
            weights="examples",
            aggregator=name,
            alpha=1.0,
            rounds=1,
            dropout=0,
            first_clip=8.0,
            downlink="model",
        )
        run = FederatedRun.create(config, task, tmp_path / name)
        finish(run)
        models[name] = run.summary().parameters - task.initial
    assert np.abs(models["plain"] - models["sliced"]).max() < 0.02 * np.abs(models["plain"]).max()


def test_the_published_pattern_trains_on_users_of_unequal_size(tmp_path: Path) -> None:
    """Each user scales by its own β before rounding and masking; accuracy follows that of plain averaging."""
    reached = {}
    for name in ("plain", "pairwise"):
        config, task = small_task(
            partition="dirichlet", concentration=0.3, weights="examples", aggregator=name, alpha=0.3, rounds=6, seed=0
        )
        run = FederatedRun.create(config, task, tmp_path / name)
        reached[name] = [line["accuracy"] for line in finish(run)]
    assert len(set(map(len, task.partition.indices))) > 3
    assert reached["pairwise"][-1] > reached["pairwise"][0] + 0.2
    assert abs(reached["pairwise"][-1] - reached["plain"][-1]) < 0.1


def test_a_run_with_noise_says_what_it_cost_and_can_not_be_prolonged(tmp_path: Path) -> None:
    """Noise is made for the rounds that were planned."""
    config, task = small_task(rounds=3, dp_epsilon=25.0)
    run = FederatedRun.create(config, task, tmp_path / "run")
    finish(run)
    dp = run.summary().dp
    assert dp is not None and dp["epsilon"] == pytest.approx(25, rel=1e-3) and dp["delta"] == 1e-5
    with pytest.raises(InvalidInput, match="must be 3, for which the noise was chosen"):
        FederatedRun.resume(tmp_path / "run", {"rounds": 4}, task=task)


def test_early_dropouts_are_survived(tmp_path: Path) -> None:
    """At any stage: who misses the set-up is out for good, others come back."""
    config, task = small_task(drop_at="ANY", dropout=0.15, rounds=8, seed=2)
    lines = finish(FederatedRun.create(config, task, tmp_path / "run"))
    stages = {stage for line in lines for stage, count in line["dropped"].items() if count}
    assert len(stages) >= 3 and sum(line["status"] == "ok" for line in lines) >= 7
    assert len({line["dropped"]["ADVERTISE_KEYS"] for line in lines}) == 1


def test_transfer_is_bytes_at_the_bandwidth_and_two_latencies_per_exchange() -> None:
    """1.25 MB at 100 Mbit/s take 0.1 s; four exchanges at 20 ms another 0.16 s."""
    config = TrainingConfig.create(bandwidth_mbit=100.0, latency_ms=20.0)
    assert transfer_seconds(config, 1_250_000, 4) == pytest.approx(0.1 + 0.16)
