"""Write a run's metrics as a TensorBoard event file; needs no TensorBoard.

The format: records of (length, its checksum, content, its checksum), where a content is a protocol buffer `Event` with
a time, a step and one scalar per tag. Checksums are CRC-32C, rotated and shifted by a constant.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparsesecagg.files import write_atomically

FILE_NAME = "events.out.tfevents.0000000000.sparsesecagg"
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
    folder.mkdir(parents=True, exist_ok=True)
    content = _record(_event(0.0, 0, b"\x1a" + _block(b"brain.Event:2")))
    for line in lines:
        scalars = {tag: line[tag] for tag in SCALARS if line.get(tag) is not None}
        summary = b"".join(b"\x0a" + _block(_scalar(tag, float(value))) for tag, value in scalars.items())
        content += _record(_event(line["cumulative_seconds"]["computing"], line["round"], b"\x2a" + _block(summary)))
    path = folder / FILE_NAME
    write_atomically(path, content)
    return path


def _event(seconds: float, step: int, what: bytes) -> bytes:
    # Fields 1 (double), 2 (varint), then file_version (3) or summary (5), already tagged.
    return b"\x09" + struct.pack("<d", seconds) + b"\x10" + _varint(step) + what


def _scalar(tag: str, value: float) -> bytes:
    # Fields 1 (string) and 2 (float).
    return b"\x0a" + _block(tag.encode()) + b"\x15" + struct.pack("<f", value)


def _block(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    coded = bytearray()
    while number > 0x7F:
        coded.append(number & 0x7F | 0x80)
        number >>= 7
    coded.append(number)
    return bytes(coded)


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _checksum(length) + content + _checksum(content)


def _checksum(content: bytes) -> bytes:
    crc = crc32c(content)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def crc32c(content: bytes) -> int:
    """Return the CRC-32 with Castagnoli's polynomial."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
