"""Which node is which user: one node each, and one user each."""

from __future__ import annotations

import pytest

from sparsesecagg.flower import UnprovenNode
from sparsesecagg.flower.exchanges import Seats


class TestSeats:
    def test_a_user_has_one_node_until_that_is_gone(self) -> None:
        seats = Seats()
        seats.take(2, 104, present={104, 105})
        with pytest.raises(UnprovenNode, match="user 2 of the roster is node 104, which is present"):
            seats.take(2, 105, present={104, 105})
        seats.take(2, 105, present={105})
        assert seats.among({104, 105}) == {2: 105}
        assert seats.user_of.get(104) is None

    def test_a_node_has_one_user(self) -> None:
        seats = Seats()
        seats.take(2, 104, present={104})
        seats.take(3, 104, present={104})
        assert seats.among({104}) == {3: 104}
        assert seats.user_of.get(104) == 3

    def test_proving_again_changes_nothing(self) -> None:
        seats = Seats()
        for _ in range(2):
            seats.take(2, 104, present={104})
        assert seats.among({104, 105}) == {2: 104}
        assert seats.among({105}) == {}
