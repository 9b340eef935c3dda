"""Costs against settings: the fits, the sweeps, and the lone client that stands for a cohort."""

from typing import Any

import pytest

from benchmarks import child, growth, lone_client
from benchmarks.setting import ANYBODY
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import Parameters, RoundOptions
from sparsesecagg.simulate import run_round


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(power: float) -> None:
    points = [[x, 7.0 * x**power] for x in (10.0, 30.0, 100.0, 1000.0)]
    assert growth.exponent(points) == pytest.approx(power, abs=1e-9)


@pytest.mark.parametrize("name", growth.SWEEPS)
def test_every_sweep_has_enough_points_for_a_curve_and_more_in_full(name: Any) -> None:
    sweep = growth.SWEEPS[name]
    short, full = list(sweep.points(full=False)), list(sweep.points(full=True))
    assert sum(system == "sliced" for system, _ in short) >= 3
    assert len(full) > len(short)


def test_measured_sweeps_carry_points_and_exponents(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(job: Any, **arguments: Any) -> Any:
        assert job == "upload"
        assert arguments["clients"] == 100
        return {"processor_seconds": arguments["dim"] * 1e-8}

    monkeypatch.setattr(child, "measure", pretend)
    sweep = growth.measure(["upload_dim"])["sweeps"]["upload_dim"]
    assert sweep["series"]["sliced"]["exponent"] == pytest.approx(1.0)
    assert sweep["series"]["sliced"]["points"][0] == [1e4, pytest.approx(1e-4)]


@pytest.mark.parametrize("options", [{"pattern": "full"}, {"alpha": 0.5, "modulus_bits": 16}], ids=["full", "sliced"])
def test_a_lone_client_sends_what_a_client_of_a_whole_round_sends(setting: Any, options: Any) -> None:
    measured = lone_client.measure_upload(setting.clients, setting.dim, repeats=2, **options)
    params = Parameters.create(setting.clients, setting.dim, RoundOptions(**options))
    outcome = run_round(params, setting.update, ANYBODY)
    assert {measured["upload_bytes"]} == set(outcome.result.sent_bytes["UPLOAD"])
    assert 0 < measured["processor_seconds"] < 10
    assert measured["update_bytes"] == 4 * setting.dim


def test_a_lone_client_keeps_the_rules_of_a_round() -> None:
    with pytest.raises(InvalidInput, match="alpha"):
        lone_client.measure_upload(clients=10, dim=5, alpha=0.1)
