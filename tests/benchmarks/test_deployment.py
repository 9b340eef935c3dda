"""What `benchmarks.deployment` and `benchmarks.whole` make of a measurement; the deployment itself takes minutes."""

import pytest

from benchmarks import claims, deployment, page, results, whole
from benchmarks.cohort import Cohort
from sparsesecagg.errors import InvalidInput


def line(exchanges, **changes):
    stages = {"UPLOAD": 6.0, "UNMASK": 5.0, "total": 11.0}
    return {
        "exchanges": exchanges, "status": "ok", "survivors": 5, "dropped": {}, "stage_seconds": stages,
        "wire_bytes": {"total": 100}, "received_bytes": {"total": 10}, "model_bytes": 5.0,
        "client_seconds": {"total": 0.1}, "server_seconds": {"total": 0.2}, **changes,
    }  # fmt: skip


FOUND = {
    "seconds": {"secure": [30.0, 11.0, 12.0, 13.0], "plain": [9.0, 6.0, 7.0, 6.0]},
    "rounds": [line(4), line(2), line(2), line(2, status="failed")],
}
SETTINGS = {"nodes": 5, "rounds": 4, "confirm": False, "kill": False}


def test_medians_leave_out_the_first_round_which_exchanges_keys():
    answer = deployment._summary(FOUND, None, SETTINGS)
    assert (answer["exchanges"], answer["seconds_per_round"], answer["plain_seconds_per_round"]) == (2, 12.0, 6.0)
    assert answer["ratio_to_plain"] == 2.0
    assert answer["failed_rounds"] == 1
    assert answer["stage_seconds"]["UNMASK"] == 5.0
    assert "secagg_plus_seconds_per_round" not in answer


def test_the_peer_is_a_row_of_its_own():
    answer = deployment._summary(FOUND, {"seconds": {"secagg_plus": [99.0, 24.0, 18.0]}}, SETTINGS)
    assert answer["secagg_plus_seconds_per_round"] == 21.0
    assert answer["secagg_plus_ratio_to_plain"] == 3.5
    assert "Flower's SecAgg+ 4 exchanges" in deployment._sentence(answer)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nodes": 2}, "nodes must be at least 3"),
        ({"rounds": 1}, "rounds must be at least 2"),
        ({"nodes": 4, "kill": True}, "nodes must be at least 5"),
        ({"rounds": 3, "kill": True}, "rounds must be at least 4"),
        ({"dim": 0}, "dim must be at least 1"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_anything_starts(options, problem):
    with pytest.raises(InvalidInput, match=problem):
        deployment.measure(**options)


def test_the_whole_of_a_round_counts_the_model_on_its_way_down(tmp_path):
    answer = whole.measure(Cohort(clients=20, dim=4000, alpha=0.2, dropout=0.1, modulus_bits=8), peer=False)
    plain, models, steps = (answer["systems"][name] for name in ("plain", "committee", "committee_steps"))
    assert plain["total_bytes"] == 2 * 4 * 4000
    assert models["received_bytes"] - steps["received_bytes"] == 4 * 4000 - steps["model_bytes"]
    assert 2000 < steps["model_bytes"] < 2200
    assert models["exact"]
    assert steps["exchanges"] == 2
    assert answer["ratios"]["plain"] == plain["total_bytes"] / steps["total_bytes"]
    with pytest.raises(InvalidInput, match="downlink_bits must be 2, 4 or 8"):
        whole.measure(whole.COHORT, downlink_bits=5)


def test_claims_follow_from_the_files(tmp_path):
    begun = results.begin()
    systems = {name: {"total_bytes": total} for name, total in (("flower_secagg_plus", 2e6), ("committee_steps", 1e5))}
    results.write(claims.WHOLE, {"systems": systems, "ratios": {"flower_secagg_plus": 20.0}}, begun, tmp_path)
    slow = {**deployment._summary(FOUND, None, {**SETTINGS, "confirm": True}), "ratio_to_plain": 3.4}
    results.write(deployment.result_name(confirm=True), slow, begun, tmp_path)
    found = {claim.text: claim.holds for claim in claims.claims(tmp_path)}
    assert list(found.values()) == [True, True, True, False]
    assert page.render("{{ claims }}", tmp_path).count("**no**") == 1
