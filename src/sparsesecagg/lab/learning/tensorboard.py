"""Write a run's metrics as a TensorBoard event file; needs no TensorBoard, only tensorboardX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparsesecagg.errors import MissingExtra

FILE_NAME = "events.out.tfevents.0000000000.sparsesecagg"
"""Without time and host, so that a run that is resumed replaces its events."""
SCALARS = (
    "accuracy",
    "loss",
    "survivors",
    "upload_bytes",
    "downlink_bytes",
    "coordinates_updated",
    "cumulative_upload_bytes",
    "training_seconds",
    "clipped",
)


def write_events(folder: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    """Write one event per round and return the file; steps are rounds, and time is computing time so far."""
    try:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary
        from tensorboardX.record_writer import RecordWriter
    except ImportError as problem:
        raise MissingExtra("learn", "TensorBoard events") from problem
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE_NAME
    events = RecordWriter(str(path))
    events.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
    for line in lines:
        scalars = [Summary.Value(tag=tag, simple_value=line[tag]) for tag in SCALARS if line.get(tag) is not None]
        computing = line["cumulative_seconds"]["computing"]
        event = Event(wall_time=computing, step=line["round"], summary=Summary(value=scalars))
        events.write(event.SerializeToString())
    events.close()
    return path
