"""Train every rule on every figure's task and count rounds."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common.experiment import Findings
from experiments.common.results import clean
from experiments.common.work import OutOfTime, Work
from experiments.hypotheses.config import HYPOTHESES, RULES, SECAGG, Config, Figure, Hypothesis, Rule
from sparsesecagg.files import write_atomically
from sparsesecagg.lab.audit.theory import edge_probability, selection_probability
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.federated import Task
from sparsesecagg.lab.learning.models import Vector
from sparsesecagg.lab.learning.seeds import Purpose, generator
from sparsesecagg.lab.learning.workers import TrainingPool


def run(config: Config, seed: int, work: Work) -> Findings:
    """Train one rule after the other, or as far as time allows; then put the hypotheses together.

    Every finished run is saved at once. Those that the result file holds already are not trained again.
    """
    cohorts = sorted({clients for figure in config.figures for clients in figure.cohorts})
    jobs = [  # Every figure with few users first: a hypothesis must fit them all.
        (figure, clients, seed + more, rule)
        for clients in cohorts
        for figure in config.figures
        if clients in figure.cohorts
        for more in range(config.seeds)
        for rule in RULES
    ]
    earlier = _earlier(config, work)
    runs: list[dict[str, Any]] = []

    def found(complete: bool) -> Findings:
        return Findings({"runs": runs, "table": table(runs, config.beyond)}, {}, complete)

    with ExitStack() as stack, suppress(OutOfTime):
        tasks = _Tasks(stack, config, work)
        for number, (figure, clients, one_seed, rule) in enumerate(jobs):
            named = {"figure": figure.name, "clients": clients, "seed": one_seed, "rule": rule.key}
            known = earlier.get((*named.values(), figure.target, tasks.rate(figure)))
            if known:
                runs.append(known)
                continue
            work.report(", ".join(map(str, named.values())), number, len(jobs))
            base = next((one for one in runs if {**named, "rule": SECAGG.key}.items() <= one.items()), None)
            limit = min(config.rounds, config.patience * len(base["accuracy"])) if base else config.rounds
            accuracy = _train(config, limit, figure, clients, one_seed, rule, work, tasks)
            told = {"target": figure.target, "lr": tasks.rate(figure), "commit": work.commit}
            runs.append({**named, "accuracy": accuracy, **told})
            work.save(found(False))
    if not runs:
        raise OutOfTime
    return found(len(runs) == len(jobs))


def _earlier(config: Config, work: Work) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the runs of the result file by what identifies them; of the same tasks and conditions only."""
    if work.earlier is None:
        return {}
    then, now = work.earlier["configuration"], json.loads(json.dumps(dataclasses.asdict(config)))
    if any(now[name] != then.get(name) for name in ("figures", "rounds", "beyond", "patience", "dropout")):
        return {}
    names = ("figure", "clients", "seed", "rule", "target", "lr")
    runs = work.earlier["numbers"]["runs"]
    return {tuple(run[name] for name in names): run for run in runs if clean(run["commit"])}


class _Tasks:
    """The task and the workers of one figure, cohort and seed at a time, made when they are needed."""

    def __init__(self, stack: ExitStack, config: Config, work: Work) -> None:
        self._stack, self._config, self._work = stack, config, work
        self._which: tuple[Any, ...] = ()

    def of(self, figure: Figure, clients: int, seed: int) -> tuple[Task, TrainingPool]:
        """Return task and workers; those of another one end."""
        if self._which != (figure, clients, seed):
            self._stack.close()
            options = self._options(figure, clients, seed)
            self._task = Task.prepare(options, data_dir=self._work.data_dir)
            self._pool = self._stack.enter_context(self._task.pool(options))
            self._which = figure, clients, seed
        return self._task, self._pool

    def rate(self, figure: Figure) -> float:
        """Return the learning rate."""
        return self._options(figure, 3, 0).lr

    def _options(self, figure: Figure, clients: int, seed: int) -> TrainingConfig:
        return TrainingConfig.create(
            figure.dataset,
            model=figure.model,
            partition=figure.partition,
            clients=clients,
            lr=figure.lr,
            aggregator="plain",
            dropout=self._config.dropout,
            rounds=self._config.rounds,
            seed=seed,
        )


def _train(
    config: Config, limit: int, figure: Figure, clients: int, seed: int, rule: Rule, work: Work, tasks: _Tasks
) -> list[float]:
    """Return the accuracy after every round, until some rounds after the first crossing; saves its state each round."""
    path = work.folder / "runs" / f"{figure.name}-{clients}-{seed}-{rule.key}.json"
    accuracy, model = _saved(path)
    while not _finished(accuracy, figure.target, limit, config.beyond):
        work.check_time()
        task, pool = tasks.of(figure, clients, seed)
        before = task.initial if model is None else model
        number = len(accuracy) + 1
        alive = np.flatnonzero(generator(seed, Purpose.DROPOUT, number).random(clients) >= config.dropout)
        updates = np.array([one.update for one in pool.train(before, alive.tolist(), number)])
        random = generator(seed, Purpose.SPARSITY, number)
        model = averaged(rule, before, updates, alive, clients, config.dropout, random)
        evaluation = pool.evaluate(model)
        accuracy.append(evaluation.correct / evaluation.samples)
        _save(path, accuracy, model)
        work.report(f"{path.stem}: {accuracy[-1]:.1%}", number, limit)
    return accuracy


def _finished(accuracy: Sequence[float], target: float, limit: int, beyond: int) -> bool:
    first = next((number for number, value in enumerate(accuracy, 1) if value >= target), None)
    return len(accuracy) >= (limit if first is None else min(limit, first + beyond))


def averaged(
    rule: Rule,
    model: Vector,
    updates: Vector,
    alive: NDArray[np.int64],
    clients: int,
    dropout: float,
    random: np.random.Generator,
) -> Vector:
    """Return the next model, from the updates of those who survived, shape (survivors, dim)."""
    if rule.alpha is None:
        divisor = clients if rule.by_everybody else len(alive)
        step = updates.sum(axis=0) / divisor
        kept = len(alive) / clients if rule.whole_models else 1.0
        return np.asarray(kept * model + step, np.float32)
    sends = draw_pattern(rule.alpha, clients, len(model), random)[alive]
    expected = selection_probability(rule.alpha, clients) * (1 - dropout) * clients
    step = np.where(sends, updates, 0).sum(axis=0) / expected
    return np.asarray(model + step / (1 - dropout if rule.twice else 1.0), np.float32)


def draw_pattern(alpha: float, clients: int, dim: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Return who sends what in the published pattern, shape (clients, dim): a random bit per pair and coordinate."""
    probability, bits = edge_probability(alpha, clients), clients * (clients - 1) // 2 * dim
    # The gaps between the ones of all bits, with six standard deviations to spare.
    mean = bits * probability
    ones = np.cumsum(random.geometric(probability, int(mean + 6 * mean**0.5 + 10))) - 1
    ones = ones[ones < bits]
    pair, coordinate = np.divmod(ones, dim)
    sends = np.zeros((clients, dim), np.bool_)
    for users in np.triu_indices(clients, 1):
        sends[users[pair], coordinate] = True
    return sends


def _saved(path: Path) -> tuple[list[float], Vector | None]:
    if not path.exists():
        return [], None
    stored = json.loads(path.read_text(encoding="utf-8"))
    model = np.frombuffer(base64.b64decode(stored["model"]), "<f4").astype(np.float32)
    return stored["accuracy"], model


def _save(path: Path, accuracy: list[float], model: Vector) -> None:
    path.parent.mkdir(exist_ok=True)
    text = base64.b64encode(model.astype("<f4").tobytes()).decode()
    write_atomically(path, json.dumps({"accuracy": accuracy, "model": text}))


# What the rounds come to


def rounds_to(run: Mapping[str, Any], first_crossing: bool, window: int) -> float | None:
    """Return when the target was reached: at the first crossing, or when the mean of `window` rounds crosses it."""
    values = run["accuracy"]
    for number in range(1, len(values) + 1):
        some = values[number - 1 : number] if first_crossing else values[number - 1 : number - 1 + window]
        if len(some) == (1 if first_crossing else window) and sum(some) / len(some) >= run["target"]:
            return float(number)
    return None


def table(runs: Sequence[Mapping[str, Any]], window: int) -> list[dict[str, Any]]:
    """Return, for each hypothesis, figure, N and seed, R and the saving R·u; None where a target was not reached."""
    known = {(one["figure"], one["clients"], one["seed"], one["rule"]): one for one in runs}
    found = []
    for hypothesis in HYPOTHESES:
        for figure, clients, seed in dict.fromkeys(key[:3] for key in known):
            base, sparse = (
                known.get((figure, clients, seed, rule.key)) for rule in (hypothesis.base, hypothesis.sparse)
            )
            if base and sparse:
                found.append(_entry(hypothesis, base, sparse, window))
    return found


def _entry(hypothesis: Hypothesis, base: Mapping[str, Any], sparse: Mapping[str, Any], window: int) -> dict[str, Any]:
    one, other = (rounds_to(run, hypothesis.first_crossing, window) for run in (base, sparse))
    ratio = one / other if one and other else None
    per_round = hypothesis.per_round(base["clients"])
    return {
        "hypothesis": hypothesis.name,
        **{name: base[name] for name in ("figure", "clients", "seed")},
        "rounds": [one, other],
        "ratio": ratio,
        "per_round": per_round,
        "saving": None if ratio is None else ratio * per_round,
    }
