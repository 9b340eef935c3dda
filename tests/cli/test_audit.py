"""`sparsesecagg audit`: the JSON contract, the table, the picture, and the complaints."""

import json

import pytest

from sparsesecagg.lab.cli import main

CONTRACT = {
    "revealed_fraction",
    "honest_component",
    "contributors_mean",
    "claimed_T",
    "singled_out_fraction",
    "values_recovered",
}
SMALL = ["--clients", "12", "--dim", "60", "--alpha", "0.5", "--dropout", "0.1", "--rounds", "2", "--workers", "1"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Run `audit` and return exit code, standard output and standard error, the last two on one line each."""

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["audit", *SMALL, *arguments])
        streams = capsys.readouterr()
        return end.value.code, " ".join(streams.out.split()), " ".join(streams.err.split())

    return run


@pytest.mark.parametrize("pattern", ["pairwise", "sliced", "full"])
def test_json_holds_the_contract_and_nothing_else_is_printed(run, pattern: str) -> None:
    code, out, _ = run("--pattern", pattern, "--colluding", "0.25", "--json")
    found = json.loads(out)
    assert code == 0
    assert found.keys() >= CONTRACT
    assert found["honest_component"].keys() == {"min", "mean", "histogram"}
    assert found["values_recovered"].keys() == {"count", "correct"}
    assert found["pattern"] == pattern
    assert found["colluders"] == 3


def test_slices_are_the_default_pattern(run) -> None:
    found = json.loads(run("--json")[1])
    assert found["pattern"] == "sliced"
    assert found["groups"] == 1
    assert found["honest_component"]["min"] >= found["promised"] > 1


def test_the_text_says_what_the_figures_mean(run) -> None:
    _, out, err = run("--pattern", "pairwise", "--colluding", "0.25")
    assert "a semi-honest server and 3 colluding users can read" in out and "note:" not in err
    _, out, _ = run("--server", "malicious", "--threshold", "9")
    assert "a malicious server can read no single value" in out
    assert "promised" in out


def test_a_malicious_server_leaves_fewer_honest_users_in_a_sum(run) -> None:
    asked = ("--threshold", "8", "--colluding", "0.1", "--json")
    honest, lying = (json.loads(run("--server", server, *asked)[1]) for server in ("semi-honest", "malicious"))
    assert lying["server"] == "malicious"
    assert lying["promised"] <= lying["honest_component"]["min"] < honest["honest_component"]["min"]


def test_a_roster_can_be_used(run) -> None:
    found = json.loads(run("--authenticated", "--json", "--rounds", "1")[1])
    assert found["authenticated"]


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsesecagg.cli.shared.SECONDS_BETWEEN_LINES", 0)
    code, out, err = run("--json", "--rounds", "3")
    assert code == 0
    assert json.loads(out)
    assert "attacking sliced rounds: 2 of 3" in err


def test_full_sends_everything_whatever_alpha_and_says_so(run) -> None:
    assert "note: full sends everything: --alpha 0.5 is not used" in run("--pattern", "full")[2]
    assert "is not used" not in run("--pattern", "full", "--compare")[2], "the others use it"


def test_stages_are_named_in_any_case(run) -> None:
    named = [json.loads(run("--json", "--drop-at", name)[1])["drop_at"] for name in ("SHARE_KEYS", "share-keys")]
    assert named == ["SHARE_KEYS"] * 2


def test_compare_shows_pattern_beside_pattern(run) -> None:
    _, out, _ = run("--compare", "--json")
    found = json.loads(out)
    assert list(found["compare"]) == ["sliced", "full", "pairwise"]
    assert found["revealed_fraction"] == found["compare"]["sliced"]["revealed_fraction"]


def test_short_words_leave_doubt_and_the_text_says_so(run) -> None:
    _, out, _ = run("--pattern", "pairwise", "--modulus-bits", "16", "--alpha", "0.3", "--colluding", "0.25")
    assert "beyond doubt" in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--colluding", "1"], "--colluding must be in [0, 1), got 1."),
        (["--rounds", "0"], "--rounds must be at least 1, got 0."),
        (["--runs", "0"], "--runs must be at least 1, got 0."),
        (["--server", "kind"], "--server must be one of malicious, semi-honest, got 'kind'."),
        (["--drop-at", "NEVER"], "--drop-at must be one of UPLOAD, SHARE_KEYS, got 'NEVER'."),
        (
            ["--server", "malicious", "--pattern", "full", "--neighbours", "4"],
            "--server must be semi-honest with neighbours",
        ),
        (["--pattern", "ring"], "--pattern must be one of"),
        (["--alpha", "0.01"], "--alpha of 0.01 sends 1 of every"),
        (["--threshold", "6"], "--threshold must be from 7 to 12"),
        (["--group-size", "2"], "--group-size must be from 3"),
        (
            ["--dp-epsilon", "1", "--dp-delta", "0"],
            "--dp-delta must be above 2^-40 and below 1/5, one over the users of the small run that is tested, got 0.",
        ),
        (["--dropout", "0.5"], "--dropout must be in [0, 0.5)"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(run, arguments, complaint: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert complaint in err


def test_rounds_that_open_nothing_exit_with_1(run) -> None:
    code, _, err = run("--dropout", "0.49", "--threshold", "12", "--rounds", "1")
    assert code == 1
    assert "none of 1 rounds could be opened" in err
