"""Costs against settings: the fits, the sweeps, and the lone client that stands for a cohort."""

from typing import Any

import pytest

from benchmarks import child, command, lone_client, memory, scaling
from benchmarks.cohort import ANY_RUN
from benchmarks.sweeps import SWEEPS
from benchmarks.systems import parameters
from sparsesecagg.simulate import run_round
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol import Parameters


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(power: float) -> None:
    points = [[x, 7.0 * x**power] for x in (10.0, 30.0, 100.0, 1000.0)]
    assert scaling.exponent(points) == pytest.approx(power, abs=1e-9)


def test_one_point_has_no_exponent() -> None:
    assert scaling.exponent([[10.0, 1.0]]) is None


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_has_enough_points_for_a_fit_and_more_in_full(name: Any) -> None:
    sweep = SWEEPS[name]
    short, full = list(sweep.points(full=False)), list(sweep.points(full=True))
    for system in sweep.systems:
        assert sum(point[0] == system for point in short) >= 3
    assert len(full) > len(short)


def test_full_sweeps_reach_two_thousand_clients_and_a_hundred_million_coordinates() -> None:
    assert max(value for _, value, _ in SWEEPS["upload_clients"].points(full=True)) == 2000
    assert max(value for _, value, _ in SWEEPS["upload_dim"].points(full=True)) == 1e8


def test_points_without_a_valid_round_are_left_out() -> None:
    cohorts = [value for system, value, _ in SWEEPS["upload_clients"].points(full=False) if system == "committee"]
    assert 25 not in cohorts  # Committees of two.
    assert 50 in cohorts


def test_measured_sweeps_carry_points_and_exponents(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(job: Any, **arguments: Any) -> Any:
        assert job == "upload"
        return {"processor_seconds": arguments["dim"] * 1e-8}

    monkeypatch.setattr(child, "measure", pretend)
    sweep = scaling.measure(("upload_dim",), full=False)["sweeps"]["upload_dim"]
    assert sweep["series"]["committee"]["exponent"] == pytest.approx(1.0)
    assert sweep["series"]["committee"]["points"][0] == [1e5, pytest.approx(1e-3)]
    assert sweep["paper_exponent"] == 1.0


def test_an_unknown_sweep_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.run(scaling.main, ["--only", "upload_time"])
    assert end.value.code == 2
    assert "--only must be some of upload_dim" in capsys.readouterr().err


@pytest.mark.parametrize("system", ["secagg", "pairwise", "committee"])
def test_a_lone_client_sends_what_a_client_of_a_whole_round_sends(cohort: Any, system: str) -> None:
    params = parameters(system, cohort)
    settings: dict[str, Any] = {
        "clients": params.clients,
        "dim": params.dim,
        "pattern": params.pattern,
        "alpha": params.alpha,
        "modulus_bits": params.modulus_bits,
    }
    measured = lone_client.measure_upload(repeats=2, **settings)
    outcome = run_round(Parameters.create(**settings), cohort.update, policy=ANY_RUN)
    sizes = outcome.result.sent_bytes["UPLOAD"]
    # Pairwise users draw their own number of coordinates, the others send the same number.
    slack = 0 if system != "pairwise" else 0.3 * max(sizes)
    assert min(sizes) - slack <= measured["upload_bytes"] <= max(sizes) + slack
    assert 0 < measured["processor_seconds"] < 10
    assert measured["update_bytes"] == 4 * cohort.dim


def test_a_lone_client_keeps_the_rules_of_a_round() -> None:
    with pytest.raises(InvalidInput, match="alpha"):
        lone_client.measure_upload(clients=10, dim=100, pattern="committee", alpha=0.1)


def test_peak_memory_counts_what_was_touched() -> None:
    before = memory.peak()
    block = bytearray(64 << 20)
    block[::4096] = b"x" * len(block[::4096])
    assert memory.peak() - before > 0 or before > 64 << 20
    assert memory.peak() > 64 << 20
