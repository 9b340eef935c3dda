"""Layouts: every coordinate lies in exactly one block, padding is zero."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.patterns import ALL, Layout

dims = st.integers(1, 200)
block_counts = st.integers(1, 40)


@given(dims, block_counts)
def test_blocks_cover_all_coordinates_with_the_least_padding(dim: int, blocks: int) -> None:
    layout = Layout.cut(dim, blocks)
    assert layout.blocks == blocks
    assert 0 <= layout.blocks * layout.length - dim < blocks


@given(dims, block_counts)
def test_the_pieces_of_all_blocks_are_the_vector_and_zeros(dim: int, blocks: int) -> None:
    layout = Layout.cut(dim, blocks)
    vector = np.arange(1, dim + 1, dtype=np.float32)
    pieces = [layout.piece(vector, block, 0, layout.length) for block in range(blocks)]
    whole = np.concatenate(pieces)
    assert whole[:dim].tolist() == vector.tolist()
    assert not whole[dim:].any()
    assert all(len(piece) == layout.length and piece.dtype == vector.dtype for piece in pieces)


@given(dims, block_counts, st.data())
def test_a_block_may_be_read_in_parts(dim: int, blocks: int, data: st.DataObject) -> None:
    layout = Layout.cut(dim, blocks)
    vector = np.arange(1, dim + 1)
    block, cut = data.draw(st.integers(0, blocks - 1)), data.draw(st.integers(0, layout.length))
    parts = [layout.piece(vector, block, 0, cut), layout.piece(vector, block, cut, layout.length)]
    assert np.concatenate(parts).tolist() == layout.piece(vector, block, 0, layout.length).tolist()


@given(dims, block_counts, st.integers(0, 3))
def test_flattening_puts_the_blocks_together_again(dim: int, blocks: int, extra: int) -> None:
    """Without the padding and without the extra words behind each block."""
    layout = Layout.cut(dim, blocks)
    vector = np.arange(1, dim + 1)
    table = np.full((blocks, layout.length + extra), -1)
    for block in range(blocks):
        table[block, : layout.length] = layout.piece(vector, block, 0, layout.length)
    assert layout.flatten(table).tolist() == vector.tolist()


@given(dims, block_counts)
def test_spreading_repeats_a_number_for_each_coordinate_of_its_block(dim: int, blocks: int) -> None:
    layout = Layout.cut(dim, blocks)
    assert layout.spread(np.arange(blocks)).tolist() == [place // layout.length for place in range(dim)]


def test_blocks_are_counted_whether_named_or_all() -> None:
    layout = Layout.cut(10, 4)
    assert layout.count(ALL) == 4
    assert layout.count(np.array([1, 3])) == 2
    assert layout.count(np.array([], np.int64)) == 0
