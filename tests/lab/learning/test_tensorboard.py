"""Event files that TensorBoard reads."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparsesecagg.lab.learning.tensorboard import write_events

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")

LINES: list[dict[str, Any]] = [
    {"round": 1, "accuracy": 0.5, "loss": None, "survivors": 7, "cumulative_seconds": {"computing": 1.5}},
    {"round": 300, "accuracy": 0.75, "loss": 0.25, "survivors": 8, "cumulative_seconds": {"computing": 9.0}},
]


def events(data: bytes) -> Iterator[Any]:
    """Read the records: length, its checksum, content, its checksum."""
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        yield event_pb2.Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]


def test_every_round_is_an_event_with_its_scalars(tmp_path: Path) -> None:
    """A version first; steps are rounds; an absent loss is left out."""
    version, *rounds = events(write_events(tmp_path / "tensorboard", LINES).read_bytes())
    assert version.file_version == "brain.Event:2"
    read = [
        (event.step, event.wall_time, {value.tag: value.simple_value for value in event.summary.value})
        for event in rounds
    ]
    assert read[0] == (1, 1.5, {"accuracy": 0.5, "survivors": 7.0})
    assert read[1] == (300, 9.0, {"accuracy": 0.75, "loss": 0.25, "survivors": 8.0})


def test_written_again_it_replaces_what_was_there(tmp_path: Path) -> None:
    """As when a run is resumed: no round appears twice."""
    write_events(tmp_path, LINES[:1])
    write_events(tmp_path, LINES)
    assert len(list(tmp_path.iterdir())) == 1
    assert [event.step for event in events(next(tmp_path.iterdir()).read_bytes())] == [0, 1, 300]
