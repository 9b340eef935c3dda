"""One setting through all systems: the shape of the answer, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Never

import pytest

from benchmarks import child, command, compare, memory, page, peer_flower, systems
from benchmarks.setting import Setting
from sparsesecagg.errors import InvalidInput, MissingExtra

ROOT = Path(__file__).resolve().parents[2]
STAGES = {"SHARE_KEYS", "UPLOAD", "UNMASK", "total"}


@pytest.fixture(scope="module")
def answer() -> Any:
    pytest.importorskip("flwr")
    return compare.compare(Setting(10, 600, 0.5, 0.2, 16, seed=3), repeats=2)


def test_reports_every_system_with_seconds_by_stage_bytes_and_memory(answer: Any) -> None:
    assert list(answer["systems"]) == ["flower_secagg_plus", "secagg", "secagg_plus", "pairwise", "sliced"]
    for measured in answer["systems"].values():
        for side in ("client_seconds", "server_seconds"):
            assert STAGES <= set(measured[side]) <= STAGES | {"ADVERTISE_KEYS"}
            assert all(seconds >= 0 for seconds in measured[side].values())
        assert measured["sent_bytes"] > 0
        assert measured["received_bytes"] > 0
        assert measured["peak_memory_bytes"] > 10 << 20
        assert measured["exact"]


def test_repeats_our_systems_and_runs_the_slow_peer_once(answer: Any) -> None:
    assert {name: measured["repeats"] for name, measured in answer["systems"].items()} == {
        "flower_secagg_plus": 1,
        **dict.fromkeys(systems.OURS, 2),
    }
    for measured in answer["systems"].values():
        for side in ("client_seconds", "server_seconds"):
            spread = measured["spread"][side]
            assert spread["least"] <= measured[side]["total"] * 1.5
            assert spread["least"] <= spread["most"]


def test_ratios_say_how_many_times_less_than_the_base(answer: Any) -> None:
    flower, sliced = (answer["systems"][name] for name in ("flower_secagg_plus", "sliced"))
    ratio = answer["ratios"]["flower"]["sliced"]
    assert ratio["sent_bytes"] == pytest.approx(flower["sent_bytes"] / sliced["sent_bytes"])
    assert ratio["server"] == pytest.approx(flower["server_seconds"]["total"] / sliced["server_seconds"]["total"])
    assert set(answer["ratios"]["secagg"]) == {"secagg_plus", "pairwise", "sliced"}


def test_sparse_systems_send_less_and_keep_the_asked_word(answer: Any) -> None:
    sent = {name: measured["sent_bytes"] for name, measured in answer["systems"].items()}
    assert sent["sliced"] < sent["secagg"] < sent["flower_secagg_plus"]
    assert answer["systems"]["sliced"]["settings"]["modulus_bits"] == 16
    assert answer["systems"]["secagg"]["settings"]["modulus_bits"] == 32


def test_the_tables_show_every_system_and_every_ratio(answer: Any) -> None:
    text = page.costs(answer) + page.ratios(answer)
    assert all(f"| {name} |" in text for name in systems.NAMES.values())
    assert f"{answer['ratios']['flower']['sliced']['server']:,.1f}×" in text


def test_medians_are_taken_stage_by_stage() -> None:
    rounds = [
        {
            "client_seconds": {"UPLOAD": seconds, "total": 2 * seconds},
            "server_seconds": {"total": 10 * seconds},
            "sent_bytes": 5.0,
            "received_bytes": 6.0,
            "peak_memory_bytes": int(seconds),
            "exact": True,
            "settings": {},
        }
        for seconds in (3.0, 1.0, 100.0)
    ]
    summary = compare.summarise(rounds)
    assert summary["client_seconds"] == {"UPLOAD": 3.0, "total": 6.0}
    assert summary["spread"]["server_seconds"] == {"least": 10.0, "most": 1000.0}
    assert summary["peak_memory_bytes"] == 100


def test_a_word_too_short_for_a_sum_is_widened() -> None:
    setting = Setting(clients=200, dim=1000, alpha=0.1, dropout=0.1, modulus_bits=8)
    assert systems.parameters("sliced", setting).modulus_bits == 8  # Two groups of a hundred.
    assert systems.parameters("pairwise", setting).modulus_bits == 9


def test_all_systems_have_a_majority_as_threshold_unless_the_usual_one_is_asked() -> None:
    setting = Setting(clients=100, dim=1000, alpha=0.1, dropout=0.1, modulus_bits=16)
    assert systems.parameters("sliced", setting).threshold == systems.parameters("secagg", setting).threshold == 51
    assert systems.parameters("sliced", setting, usual_threshold=True).threshold > 51


def test_secagg_plus_takes_a_degree_that_survives_the_dropouts_and_no_more() -> None:
    calm = Setting(clients=200, dim=10, alpha=1.0, dropout=0.05, modulus_bits=32)
    rough = Setting(clients=200, dim=10, alpha=1.0, dropout=0.3, modulus_bits=32)
    few, many = calm.plus_degree(), rough.plus_degree()
    assert few is not None
    assert many is not None
    assert few < many < 199
    assert Setting(clients=10, dim=10, alpha=1.0, dropout=0.4, modulus_bits=32).plus_degree() is None


def test_a_missing_peer_is_named_with_its_remedy_and_the_rest_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Never:
        raise MissingExtra("flower", "measuring Flower's SecAgg+")

    monkeypatch.setattr(peer_flower, "require_flower", missing)
    answer = compare.compare(Setting(10, 600, 0.5, 0.2, 16), ("flower_secagg_plus", "sliced"), repeats=1)
    assert list(answer["systems"]) == ["sliced"]
    assert answer["missing"] == ["flower_secagg_plus"]
    assert answer["ratios"] == {}
    assert "pip install '.[flower]' in a checkout" in capsys.readouterr().err


def test_a_peer_that_is_not_installed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_flower, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="flower"):
        peer_flower.require_flower()


def test_what_does_not_fit_into_memory_is_refused_with_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 8 << 30)
    monkeypatch.setattr(child, "measure", lambda *_, **__: pytest.fail("something ran"))
    with pytest.raises(InvalidInput) as refusal:
        compare.compare(Setting(100, 10_000_000, 0.1, 0.1, 16), ("flower_secagg_plus", "sliced"))
    assert refusal.value.option == "dim"
    assert "20.3 GB for flower_secagg_plus" in refusal.value.problem
    assert "8.6 GB are free" in refusal.value.problem


def test_a_system_that_fits_runs_where_the_peer_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 8 << 30)
    memory.refuse_what_does_not_fit(["sliced"], Setting(100, 10_000_000, 0.1, 0.1, 16))


@pytest.mark.parametrize("system", ["flower_secagg_plus", *systems.OURS])
def test_the_memory_estimate_is_above_what_was_used(answer: Any, system: Any) -> None:
    setting = Setting(10, 600, 0.5, 0.2, 16, seed=3)
    assert memory.estimate(system, setting) > answer["systems"][system]["peak_memory_bytes"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--clients", "2"], "--clients must be at least 3, got 2."),
        (["--dropout", "0.7"], "--dropout must be in [0, 0.5), got 0.7."),
        (["--alpha", "0"], "--alpha must be in (0, 1], got 0.0."),
        (["--systems", "flwr"], "--systems must be some of"),
        (["--repeats", "0"], "--repeats must be at least 1, got 0."),
        (["--modulus-bits", "3"], "--modulus-bits must be from 4 to 32, got 3."),
        (["--dim", "10", "--alpha", "0.05"], "--alpha of 0.05 sends 1 of every 20 coordinates"),
        (["--dim", "1000000000000"], "for flower_secagg_plus"),
        (["--dimension", "5"], "--dimension is not an option"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_sentence_before_anything_runs(
    arguments: Any, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "measure", lambda *_, **__: pytest.fail("something ran"))
    with pytest.raises(SystemExit) as end:
        command.run(compare.main, arguments)
    assert end.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert sentence in output.err
    assert output.err.count("\n") == 1


def test_a_round_that_fails_ends_with_code_1_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: Any, **__: Any) -> Never:
        raise child.ChildFailed("9 users left at UPLOAD, 10 are needed")

    monkeypatch.setattr(child, "measure", refused)
    with pytest.raises(SystemExit) as end:
        command.run(compare.main, ["--clients", "10", "--alpha", "0.5", "--systems", "sliced"])
    assert end.value.code == 1
    assert "the round failed: 9 users left at UPLOAD, 10 are needed." in capsys.readouterr().err


def test_a_failed_round_keeps_its_reason_across_the_process() -> None:
    with pytest.raises(child.ChildFailed, match="are needed"):  # Of three users all must stay.
        child.measure("whole", setting=Setting(3, 100, 0.5, 0.34, 16).settings())


def test_the_module_prints_one_json_object() -> None:
    options = "--clients 10 --dim 600 --alpha 0.5 --systems secagg,sliced --repeats 1 --json"
    done = subprocess.run(  # noqa: S603  # Our own program.
        [sys.executable, "-m", "benchmarks.compare", *options.split()], cwd=ROOT, capture_output=True, check=True
    )
    assert set(json.loads(done.stdout)["systems"]) == {"secagg", "sliced"}
