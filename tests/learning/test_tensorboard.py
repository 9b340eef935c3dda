"""Event files that TensorBoard reads, taken apart by hand."""

import struct

import pytest

from sparsesecagg.learning.tensorboard import crc32c, write_events

LINES = [
    {"round": 1, "accuracy": 0.5, "loss": None, "survivors": 7, "cumulative_seconds": {"computing": 1.5}},
    {"round": 300, "accuracy": 0.75, "loss": 0.25, "survivors": 8, "cumulative_seconds": {"computing": 9.0}},
]


def varint(data, at):
    """Read a protocol-buffer integer."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at


def fields(data):
    """Return the (field number, value) pairs of a protocol buffer."""
    at, found = 0, []
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            (value,), at = struct.unpack("<d", data[at : at + 8]), at + 8
        elif kind == 5:
            (value,), at = struct.unpack("<f", data[at : at + 4]), at + 4
        else:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        found.append((number, value))
    return found


def records(data):
    """Return the contents of all records, after checking both checksums of each."""
    contents = []
    while data:
        length = struct.unpack("<Q", data[:8])[0]
        content = data[12 : 12 + length]
        for part, stored in ((data[:8], data[8:12]), (content, data[12 + length : 16 + length])):
            crc = crc32c(part)
            assert struct.unpack("<I", stored)[0] == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
        contents.append(content)
        data = data[16 + length :]
    return contents


def test_the_checksum_is_castagnolis():
    """The published check value, and zeros (RFC 3720, B.4)."""
    assert crc32c(b"123456789") == 0xE3069283 and crc32c(bytes(32)) == 0x8A9136AA


def test_every_round_is_an_event_with_its_scalars(tmp_path):
    """A version first; steps are rounds; an absent loss is left out."""
    version, *events = records(write_events(tmp_path / "tensorboard", LINES).read_bytes())
    assert (3, b"brain.Event:2") in fields(version)
    read = []
    for event in events:
        parts = dict(fields(event))
        scalars = {}
        for _, value in fields(parts[5]):
            tag, number = (dict(fields(value))[key] for key in (1, 2))
            scalars[tag.decode()] = number
        read.append((parts[2], parts[1], scalars))
    assert read[0] == (1, 1.5, {"accuracy": 0.5, "survivors": 7.0})
    assert read[1] == (300, 9.0, {"accuracy": 0.75, "loss": 0.25, "survivors": 8.0})


def test_torch_reads_it_back(tmp_path):
    """Where TensorBoard is installed, its own reader agrees."""
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    path = write_events(tmp_path, LINES)
    assert [event.step for event in loader.EventFileLoader(str(path)).Load()] == [0, 1, 300]
