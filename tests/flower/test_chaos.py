"""What `make chaos` finds in the book of a run: wrong sums, wrong means and second answers, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chaos import Check

UPDATES = np.array([[1.0, 2, 3], [3, 2, 1], [2, 5, 2]], np.float32)
MEAN = UPDATES.mean(axis=0)


class Book:
    """The book of a run in which three users took part in one round."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events = folder, 0
        for user, update in enumerate(UPDATES):
            self._write(f"run-1-{user}", integers=update.astype(np.int64), update=update, votes=np.array(False))
        self.event("start")
        self.event("model", model=np.zeros(3, np.float32), accuracy=0.1)
        self.answer("Upload", 0, "a")

    def _write(self, name: str, **content: Any) -> None:
        np.savez(self.folder / f"{name}.npz", **content)

    def event(self, kind: str, **content: Any) -> None:
        self._write(f"event-{self.events:05}", kind=kind, **content)
        self.events += 1

    def result(self, total: Any = UPDATES.sum(axis=0)) -> None:  # noqa: B008
        self.event("result", params="run", round_number=1, survivors=[0, 1, 2], total=total, clipped=0)

    def answer(self, kind: str, user: int, hashed: str) -> None:
        with (self.folder / "answers.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps([["run", kind, 1, user], hashed]) + "\n")

    def wrong(self) -> list[str]:
        return Check(self.folder, compare_models=True).wrong


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


def test_a_right_mean_and_repeated_answers_are_not_wrong(book: Book) -> None:
    book.result()
    book.event("model", model=MEAN, accuracy=0.5)
    book.event("model", model=MEAN, accuracy=0.5)  # A round that failed.
    book.answer("Upload", 0, "a")
    book.answer("Unmask", 0, "b")
    assert book.wrong() == []


@pytest.mark.parametrize("model", [MEAN, np.zeros(3, np.float32)], ids=["with", "without"])
def test_a_server_that_was_killed_goes_on_with_or_without_its_last_mean(book: Book, model: np.ndarray) -> None:
    book.result()
    book.event("start")
    book.event("model", model=model, accuracy=0.5)
    assert book.wrong() == []


def test_a_wrong_sum_is_found(book: Book) -> None:
    book.result(UPDATES.sum(axis=0) + np.float32(1))
    assert book.wrong() == ["wrong sum: round 1"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_wrong_mean_is_found(book: Book, restarted: bool) -> None:
    book.result()
    if restarted:
        book.event("start")
    book.event("model", model=MEAN + np.float32(0.001), accuracy=0.5)
    (wrong,) = book.wrong()
    assert wrong.startswith("wrong mean")


def test_a_model_that_moves_without_a_sum_is_found(book: Book) -> None:
    book.event("model", model=MEAN, accuracy=0.5)
    assert len(book.wrong()) == 1


def test_a_second_answer_is_found(book: Book) -> None:
    book.answer("Upload", 0, "another")
    (wrong,) = book.wrong()
    assert wrong.startswith("two answers")
