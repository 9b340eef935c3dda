"""What `benchmarks.deployment` and `benchmarks.whole` make of a measurement; the deployment itself takes minutes."""

from typing import Any

import pytest

from benchmarks import deployment, page, peer_flower, whole
from benchmarks.setting import Setting
from sparsesecagg.errors import InvalidInput, MissingExtra

WITHOUT = {
    "seconds": {"secure": [30.0, 11.0, 12.0, 13.0], "plain": [9.0, 6.0, 7.0, 6.0], "secagg_plus": [99.0, 24.0, 18.0]},
    "rounds": [{"exchanges": n, "status": status} for n, status in ((4, "ok"), (2, "ok"), (2, "ok"), (2, "failed"))],
}


def test_medians_leave_out_the_first_round_which_exchanges_keys() -> None:
    answer = deployment.summary(WITHOUT, {"roster": False})
    assert answer["rows"] == {
        "plain FedAvg": {"exchanges": 1, "seconds": 6.0, "ratio": 1.0},
        "Flower SecAgg+": {"exchanges": 4, "seconds": 21.0, "ratio": 3.5},
        "sliced": {"exchanges": 2, "seconds": 12.0, "ratio": 2.0},
    }
    assert answer["failed_rounds"] == 1


def test_rounds_with_a_roster_are_a_row_of_their_own_beside_the_others() -> None:
    seconds = {"secure": [30.0, 15.0], "plain": [9.0, 5.0]}
    with_roster = deployment.summary({**WITHOUT, "seconds": seconds}, {"roster": True})
    assert with_roster["rows"]["sliced, with a roster"] == {"exchanges": 2, "seconds": 15.0, "ratio": 3.0}
    lines = page._deployment(deployment.summary(WITHOUT, {"roster": False}), with_roster).splitlines()
    assert "| plain FedAvg | 1 | 6.0 s | 1.00× |" in lines
    assert "| sliced, with a roster | 2 | 15.0 s | 3.00× |" in lines
    assert len(lines) == 2 + 4


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nodes": 2}, "nodes must be at least 3"),
        ({"rounds": 1}, "rounds must be at least 2"),
        ({"dim": 0}, "dim must be at least 1"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_anything_starts(options: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        deployment.measure(**options)


def test_the_whole_of_a_round_counts_the_model_on_its_way_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingExtra("flower", "measuring Flower's SecAgg+")

    monkeypatch.setattr(peer_flower, "require_flower", missing)
    setting = Setting(clients=3, dim=4000, alpha=0.2, dropout=0.1, modulus_bits=8)
    found = whole.measure(setting, [20])["sizes"]["20"]
    assert list(found) == ["plain", "secagg", "sliced", "sliced_steps", "sliced_covered"]
    plain, secagg, models, steps, covered = found.values()
    assert plain["total_bytes"] == 2 * 4 * 4000
    assert secagg["sent_bytes"] - models["sent_bytes"] == pytest.approx(4 * 4000 - 800, abs=5)
    assert models["received_bytes"] - steps["received_bytes"] == 4 * 4000 - steps["model_bytes"]
    assert covered["model_bytes"] < steps["model_bytes"] < 2000 / 2  # A fifth of the coordinates, four bits at most.
    assert covered["model_bytes"] > 400
    assert steps["client_seconds"] > models["client_seconds"]
    assert models["exact"]
    assert steps["exchanges"] == 2


def test_slow_systems_are_left_out_of_large_cohorts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, list[str]]] = []
    monkeypatch.setattr(peer_flower, "require_flower", lambda: None)

    def pretend(setting: Setting, others: Any) -> dict[str, Any]:
        asked.append((setting.clients, list(others)))
        return {}

    monkeypatch.setattr(whole, "_rows", pretend)
    whole.measure()
    both = ["flower_secagg_plus", "secagg"]
    assert asked == [(10, both), (50, both), (100, ["secagg"]), (1000, [])]
    asked.clear()
    whole.measure(full=True)
    assert asked[2:] == [(100, both), (1000, ["secagg"])]
