"""Where the time goes: shares of a whole, with names a reader knows."""

from typing import Any

import pytest

from benchmarks import profiling


def test_the_shares_of_each_side_make_a_whole(cohort: Any) -> None:
    answer = profiling.measure(cohort, ["pairwise", "committee"], clients=2)
    for sides in answer["systems"].values():
        assert set(sides) == {"client_upload", "server"}
        for shares in sides.values():
            assert sum(shares.values()) == pytest.approx(1.0)
            assert list(shares.values()) == sorted(shares.values(), reverse=True)
            assert set(shares) <= {*profiling.GROUPS, "other"}
    assert answer["systems"]["committee"]["client_upload"]["mask streams (AES-256-CTR)"] > 0
    assert "locations" in answer["systems"]["pairwise"]["server"]
