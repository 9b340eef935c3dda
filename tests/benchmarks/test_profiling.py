"""Where the time goes: shares of a whole, with names a reader knows, beside the floor."""

from typing import Any

import pytest

from benchmarks import profiling


def test_the_shares_of_each_side_make_a_whole(setting: Any) -> None:
    answer = profiling.measure(setting, ["sliced"], clients=2)
    found = answer["systems"]["sliced"]
    for side in profiling.SIDES:
        shares = found[side]
        assert sum(shares.values()) == pytest.approx(1.0)
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
        assert set(shares) <= {*profiling.GROUPS, "other"}
        assert found["seconds"][side] > found["floor"][side] > 0
    assert found["client_upload"]["mask streams (AES-256)"] > 0
    assert found["server"]["secret sharing"] > 0
    assert answer["less"] == {key: dict.fromkeys(profiling.SIDES, 1.0) for key in ("seconds", "floor")}


def test_the_floor_is_agreements_and_key_streams(setting: Any) -> None:
    rates = {"agreement_seconds": 1.0, "stream_bytes_per_second": 600.0}
    # Ten users, two of them gone: 9 agreements and 10 masks of 300 words; 16 pairs and 8 private masks.
    assert profiling._floor("sliced", setting, rates) == {"client_upload": 9 + 10, "server": 16 + 16 + 8}
