"""`full`: SecAgg with a complete graph, SecAgg+ with a k-regular one."""

from __future__ import annotations

from typing import ClassVar

import pytest

from patterns.suite import Case, PatternSuite, numbers, sent_by, shared_with
from sparsesecagg.patterns import Full
from sparsesecagg.patterns.full import BLOCK


class TestFull(PatternSuite):
    kind = Full
    cases: ClassVar = [
        Case(clients=3, dim=1, alpha=1.0),
        Case(clients=8, dim=100, alpha=0.1),
        Case(clients=12, dim=3 * BLOCK + 1, alpha=1.0, missing=(0, 5)),
        Case(clients=20, dim=50, alpha=1.0, degree=6),
        Case(clients=20, dim=50, alpha=1.0, degree=6, missing=(2, 3, 11)),
    ]

    def test_everybody_sends_everything_and_masks_it_with_every_peer(self, case: Case) -> None:
        pattern = case.pattern(Full)
        everything = list(range(pattern.layout.blocks))
        for user in case.members:
            assert sent_by(pattern, user) == everything
            shared = shared_with(pattern, user, pattern.peers(user))
            assert all(numbers(pattern, blocks) == everything for blocks in shared.values())

    def test_the_mask_graph_is_the_share_graph_among_members(self, case: Case) -> None:
        """Pairs agree on masks when they agree on shares."""
        pattern = case.pattern(Full)
        assert Full.masks_along_shares
        for user in case.members:
            neighbours = set(pattern.graph.neighbours(user).tolist())
            assert pattern.peers(user) == sorted(neighbours - set(case.missing))


@pytest.mark.parametrize("dim", [1, BLOCK - 1, BLOCK, BLOCK + 1, 10 * BLOCK + 3])
def test_blocks_fit_in_memory(dim: int) -> None:
    """No block is longer than `BLOCK`, and there are no more blocks than needed."""
    layout = Full.make_layout(Case(clients=3, dim=dim, alpha=1.0).settings)
    assert layout.length <= BLOCK
    assert layout.blocks == (dim + BLOCK - 1) // BLOCK
