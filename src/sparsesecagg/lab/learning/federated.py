"""A federated training run: local training, aggregation, evaluation, one round after another."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sparsesecagg.errors import InvalidInput, ProtocolError, require
from sparsesecagg.lab.audit.theory import expected_fraction
from sparsesecagg.lab.learning.aggregation import Aggregator, RoundLine
from sparsesecagg.lab.learning.aggregators import make_aggregator
from sparsesecagg.lab.learning.config import TrainingConfig, as_stored
from sparsesecagg.lab.learning.data import Dataset, Partition, load_dataset, make_partition
from sparsesecagg.lab.learning.downlink import ModelSteps, WholeModels
from sparsesecagg.lab.learning.models import Model, Vector, make_model
from sparsesecagg.lab.learning.run_folder import Checkpoint, RunFolder
from sparsesecagg.lab.learning.secure import SecureAggregator
from sparsesecagg.lab.learning.seeds import Purpose, generator, integer_seed
from sparsesecagg.lab.learning.workers import Job, TrainingPool
from sparsesecagg.protocol import Stage
from sparsesecagg.simulate.simulation import draw_dropouts

RECORDED = ("dim", "dataset_digest", "data_dir", "effective", "expected_exposure", "version")
"""What config.json holds beside the options."""


@dataclass(frozen=True)
class Task:
    """What is trained on what; shared by runs that are compared."""

    dataset: Dataset
    model: Model
    partition: Partition
    initial: Vector
    data_dir: Path | None = None  # Where the data was said to lie.

    @classmethod
    def prepare(
        cls,
        config: TrainingConfig,
        *,
        dataset: Dataset | None = None,
        model: Model | None = None,
        data_dir: Path | None = None,
    ) -> Task:
        """Load the data, deal it out and make the first model. Own data and models take the place of named ones."""
        data = dataset or load_dataset(config.dataset, data_dir)
        if config.samples is not None:
            data = data.with_samples(config.samples, config.seed)
        partition = make_partition(
            data,
            config.partition,
            config.clients,
            config.seed,
            shards=config.shards,
            concentration=config.concentration,
        )
        data = config.malicious_users().labels(data, partition)
        network = model or make_model(config.model, data, config.hidden)
        initial = network.initial(integer_seed(config.seed, Purpose.INITIAL_MODEL))
        return cls(data, network, partition, initial, data_dir)

    def pool(self, config: TrainingConfig, workers: int | None = None) -> TrainingPool:
        """Start worker processes for this task."""
        return TrainingPool(Job(self.model, self.dataset, self.partition, config.how, config.seed), workers)


@dataclass(frozen=True)
class RunSummary:
    """What a run came to."""

    accuracy: float
    rounds: int
    reached_target_at: int | None
    upload_bytes_per_client_round: float
    total_upload_bytes: int
    run_dir: Path
    parameters: Vector
    dp: dict[str, float] | None = None
    """What the rounds cost each user in differential privacy; None without noise."""

    def to_json(self) -> dict[str, Any]:
        """Return the keys of the command line's contract, all but the report."""
        kept = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "parameters"}
        return kept | {"run_dir": str(self.run_dir)}


class FederatedRun:
    """One run and its folder."""

    def __init__(self, config: TrainingConfig, task: Task, aggregator: Aggregator, folder: RunFolder) -> None:
        checkpoint = folder.checkpoint()
        self.config, self.task, self.folder, self.aggregator = config, task, folder, aggregator
        self.aggregator.restore(checkpoint.aggregator)
        self._downlink = WholeModels(checkpoint.parameters)
        if config.downlink == "steps":
            layers, turns = task.model.layers, aggregator.turns()
            self._downlink = ModelSteps(checkpoint.parameters, layers, config.downlink_bits, config.clients, turns)
        if checkpoint.downlink:
            self._downlink.restore(checkpoint.downlink)
        self.round_number = checkpoint.round_number  # The last finished round.
        self._history = folder.cut_metrics(self.round_number)

    @classmethod
    def create(cls, config: TrainingConfig, task: Task, out: Path) -> FederatedRun:
        """Check everything, then make the folder `out` with the configuration, the partition and the first model."""
        aggregator = make_aggregator(config, task.model, task.initial)
        config = config.replace(dataset=task.dataset.name, model=task.model.name)
        described = config.to_json() | {
            "dim": task.model.dim,
            "dataset_digest": task.dataset.digest,
            "data_dir": str(task.data_dir.resolve()) if task.data_dir else None,
            "effective": aggregator.describe(),
            "expected_exposure": expected_fraction(aggregator.parameters, config.options.colluding or 0.0)
            if isinstance(aggregator, SecureAggregator)
            else None,
            "version": version("sparsesecagg"),
        }
        first = Checkpoint(0, task.initial, aggregator.state())
        return cls(config, task, aggregator, RunFolder.create(out, described, task.partition, first))

    @classmethod
    def resume(
        cls,
        run_dir: Path,
        options: Mapping[str, Any] | None = None,
        *,
        task: Task | None = None,
        dataset: Dataset | None = None,
        model: Model | None = None,
        data_dir: Path | None = None,
    ) -> FederatedRun:
        """Go on with a run. `options` were named again: they must be the run's own, but `rounds` may grow."""
        folder = RunFolder.resume(run_dir)
        stored = folder.config()
        config = resumed_config(folder, options or {})
        if data_dir is None and stored.get("data_dir"):
            data_dir = Path(stored["data_dir"])
        task = task or Task.prepare(config, dataset=dataset, model=model, data_dir=data_dir)
        other = f"{run_dir} was begun with other samples of {config.dataset}: give it the same data"
        require("resume", task.dataset.digest == stored.get("dataset_digest"), other)
        other = f"{run_dir} was begun with another model ({config.model}, {stored.get('dim')} parameters)"
        require("resume", (task.model.name, task.model.dim) == (config.model, stored.get("dim")), other)
        run = cls(config, task, make_aggregator(config, task.model, task.initial), folder)
        if config.rounds != stored["rounds"]:
            folder.write_config(stored | {"rounds": config.rounds})
        return run

    @property
    def _parameters(self) -> Vector:
        """The model: where it goes down in steps, the one that these lead to."""
        return self._downlink.model

    @property
    def finished(self) -> bool:
        """Whether all rounds are done or the target is reached."""
        return self.round_number >= self.config.rounds or self.reached_target_at is not None

    @property
    def reached_target_at(self) -> int | None:
        """The first round whose accuracy was the target's, if any was."""
        target = self.config.target_accuracy
        return next(
            (line["round"] for line in self._history if target is not None and line["accuracy"] >= target), None
        )

    def rounds(self, pool: TrainingPool) -> Iterator[RoundLine]:
        """Run the rounds that are left; yield each one's line when its checkpoint is in place."""
        while not self.finished:
            line = self._one_round(self.round_number + 1, pool)
            self._history.append(msgspec.to_builtins(line))
            self.folder.append_metrics(self._history[-1])
            self.round_number += 1
            self.folder.save_checkpoint(
                Checkpoint(self.round_number, self._parameters, self.aggregator.state(), self._downlink.state())
            )
            yield line
        self.folder.save_model(self._parameters, self.task.model.layers)

    def summary(self) -> RunSummary:
        """Return what the rounds so far came to."""
        sent = [line for line in self._history if line["uploads"]]
        uploads = sum(line["uploads"] for line in sent)
        total = sum(line["uploads"] * line["upload_bytes"] for line in sent)
        epsilon = self.aggregator.epsilon(self.round_number, self.config.dp_delta)
        return RunSummary(
            accuracy=self._history[-1]["accuracy"],
            rounds=self.round_number,
            reached_target_at=self.reached_target_at,
            upload_bytes_per_client_round=total / uploads if uploads else 0.0,
            total_upload_bytes=round(total),
            run_dir=self.folder.path,
            parameters=self._parameters,
            dp=None if epsilon is None else {"epsilon": epsilon, "delta": self.config.dp_delta},
        )

    def require_progress(self) -> None:
        """Raise if not a single round worked: the model is still the first one."""
        if self._history and all(line["status"] == "failed" for line in self._history):
            reason = self._history[-1]["reason"]
            raise ProtocolError(f"none of {self.round_number} rounds gave an aggregate; the last one: {reason}")

    def _one_round(self, number: int, pool: TrainingPool) -> RoundLine:
        config = self.config
        stages = [Stage[name] for name in config.drop_stages]
        random = generator(config.seed, Purpose.DROPOUT, number)
        anew = number == 1 or config.sample < 1
        drops = draw_dropouts(config.cohort, config.options.dropout, stages, random, first_round=anew)
        cohort = self._cohort(number)
        # Server: bring the model to those who take part. Users: train. The updates of those who drop out before or at
        # UPLOAD reach nobody, so they are not made.
        users = {cohort[place]: place for place in self.aggregator.taking_part(config.cohort, drops)}
        downlink_bytes = self._downlink.deliver(list(users))
        trained = list(pool.train(self._parameters, list(users), number))
        for one in trained:
            if not np.isfinite(one.update).all():
                raise self._diverged(number)
        # Users and server: aggregate.
        weights = None if config.weights == "uniform" else self.task.partition.sizes[cohort].tolist()
        digest = hashlib.sha256(self._parameters.tobytes()).digest()
        updates = {users[one.user]: one.update for one in trained}
        aggregation = self.aggregator.aggregate(updates, weights, drops, number, digest)
        # Server: move the model, unless the round failed, and look how good it is.
        if aggregation.step is not None:
            try:
                self._downlink.advance(self._parameters + aggregation.step)
            except InvalidInput as problem:
                raise self._diverged(number) from problem
        evaluation = pool.evaluate(self._parameters)
        moved = aggregation.sent_bytes["total"] + (aggregation.received_bytes["total"] + downlink_bytes)
        own: dict[str, Any] = {
            "round": number,
            "accuracy": evaluation.correct / evaluation.samples,
            "loss": evaluation.loss / evaluation.samples if math.isfinite(evaluation.loss) else None,
            "status": "ok" if aggregation.reason is None else "failed",
            "downlink_bytes": downlink_bytes,
            "training_seconds": sum(one.seconds for one in trained) / max(1, len(trained)),
            "transfer_seconds": transfer_seconds(config, moved, aggregation.exchanges or 1),
        }
        return RoundLine(**{name: getattr(aggregation, name) for name in RoundLine.__struct_fields__} | own)

    def _cohort(self, number: int) -> list[int]:
        """Return the users that the server invites to a round."""
        if self.config.sample == 1:
            return list(range(self.config.clients))
        random = generator(self.config.seed, Purpose.SAMPLE, number)
        return sorted(random.choice(self.config.clients, self.config.cohort, replace=False).tolist())

    def _diverged(self, number: int) -> InvalidInput:
        return InvalidInput(
            "lr", f"of {self.config.lr:g} makes local training diverge in round {number}: use a smaller one"
        )


def transfer_seconds(config: TrainingConfig, moved: float, exchanges: int) -> float:
    """Return how long a user's messages would take: all bytes at the bandwidth, and two latencies per exchange."""
    return 8 * moved / (config.bandwidth_mbit * 1e6) + exchanges * 2 * config.latency_ms / 1000


def resumed_config(folder: RunFolder, options: Mapping[str, Any]) -> TrainingConfig:
    """Return the configuration of a run that is resumed; raise `InvalidInput` if `options` are another run's."""
    run_dir, done = folder.path, folder.checkpoint().round_number
    try:
        config = TrainingConfig.from_json(folder.config())
        config.check()
    except (TypeError, ValueError) as problem:
        raise InvalidInput("resume", f"{run_dir} has options that this version can't read: {problem}") from problem
    resumed = config
    for name, value in as_stored(options).items():
        if name == "rounds" and not isinstance(value, list | tuple):
            resumed = config.replace(rounds=value)
            continue
        # A list made one run for each value, and this is one of them.
        listed = [as_stored({name: each}).get(name) for each in value] if isinstance(value, list | tuple) else [value]
        begun_with = f"was begun with {name.replace('_', '-')} {config.value(name)}, not {value}"
        other = f"{run_dir} {begun_with}: leave the option out or begin a new run"
        require("resume", config.value(name) in listed, other)
    rounds = resumed.rounds
    require("rounds", rounds >= done, f"must be at least {done}, the rounds that {run_dir} has done, got {rounds}")
    noisy = f"must be {config.rounds}, for which the noise was chosen, got {rounds}"
    require("rounds", config.dp_epsilon is None or rounds == config.rounds, noisy)
    return resumed
