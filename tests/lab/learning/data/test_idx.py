"""IDX files, the format of MNIST."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.data.idx import read_idx

from ..support import idx_bytes


@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=3, max_side=6)), st.booleans())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, array, packed) -> None:
    """Any shape, gzip or not."""
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    assert np.array_equal(read_idx(path), array)


WHOLE = idx_bytes(np.arange(12, dtype=np.uint8).reshape(3, 4))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        WHOLE[:3],
        WHOLE[:7],
        WHOLE[:-1],
        WHOLE + b"x",
        b"\x01" + WHOLE[1:],
        gzip.compress(WHOLE, mtime=0)[:-9],
        b"\0\0\x08\0",
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content) -> None:
    """Truncated, too long, of another type, or a broken gzip: the error names the file."""
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="train-images"):
        read_idx(path)
