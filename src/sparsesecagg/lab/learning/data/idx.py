"""Read IDX files, the format of MNIST and Fashion-MNIST, gzip or not."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput

_UNSIGNED_BYTE = 0x08  # The only element type these data sets use.


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array of unsigned bytes that an IDX file holds; raise `InvalidInput` if it is not one."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as problem:
            raise InvalidInput("data_dir", f"holds {path}, a damaged gzip file; fetch it again") from problem
    # Two zero bytes, the element type, the number of dimensions, then each dimension as 4 bytes, big end first.
    if len(raw) < 4 or raw[:3] != bytes([0, 0, _UNSIGNED_BYTE]):
        raise InvalidInput("data_dir", f"holds {path}, which is not an IDX file of unsigned bytes")
    dimensions = raw[3]
    start = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(raw[at : at + 4], "big") for at in range(4, min(start, len(raw)), 4))
    if dimensions == 0 or len(raw) != start + math.prod(shape):
        raise InvalidInput("data_dir", f"holds {path}, an IDX file of the wrong length; fetch it again")
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)
