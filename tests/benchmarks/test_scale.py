"""Large cohorts: whole rounds, a sample of groups that stands for all, several threads, rosters and ledgers."""

import pytest

from benchmarks import authenticated, scale, threads
from sparsesecagg.errors import InvalidInput


@pytest.mark.slow
def test_bytes_per_user_grow_with_the_group_only() -> None:
    answer = scale.measure(dim=500, cohorts=(130, 260))
    assert set(answer["growth"]) == {"client_seconds", "server_seconds", "sent_bytes", "received_bytes"}
    assert 1.2 < answer["growth"]["sent_bytes"] < 1.4  # Groups of 65 and of 87.
    assert [one["users_simulated"] for one in answer["cohorts"].values()] == [130, 260]
    assert [one["groups_opened"] for one in answer["cohorts"].values()] == [2, 3]


def test_of_a_sample_some_groups_are_simulated_and_cost_the_same() -> None:
    whole, sample = (scale.measure_round(clients=130, dim=500, groups=groups) for groups in (None, 1))
    assert (whole["users_simulated"], sample["users_simulated"]) == (130, 65)
    assert (whole["groups_opened"], sample["groups_opened"]) == (2, 1)
    assert sample["sent_bytes"] == pytest.approx(whole["sent_bytes"], rel=0.05)
    assert whole["exact"]
    assert sample["exact"]


def test_one_thread_and_two_open_the_same_round() -> None:
    answer = threads.measure(clients=10, dim=2_000_000, repeats=1)
    assert answer["exact"]
    assert set(answer["seconds"]) == {"1", "2"}
    assert answer["serial_seconds"] > 0
    assert all(seconds > 0 for seconds in answer["masks_seconds"].values())
    assert answer["speedup"] == pytest.approx(answer["seconds"]["1"] / answer["seconds"]["2"])


def test_rosters_and_ledgers_are_measured_apart() -> None:
    answer = authenticated.measure(clients=8, dim=500, repeats=1)
    for side in authenticated.SIDES:
        assert set(answer[f"{side}_seconds"]) == set(authenticated.NAMES)
        assert all(seconds > 0 for seconds in answer[f"{side}_seconds"].values())
        assert answer[f"{side}_ratios"]["plain"] == 1
    with pytest.raises(InvalidInput, match="repeats"):
        authenticated.measure(clients=8, dim=500, repeats=0)
