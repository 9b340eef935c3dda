"""Train with slices, by α, gain, local epochs, partition and cut; write results/slices.json and docs/slices.md.

    SPARSESECAGG_DATA=FOLDER .venv/bin/python -m experiments.slices.run [--publish] [--only SECTION]

Every user of a round sends the same slice of its update. Keys and masks are left out: they change no sum. The file is
written after every run, and runs that it has are not trained again, so the experiment can be stopped and resumed.
`--publish` trains nothing and writes the page from the file.

What was reduced so that all of it takes about an hour on one core: MNIST and CIFAR-10 users have 60 to 300 samples
each, models have 5,000 to 50,000 parameters, convolutional networks train for 40 rounds and not 60, with ten users;
two local epochs, fixed gains, cuts and wrapped strategies are tried on IID data or at N = 25 only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from experiments.common.results import commit, machine
from experiments.slices.page import DOCUMENT, RESULTS, SHORT_BITS, WIDE, default_alpha, most_levels, published
from experiments.slices.servers import STRATEGIES
from experiments.slices.training import DROPOUT, TASKS, Cell, train
from sparsesecagg import __version__
from sparsesecagg.files import write_atomically

SEEDS = (0, 1, 2)
ALPHAS = (1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02)
MIDDLE = (0.5, 0.3)
PARTITIONS = ("iid", "shards")
CNN, CIFAR = "MNIST, CNN", "CIFAR-10, CNN"
CNN_USERS, CNN_ROUNDS = 10, 40
SHOWN = 10
"""Gains are kept every so many rounds."""


def must_show() -> Iterator[Cell]:
    """α = 1, 0.2 and 0.1 at N = 10, 25 and 100, with short local training and with long."""
    for epochs, users, task, partition, alpha in product(
        (1, 5), (25, 100, 10), ("digits", "MNIST"), PARTITIONS, (1.0, 0.2, 0.1)
    ):
        yield Cell(task, users, alpha, epochs=epochs, partition=partition)


def convolutional(alpha: float, epochs: int, partition: str, **other: Any) -> Cell:
    """Return a run of the convolutional network on MNIST."""
    return Cell(CNN, CNN_USERS, alpha, epochs=epochs, partition=partition, rounds=CNN_ROUNDS, **other)


def alphas() -> Iterator[Cell]:
    """All α with the adaptive gain: the default α is read from these and from the convolutional network."""
    for task, partition, alpha in product(("digits", "MNIST"), PARTITIONS, ALPHAS):
        yield Cell(task, 25, alpha, partition=partition)
    for epochs, users, task, partition, alpha in product(
        (1, 5), (100, 25, 10), ("digits", "MNIST"), PARTITIONS, MIDDLE
    ):
        if (epochs, users) != (1, 25):
            yield Cell(task, users, alpha, epochs=epochs, partition=partition)
    for task, partition, alpha in product(("digits", "MNIST"), PARTITIONS, (1.0, *MIDDLE, 0.2, 0.1)):
        yield Cell(task, 25, alpha, epochs=2, partition=partition)


def gains() -> Iterator[Cell]:
    """Fixed gains beside the adaptive one, at α = 0.1."""
    fixed: tuple[float | str, ...] = (1, 3, 5, "1/κ")
    for task, epochs in product(("digits", "MNIST"), (1, 5)):
        yield from (Cell(task, 25, 0.1, gain, epochs) for gain in fixed)


def networks() -> Iterator[Cell]:
    """The convolutional network: all α, and the boldest gain."""
    for epochs, partition, alpha in product((1, 5), PARTITIONS, (1.0, *MIDDLE, 0.2, 0.1)):
        yield convolutional(alpha, epochs, partition)
    for epochs in (1, 5):
        yield convolutional(0.1, epochs, "iid", gain="1/κ")


def cuts() -> Iterator[Cell]:
    """Ablation: strides and stretches instead of blocks, at α = 0.1."""
    for cut, gain in product(("strides", "stretches", "blocks"), ("1/κ", "adaptive")):
        yield Cell("MNIST", 25, 0.1, gain, cut=cut)
        yield convolutional(0.1, 1, "iid", gain=gain, cut=cut)


def strategies() -> Iterator[Cell]:
    """Wrapped strategies, at α = 1 and 0.1."""
    for strategy, task, alpha in product(STRATEGIES[1:], ("digits", "MNIST"), (1.0, 0.2, 0.1)):
        yield Cell(task, 25, alpha, strategy=strategy)


def levels() -> Iterator[Cell]:
    """Rounding by the real quantiser: the gain multiplies its noise, too."""
    for task, users, alpha, most in product(("digits", "MNIST"), (25, 100), (1.0, 0.2, 0.1), (2, 4, 8)):
        if users < 100 or most < 8:
            yield Cell(task, users, alpha, levels=most)


def uploads() -> Iterator[Cell]:
    """A model of 101,770 parameters, α = 0.1 in words of 8 or 9 bits beside SecAgg: what is uploaded until a target."""
    for users, partition in product((25, 100), PARTITIONS):
        yield Cell(WIDE, users, 1.0, partition=partition)
        yield Cell(WIDE, users, 0.1, partition=partition, levels=most_levels(users, SHORT_BITS[users]))


def chance() -> Iterator[Cell]:
    """Control: everything sent, users draw their samples in another order. What differs then is chance."""
    for epochs, partition in product((1, 5), PARTITIONS):
        yield convolutional(1.0, epochs, partition, shuffle=1)
    for users, task, partition in product((100, 25, 10), ("digits", "MNIST"), PARTITIONS):
        yield Cell(task, users, 1.0, partition=partition, shuffle=1)


def cifar() -> Iterator[Cell]:
    """Photographs."""
    for alpha in (1.0, *MIDDLE, 0.2, 0.1):
        yield Cell(CIFAR, CNN_USERS, alpha, rounds=CNN_ROUNDS)


SECTIONS = {
    "must_show": must_show,
    "alphas": alphas,
    "uploads": uploads,
    "networks": networks,
    "chance": chance,
    "cifar": cifar,
    "gains": gains,
    "strategies": strategies,
    "cuts": cuts,
    "levels": levels,
}


def cells(section: str) -> list[Cell]:
    """Return the runs of a section, with all seeds before the next one."""
    return [replace(cell, seed=seed) for cell in SECTIONS[section]() for seed in SEEDS]


def key(run: dict[str, Any] | Cell) -> str:
    """Return what tells one run from all others."""
    values = asdict(run) if isinstance(run, Cell) else {"shuffle": 0, **run}
    return json.dumps([values[name] for name in Cell.__dataclass_fields__], ensure_ascii=False)


def main() -> None:
    """Train what is missing, save after each run, publish at the end."""
    if "--publish" not in sys.argv:
        named = [sys.argv[sys.argv.index("--only") + 1]] if "--only" in sys.argv else list(SECTIONS)
        measure(named, RESULTS)
    result = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = DOCUMENT.read_text(encoding="utf-8")
    write_atomically(DOCUMENT, published(page, result))


def measure(sections: list[str], path: Path) -> None:
    """Train the runs of some sections that the file does not have yet."""
    runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []
    done, at = {key(run) for run in runs}, commit()
    everything = {key(cell) for section in SECTIONS for cell in cells(section)}
    todo = list(dict.fromkeys(cell for section in sections for cell in cells(section) if key(cell) not in done))
    for number, cell in enumerate(todo, start=1):
        began = time.perf_counter()
        curve = train(cell)
        seconds = round(time.perf_counter() - began, 1)
        done.add(key(cell))
        runs.append(
            asdict(cell) | {"accuracy": curve.accuracy, "gains": curve.gains[::SHOWN], "seconds": seconds, "commit": at}
        )
        save(path, runs, complete=everything <= done, at=at)
        print(f"{number}/{len(todo)} {key(cell)} {curve.accuracy[-1]:.1f} % in {seconds} s", flush=True)


def save(path: Path, runs: list[dict[str, Any]], *, complete: bool, at: str | None) -> None:
    """Write the result file, one run in a line."""
    about = {
        "command": "python -m experiments.slices.run",
        "version": __version__,
        "commit": at,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "complete": complete,
        "seeds": list(SEEDS),
        "configuration": {
            "dropout": DROPOUT,
            "masks": "left out: they change no sum",
            "shards": "two per user",
            "tasks": {name: asdict(task) for name, task in TASKS.items()},
            "reduced": "60 to 300 samples per user; CNNs with 10 users, 40 rounds; gains, cuts, strategies on IID data",
        },
        "default_alpha": default_alpha(runs) if complete else None,
    }
    head = json.dumps(about, indent=1, ensure_ascii=False).removesuffix("\n}")
    lines = ",\n".join("  " + json.dumps(run, ensure_ascii=False) for run in runs)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, f'{head},\n "runs": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
