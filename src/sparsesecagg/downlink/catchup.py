"""What a node gets that is behind: the steps it lacks, or the whole model.

    version 1 │ kind 1 │ sequence 8 │ dim 8 │ digest 32 │ content

sequence and digest are those of the model that the node holds afterwards. The content of a whole model (kind 1) is its
float32 values in little-endian order; that of steps (kind 2) is each step behind its length in 8 bytes, and nothing for
a node that is up to date. Steps that take as many bytes as the model or more are refused: it would have been sent
instead, and the limit bounds what a message can make a node compute.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.downlink.step import VERSION, ModelStep
from sparsesecagg.downlink.vector import Vector, from_wire, is_clean, model_digest, read_only, wire_bytes
from sparsesecagg.errors import MalformedMessage

_HEADER = struct.Struct(f"<BBQQ{DIGEST_SIZE}s")
_LENGTH = struct.Struct("<Q")
_WHOLE_MODEL, _STEPS = 1, 2
_FLOAT_SIZE = 4


@dataclass(frozen=True, eq=False)
class WholeModel:
    """A model, its number and its digest."""

    sequence: int
    model: Vector
    digest: bytes

    def encode(self) -> bytes:
        """Return the message as bytes."""
        header = _HEADER.pack(VERSION, _WHOLE_MODEL, self.sequence, len(self.model), self.digest)
        return b"".join((header, wire_bytes(self.model)))


@dataclass(frozen=True)
class Steps:
    """Steps that follow one another, and the number and digest of the model they lead to."""

    sequence: int
    dim: int
    digest: bytes
    steps: tuple[ModelStep, ...]

    def encode(self) -> bytes:
        """Return the message as bytes."""
        return join_steps(self.sequence, self.dim, self.digest, [step.encode() for step in self.steps])


def join_steps(sequence: int, dim: int, digest: bytes, steps: Sequence[bytes]) -> bytes:
    """Return the message that holds these encoded steps."""
    pieces = [_HEADER.pack(VERSION, _STEPS, sequence, dim, digest)]
    for step in steps:
        pieces += [_LENGTH.pack(len(step)), step]
    return b"".join(pieces)


def whole_model_size(dim: int) -> int:
    """Return the bytes of a whole model of `dim` coordinates on the wire."""
    return _HEADER.size + _FLOAT_SIZE * dim


def steps_size(sizes: Sequence[int]) -> int:
    """Return the bytes of a message that holds steps of these sizes."""
    return _HEADER.size + sum(sizes) + _LENGTH.size * len(sizes)


def decode_catchup(data: bytes | memoryview) -> WholeModel | Steps:
    """Read either message; refuse whatever would not have been written. Needs about as much memory as `data`."""
    if len(data) < _HEADER.size:
        raise MalformedMessage(f"a catch-up has {_HEADER.size} bytes or more, got {len(data)}")
    version, kind, sequence, dim, digest = _HEADER.unpack_from(data)
    if version != VERSION:
        raise MalformedMessage(f"catch-ups have version {VERSION}, got {version}")
    if not dim:
        raise MalformedMessage("a model has at least one coordinate")
    content = memoryview(data)[_HEADER.size :]
    if kind == _WHOLE_MODEL:
        return _decode_model(content, sequence, dim, digest)
    if kind == _STEPS:
        if len(data) >= whole_model_size(dim) and content:
            raise MalformedMessage(f"{len(data)} bytes of steps are no fewer than the model of {dim} coordinates takes")
        steps = _decode_steps(content, dim)
        if steps and (steps[-1].after, steps[-1].digest_after) != (sequence, digest):
            raise MalformedMessage(f"the steps do not lead to the model {sequence} that they are said to")
        return Steps(sequence, dim, digest, steps)
    raise MalformedMessage(f"a catch-up is of kind 1 or 2, got {kind}")


def _decode_model(content: memoryview, sequence: int, dim: int, digest: bytes) -> WholeModel:
    if len(content) != _FLOAT_SIZE * dim:
        raise MalformedMessage(f"{dim} values take {_FLOAT_SIZE * dim} bytes, not {len(content)}")
    model = from_wire(content)
    if not is_clean(model):
        raise MalformedMessage("a value of the model is not finite, beyond 2**100, or not 0 and below 2**-103")
    if model_digest(model) != digest:
        raise MalformedMessage("the model is not the one that its digest names")
    return WholeModel(sequence, read_only(model), digest)


def _decode_steps(content: memoryview, dim: int) -> tuple[ModelStep, ...]:
    steps: list[ModelStep] = []
    while content:
        if len(content) < _LENGTH.size:
            raise MalformedMessage("the length of a step is cut off")
        (length,) = _LENGTH.unpack_from(content)
        content = content[_LENGTH.size :]
        if length > len(content):
            raise MalformedMessage(f"a step of {length} bytes is cut off after {len(content)}")
        step = ModelStep.decode(content[:length])
        if step.dim != dim:
            raise MalformedMessage(f"a step for {step.dim} coordinates among those of a model of {dim}")
        if steps and steps[-1].after != step.before:
            raise MalformedMessage(f"a step from model {step.before} follows one to model {steps[-1].after}")
        steps.append(step)
        content = content[length:]
    return tuple(steps)
