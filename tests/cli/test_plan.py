"""`sparsesecagg plan`: the JSON contract, the table, the picture, and the complaints."""

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from sparsesecagg.cli import main

CONTRACT = {
    "feasible",
    "reason",
    "alpha",
    "committee_size",
    "threshold",
    "modulus_bits",
    "upload_bytes",
    "compression_vs_secagg",
    "privacy_failure_log2",
    "abort_probability",
    "pod_size",
    "committees",
    "min_survivors",
    "confirm",
    "all_bytes_sent",
    "all_bytes_received",
    "server",
}
THOUSAND = {
    "--clients": "1000",
    "--dim": "1663370",
    "--dropout": "0.1",
    "--colluding": "0.1",
    "--min-anonymity": "5",
}
TWENTY = {
    "--clients": "20",
    "--dim": "1000",
    "--dropout": "0.1",
    "--colluding": "0.2",
    "--min-anonymity": "12",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Run the command; return exit code, standard output and standard error."""

    def run(options, *flags):
        with pytest.raises(SystemExit) as stop:
            main(["plan", *[word for pair in options.items() for word in pair], *flags])
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run


def test_json_is_one_object_with_the_contracts_keys(run) -> None:
    code, out, err = run(THOUSAND, "--json")
    answer = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert answer.keys() >= CONTRACT
    assert answer["feasible"] is True
    assert answer["server"] == "lying"
    assert answer["alpha"] == 1 / answer["committees"]
    assert answer["privacy_failure_log2"] <= -40
    assert answer["upload_bytes"] <= 70_000
    assert answer["all_bytes_sent"] <= 106_000
    assert answer["all_bytes_received"] <= 10_000


def test_not_feasible_is_an_answer_with_a_reason_and_the_nearest_settings(run) -> None:
    code, out, _ = run(TWENTY, "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer.keys() >= CONTRACT
    assert answer["feasible"] is False
    assert answer["reason"]
    nearest = str(answer["nearest"]["clients"])
    assert json.loads(run(TWENTY | {"--clients": nearest}, "--json")[1])["feasible"] is True


def test_the_same_question_has_the_same_answer_whatever_the_seed(run) -> None:
    assert run(THOUSAND, "--json") == run(THOUSAND | {"--seed": "7"}, "--json")


def test_the_failure_probability_may_be_given_as_a_negative_power(run) -> None:
    strict = json.loads(run(THOUSAND | {"--failure-log2": "-80"}, "--json")[1])
    assert strict["privacy_failure_log2"] <= -80
    assert strict["upload_bytes"] > json.loads(run(THOUSAND, "--json")[1])["upload_bytes"]


def test_a_curious_server_is_planned_for_on_demand(run) -> None:
    lying, curious = (json.loads(run(THOUSAND | {"--server": kind}, "--json")[1]) for kind in ("lying", "curious"))
    assert (lying["server"], curious["server"]) == ("lying", "curious")
    assert curious["committee_size"] < lying["committee_size"]
    assert "even if the server lies" in lying["reason"]
    assert "follows the protocol" in curious["reason"]


def test_confirm_and_levels_may_be_given(run) -> None:
    with_it, without = (json.loads(run(THOUSAND, "--json", flag)[1]) for flag in ("--confirm", "--no-confirm"))
    assert (with_it["confirm"], with_it["exchanges"]) == (True, 3)
    assert (without["confirm"], without["exchanges"]) == (False, 2)
    assert without["upload_bytes"] > with_it["upload_bytes"]
    assert json.loads(run(THOUSAND | {"--levels": "8"}, "--json")[1])["modulus_bits"] == 10


def test_readers_get_a_table_and_a_sentence(run) -> None:
    _, out, _ = run(THOUSAND)
    assert "committee size" in out
    assert "Feasible:" in out
    assert "even if the server lies about who dropped out" in out
    _, out, _ = run(TWENTY)
    assert "--clients" in out
    assert "Not feasible:" in out


@pytest.mark.parametrize("options", [THOUSAND, TWENTY, TWENTY | {"--failure-log2": "-5", "--min-anonymity": "6"}])
def test_plot_draws_a_picture(run, tmp_path: Path, options) -> None:
    path = tmp_path / "plan.png"
    code, _, _ = run(options | {"--plot": str(path)}, "--json")
    assert code == 0
    with Image.open(path) as picture:
        assert picture.width >= 900
        assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 10


def test_plot_without_matplotlib_says_what_to_install(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run(TWENTY | {"--plot": str(tmp_path / "plan.png")})
    assert code == 2
    assert "sparsesecagg[learn]" in err


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--clients", "2", "must be from 3 to 1048576, got 2"),
        ("--dim", "0", "must be from 1 to 2^40, got 0"),
        ("--dropout", "0.5", "must be at least 0 and below 0.5, got 0.5"),
        ("--colluding", "0.7", "must be at least 0 and below 0.5, got 0.7"),
        ("--min-anonymity", "0", "must be from 1 to the 1000 clients, got 0"),
        ("--min-anonymity", "1001", "got 1001"),
        ("--failure-log2", "0", "below 0, got 0"),
        ("--clip", "0", "must be positive and finite, got 0"),
        ("--clip", "1e9", "must be at most"),
        ("--levels", "0", "must be at least 1, got 0"),
        ("--server", "evil", "must be one of lying, curious, got 'evil'"),
        ("--plot", "plan.txt", "must end in .png, .pdf, .svg, got 'plan.txt'"),
        ("--plot", "nowhere/to/be/found/plan.png", "existing directory"),
        ("--clients", "many", "must be a whole number"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence_that_names_option_and_range(
    run, option: str, value: str, problem: str
) -> None:
    code, out, err = run(THOUSAND | {option: value}, "--json")
    assert (code, out) == (2, "")
    assert option in err
    assert problem in err
    assert err.count("\n") == 1


def test_a_missing_option_is_named(run) -> None:
    code, _, err = run({"--clients": "10"})
    assert code == 2
    assert "--dim" in err
