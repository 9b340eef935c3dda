"""Large cohorts: whole rounds, a sample of pods that stands for all, and rounds opened in threads."""

from typing import Any

import pytest

from benchmarks import authenticated, scale, threads
from sparsesecagg.simulate import InProcessRun
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import Parameters


@pytest.fixture(scope="module")
def answer() -> Any:
    return scale.measure(dim=2_000, cohorts=(160, 320, 640))


def test_bytes_per_user_do_not_grow_with_the_cohort(answer: Any) -> None:
    assert set(answer["growth"]) == {"client_seconds", "server_seconds", "sent_bytes", "received_bytes"}
    for growth in (answer["growth"], answer["growth_sampled"]):
        assert 0.8 < growth["sent_bytes"] < 1.2
        assert 0.8 < growth["received_bytes"] < 1.2


def test_whole_cohorts_are_simulated_and_of_the_largest_a_sample(answer: Any) -> None:
    cohorts = answer["cohorts"]
    assert [cohorts[n]["users_simulated"] for n in ("160", "320")] == [160, 320]
    assert cohorts["640"]["pods"] > scale.SAMPLED_PODS
    assert cohorts["640"]["users_simulated"] < 640
    assert cohorts["640"]["committees_opened"] == 2 * scale.SAMPLED_PODS
    assert all(one["exact"] for one in cohorts.values())
    assert answer["peak_memory_bytes"] == cohorts["320"]["peak_memory_bytes"] > 10 << 20


def test_a_sampled_pod_costs_what_it_costs_in_the_whole_cohort(answer: Any) -> None:
    params = Parameters.create(clients=320, dim=500, alpha=0.5, committee_size=20, pod_size=40)
    whole, some = InProcessRun(params), InProcessRun(params, pods=[1, 3])
    assert some.members == {user for index in (1, 3) for user in some.server.groups.pods[index].users.tolist()}
    update = pytest.importorskip("numpy").zeros(500, "f4")
    sizes = [run.round(lambda _: update).result.sent_bytes["UPLOAD"] for run in (whole, some)]
    assert set(sizes[0]) == set(sizes[1])
    assert len(sizes[1]) == len(some.members)


def test_one_thread_and_two_open_the_same_round() -> None:
    answer = threads.measure(clients=40, dim=3_000, repeats=1)
    assert answer["exact"]
    assert set(answer["seconds"]) == {"1", "2"}
    assert answer["speedup"] == pytest.approx(answer["seconds"]["1"] / answer["seconds"]["2"])


def test_authentication_is_measured_with_and_without_confirming() -> None:
    answer = authenticated.measure(clients=12, dim=500, repeats=1, alpha=0.5)
    for side in ("client", "server"):
        names = {"plain", "plain_on_disk"}
        names |= {"authenticated", "authenticated_without_confirm", "authenticated_on_disk"}
        assert set(answer[f"{side}_seconds"]) == names
        assert all(seconds > 0 for seconds in answer[f"{side}_seconds"].values())
        assert answer[f"{side}_ratios"]["plain"] == 1
        assert answer[f"{side}_ratio_on_disk"] > 0
    with pytest.raises(InvalidInput, match="repeats"):
        authenticated.measure(clients=12, dim=500, repeats=0)
