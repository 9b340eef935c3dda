"""Models as vectors: which arrays travel, the update as a vector, the mean put back into arrays.

Floating-point arrays are laid end to end and averaged. Integer and boolean arrays (the batch counter of a BatchNorm
layer, masks, look-up tables) are not: a mean of them is seldom what anybody means, and their range would ruin the
quantisation of everything else. They stay as the global model has them, bit for bit.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from tokenize import TokenError
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput, require

_NUMPY = "numpy.ndarray"
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def view(array: Array) -> NDArray[Any]:
    """Return the array's values without copying them; they can't be written to."""
    require("arrays", array.stype == _NUMPY, f"must hold NumPy arrays, got {array.stype}")
    stream = io.BytesIO(array.data)
    try:
        shape, fortran, dtype = _READ_HEADER[np.lib.format.read_magic(stream)](stream)
    except (ValueError, KeyError, TypeError, SyntaxError, OverflowError, RecursionError, TokenError):
        raise InvalidInput("arrays", "must hold NumPy arrays, and one can't be read") from None
    require("arrays", not dtype.hasobject, "must hold numbers, not objects")
    if tuple(shape) != tuple(array.shape) or str(dtype) != array.dtype:
        raise InvalidInput("arrays", "must have the type and shape that their records name")
    if len(array.data) - stream.tell() != prod(shape) * dtype.itemsize:
        raise InvalidInput("arrays", "must have as many bytes as their shapes need")
    try:
        flat = np.frombuffer(array.data, dtype, count=prod(shape), offset=stream.tell())
        return flat.reshape(shape, order="F" if fortran else "C")
    except ValueError:
        raise InvalidInput("arrays", "must have shapes and types that hold numbers") from None


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
        arrays = {name: view(array) for name, array in record.items()}
        for name, values in arrays.items():
            if values.dtype.kind not in "fiub":
                raise InvalidInput("arrays", f"must hold real numbers, and {name!r} is of type {values.dtype}")
        template = Template.laid_out((name, values.dtype, values.shape) for name, values in arrays.items())
        require("arrays", template.dim > 0, "must hold at least one floating-point array to be averaged")
        return template

    @staticmethod
    def laid_out(arrays: Iterable[tuple[str, np.dtype[Any], tuple[int, ...]]]) -> Template:
        """Return the layout of arrays with these names, types and shapes."""
        slots: list[Slot] = []
        start = 0
        for name, dtype, shape in arrays:
            slots.append(Slot(name, dtype, shape, start, prod(shape) if dtype.kind == "f" else 0))
            start += slots[-1].size
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
                found = f"{slot.name!r} has shape {values.shape}, not {wanted}"
                raise InvalidInput("arrays", f"of the reply must {rule}: {found}")
            if values.dtype.kind != "f":
                raise InvalidInput("arrays", f"of the reply must keep their types: {slot.name!r} is {values.dtype}")

    def add(self, record: ArrayRecord, update: NDArray[Any]) -> ArrayRecord:
        """Return the model moved by the update; arrays that do not travel are carried over.

        Half precision is widened, since strategies compute with the mean before `cast` makes it narrow again.
        """
        moved: dict[str, Array] = {}
        for slot in self.slots:
            moved[slot.name] = record[slot.name]
            if slot.size:
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


# A node's own copies


def model_digest(record: ArrayRecord) -> bytes:
    """Return SHA-256 of the names, types, shapes and values of a model."""
    state = hashlib.sha256(b"sparsesecagg/v3/flower model")
    for name, array in record.items():
        values = np.ascontiguousarray(view(array))
        # Not the bytes of the record: versions of NumPy frame the same values differently.
        head = repr((name, values.dtype.str, view(array).shape)).encode()
        for part in (head, values.reshape(-1).view(np.uint8).data):
            state.update(len(part).to_bytes(8, "little"))
            state.update(part)
    return state.digest()


def own_records(content: RecordDict) -> RecordDict:
    """Return a copy in a fixed order, whose arrays the receiver may change or clear."""
    own = RecordDict()
    for name in sorted(content):
        record = content[name]
        if isinstance(record, ArrayRecord):
            own[name] = ArrayRecord({key: _own_array(array) for key, array in record.items()})
        else:
            own[name] = type(record)({key: record[key] for key in sorted(record)})  # type: ignore[misc]
    return own


def _own_array(array: Array) -> Array:
    """Return an array framed as this node's NumPy does it; bytes are shared if they are already."""
    values, head = view(array), io.BytesIO()
    written = {"descr": values.dtype.str, "fortran_order": False, "shape": values.shape}
    np.lib.format.write_array_header_1_0(head, written)
    if array.data.startswith(head.getvalue()):
        return Array(array.dtype, array.shape, array.stype, array.data)
    return Array(np.array(values, order="C"))


# Arrays in files

SavedArrays = list[tuple[str, str, list[int], str, bytes]]
"""Name, type, shape, serialisation and bytes."""


def written_arrays(arrays: Mapping[str, Array]) -> SavedArrays:
    """Return arrays as MessagePack can write them."""
    return [(name, each.dtype, list(each.shape), each.stype, each.data) for name, each in arrays.items()]


def saved_arrays(saved: SavedArrays) -> dict[str, Array]:
    """Return the arrays that `written_arrays` wrote."""
    return {name: Array(dtype, tuple(shape), stype, data) for name, dtype, shape, stype, data in saved}
