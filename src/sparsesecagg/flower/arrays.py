"""Models as vectors: which arrays travel, the update as a vector, the mean put back into arrays.

Floating-point arrays are laid end to end and averaged. Integer and boolean arrays (the batch counter of a BatchNorm
layer, masks, look-up tables) are not: a mean of them is seldom what anybody means, and their range would ruin the
quantisation of everything else. They stay as the global model has them, bit for bit.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.downlink import Spread
from sparsesecagg.downlink.vector import Vector
from sparsesecagg.errors import InvalidInput, MalformedMessage
from sparsesecagg.patterns.sliced import turns_of

_NUMPY = "numpy.ndarray"
_LARGEST_BLOCK = 1 << 20
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def view(array: Array) -> NDArray[Any]:
    """Return the array's values without copying them; they can't be written to."""
    if array.stype != _NUMPY:
        raise InvalidInput("arrays", f"must hold NumPy arrays, got {array.stype}")
    stream = io.BytesIO(array.data)
    try:
        shape, fortran, dtype = _READ_HEADER[np.lib.format.read_magic(stream)](stream)
    except (ValueError, KeyError, TypeError, SyntaxError, OverflowError, RecursionError):
        raise InvalidInput("arrays", "must hold NumPy arrays, and one can't be read") from None
    if dtype.hasobject:
        raise InvalidInput("arrays", "must hold numbers, not objects")
    if tuple(shape) != tuple(array.shape) or str(dtype) != array.dtype:
        raise InvalidInput("arrays", "must have the type and shape that their records name")
    if len(array.data) - stream.tell() != prod(shape) * dtype.itemsize:
        raise InvalidInput("arrays", "must have as many bytes as their shapes need")
    flat = np.frombuffer(array.data, dtype, count=prod(shape), offset=stream.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


@dataclass(frozen=True)
class Slot:
    """One array of the model; `start` and `size` place a floating-point array in the vector."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    size: int
    """0 for an array that does not travel."""


@dataclass(frozen=True)
class Template:
    """How a model is laid out as a vector. Server and clients derive it from the same model."""

    slots: tuple[Slot, ...]

    @staticmethod
    def of(record: ArrayRecord) -> Template:
        """Return the layout of a model; refuse one that has nothing to average."""
        slots: list[Slot] = []
        start = 0
        for name, array in record.items():
            values = view(array)
            if values.dtype.kind not in "fiub":
                raise InvalidInput("arrays", f"must hold real numbers, and {name!r} is of type {values.dtype}")
            size = values.size if values.dtype.kind == "f" else 0
            slots.append(Slot(name, values.dtype, values.shape, start, size))
            start += size
        if start == 0:
            raise InvalidInput("arrays", "must hold at least one floating-point array to be averaged")
        return Template(tuple(slots))

    @cached_property
    def travelling(self) -> tuple[Slot, ...]:
        """The arrays that are averaged."""
        return tuple(slot for slot in self.slots if slot.size)

    @property
    def sizes(self) -> list[int]:
        """The number of parameters in each of them."""
        return [slot.size for slot in self.travelling]

    @cached_property
    def dim(self) -> int:
        """The length of the vector."""
        return sum(self.sizes)

    @property
    def bytes(self) -> int:
        """The bytes of the values of all arrays."""
        return sum(slot.dtype.itemsize * prod(slot.shape) for slot in self.slots)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """What differences are computed in: float32, or float64 if an array of the model is."""
        wide = any(slot.dtype.itemsize > 4 for slot in self.travelling)
        return np.dtype(np.float64 if wide else np.float32)

    def require_same(self, record: ArrayRecord, rows: int | None = None) -> None:
        """Raise unless a trained model has the arrays that travel, in any order; others are not looked at.

        With `rows` it holds so many of each array, one for each example.
        """
        for slot in self.travelling:
            wanted = slot.shape if rows is None else (rows, *slot.shape)
            if slot.name not in record:
                raise InvalidInput("arrays", f"of the reply must have the names that the server sent: no {slot.name!r}")
            values = view(record[slot.name])
            if values.shape != wanted:
                rule = "keep their shapes" if rows is None else "have one row for each example (unit='example')"
                raise InvalidInput(
                    "arrays", f"of the reply must {rule}: {slot.name!r} has shape {values.shape}, not {wanted}"
                )
            if values.dtype.kind != "f":
                raise InvalidInput("arrays", f"of the reply must keep their types: {slot.name!r} is {values.dtype}")

    def add(self, record: ArrayRecord, update: NDArray[Any]) -> ArrayRecord:
        """Return the model moved by the update; arrays that do not travel are carried over.

        Half precision is widened, since strategies compute with the mean before `cast` makes it narrow again.
        """
        moved: dict[str, Array] = {}
        for slot in self.slots:
            if slot.size == 0:
                moved[slot.name] = record[slot.name]
                continue
            part = update[slot.start : slot.start + slot.size].reshape(slot.shape)
            wide = np.result_type(slot.dtype, np.float32)
            moved[slot.name] = Array(np.asarray(np.add(view(record[slot.name]), part, dtype=wide)))
        return ArrayRecord(moved)

    def cast(self, record: ArrayRecord) -> ArrayRecord:
        """Return a model with the types that it had before a strategy computed with it.

        Strategies multiply by weights, which turns integers into floats and sometimes float32 into float64.
        """
        wanted = {slot.name: slot.dtype for slot in self.slots}
        arrays: dict[str, Array] = {}
        for name, array in record.items():
            values, dtype = view(array), wanted.get(name)
            if dtype is None or values.dtype == dtype:
                arrays[name] = array
            else:
                arrays[name] = Array(np.asarray((np.rint(values) if dtype.kind in "iub" else values).astype(dtype)))
        return ArrayRecord(arrays)


# Models as steps: which arrays have them, and where their coordinates lie


class Order(msgspec.Struct, frozen=True, array_like=True):
    """Which arrays of a model have steps, and which of their coordinates change together. The server's to say."""

    seed: bytes
    block: int
    stepped: tuple[int, ...]
    """Places among the arrays of the model."""

    def encode(self) -> bytes:
        """Return the order as bytes."""
        return msgspec.msgpack.encode(self)

    @property
    def name(self) -> str:
        """What tells files of models in different orders apart."""
        return digest("order", self.encode())[:8].hex()

    @staticmethod
    def decode(data: bytes) -> Order:
        """Read an order; raises `MalformedMessage`."""
        try:
            order = msgspec.msgpack.decode(data, type=Order)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise MalformedMessage("the bytes do not say how a model is arranged in steps") from None
        if not 1 <= order.block <= _LARGEST_BLOCK or len(order.seed) != 32:
            raise MalformedMessage("a model can't be arranged in steps like this")
        return order


@dataclass(frozen=True)
class Arrangement:
    """Where the arrays of a model lie in steps. How a model travels, and nothing that it means, follows from it."""

    template: Template
    order: Order
    stepped: tuple[Slot, ...] = field(init=False)
    spread: Spread = field(init=False, compare=False)

    def __post_init__(self) -> None:
        slots = self.template.slots
        if not all(0 <= place < len(slots) and slots[place].size for place in self.order.stepped):
            raise MalformedMessage("steps are announced for an array that has none")
        stepped = tuple(slots[place] for place in sorted(set(self.order.stepped)))
        sizes = [slot.size for slot in stepped]
        object.__setattr__(self, "stepped", stepped)
        object.__setattr__(self, "spread", Spread(sizes, turns_of(self.order.seed, sum(sizes), self.order.block)))

    def join(self, record: ArrayRecord) -> Vector:
        """Return a model's arrays as the vector that steps are made of."""
        with np.errstate(over="ignore"):  # What float32 can't hold becomes infinite, and is refused as such.
            return self.spread.join([view(record[slot.name]) for slot in self.stepped])

    def others(self, record: ArrayRecord) -> dict[str, Array]:
        """Return the arrays that have no steps."""
        stepped = {slot.name for slot in self.stepped}
        return {slot.name: record[slot.name] for slot in self.template.slots if slot.name not in stepped}

    def rebuild(self, vector: Vector, others: Mapping[str, Array]) -> ArrayRecord:
        """Return the model in a vector, beside the arrays that have no steps; raises KeyError if one is missing.

        Types are those of the template. float64 and float16 are made of float32, on both sides alike.
        """
        parts = dict(zip((slot.name for slot in self.stepped), self.spread.split(vector), strict=True))
        return ArrayRecord(
            {
                slot.name: Array(np.asarray(parts[slot.name].reshape(slot.shape).astype(slot.dtype)))
                if slot.name in parts
                else others[slot.name]
                for slot in self.template.slots
            }
        )


# Arrays in files

SavedArrays = list[tuple[str, str, list[int], str, bytes]]
"""Name, type, shape, serialisation and bytes."""


def written_arrays(arrays: Mapping[str, Array]) -> SavedArrays:
    """Return arrays as MessagePack can write them."""
    return [(name, each.dtype, list(each.shape), each.stype, each.data) for name, each in arrays.items()]


def saved_arrays(saved: SavedArrays) -> dict[str, Array]:
    """Return the arrays that `written_arrays` wrote."""
    return {name: Array(dtype, tuple(shape), stype, data) for name, dtype, shape, stype, data in saved}
