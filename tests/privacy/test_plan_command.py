"""`sparsesecagg plan`: the JSON contract, the table, the picture, and the complaints."""

import json
import sys

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
    "--dropout": "0.3",
    "--colluding": "0.3333",
    "--min-anonymity": "5",
}


@pytest.fixture
def run(capsys):
    """Run the command; return exit code, standard output and standard error."""

    def run(options, *flags):
        with pytest.raises(SystemExit) as stop:
            main(["plan", *[word for pair in options.items() for word in pair], *flags])
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run


def test_json_is_one_object_with_the_contracts_keys(run):
    code, out, err = run(THOUSAND, "--json")
    answer = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert answer.keys() >= CONTRACT
    assert answer["feasible"] is True
    assert answer["alpha"] <= 0.035
    assert answer["privacy_failure_log2"] <= -40
    assert answer["upload_bytes"] <= 130_000


def test_not_feasible_is_an_answer_with_a_reason_and_the_nearest_settings(run):
    code, out, _ = run(TWENTY, "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer.keys() >= CONTRACT
    assert answer["feasible"] is False
    assert answer["reason"]
    nearest = str(answer["nearest"]["clients"])
    assert json.loads(run(TWENTY | {"--clients": nearest}, "--json")[1])["feasible"] is True


def test_the_same_question_has_the_same_answer_whatever_the_seed(run):
    assert run(THOUSAND, "--json") == run(THOUSAND | {"--seed": "7"}, "--json")


def test_the_failure_probability_may_be_given_as_a_negative_power(run):
    strict = json.loads(run(THOUSAND | {"--failure-log2": "-80"}, "--json")[1])
    assert strict["privacy_failure_log2"] <= -80
    assert strict["upload_bytes"] > json.loads(run(THOUSAND, "--json")[1])["upload_bytes"]


def test_readers_get_a_table_and_a_sentence(run):
    _, out, _ = run(THOUSAND)
    assert "committee size" in out
    assert "Feasible:" in out
    _, out, _ = run(TWENTY)
    assert "--clients" in out
    assert "Not feasible:" in out


@pytest.mark.parametrize("options", [THOUSAND, TWENTY, TWENTY | {"--failure-log2": "-5", "--min-anonymity": "6"}])
def test_plot_draws_a_picture(run, tmp_path, options):
    path = tmp_path / "plan.png"
    code, _, _ = run(options | {"--plot": str(path)}, "--json")
    assert code == 0
    with Image.open(path) as picture:
        assert picture.width >= 900
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 10


def test_plot_without_matplotlib_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run(TWENTY | {"--plot": str(tmp_path / "plan.png")})
    assert code == 2
    assert "sparsesecagg[learn]" in err


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--clients", "2", "use 3"),
        ("--dim", "0", "use 1"),
        ("--dropout", "0.5", "use 0.49"),
        ("--colluding", "0.7", "use 0.49"),
        ("--min-anonymity", "0", "use 1"),
        ("--min-anonymity", "1001", "use 1000"),
        ("--failure-log2", "0", "use -1"),
        ("--clip", "0", "use 1"),
        ("--clip", "1e9", "at most"),
        ("--levels", "0", "use 1"),
        ("--plot", "plan.txt", "plan.png"),
        ("--plot", "nowhere/to/be/found/plan.png", "existing directory"),
        ("--clients", "many", "must be a whole number"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence_that_names_option_and_remedy(run, option, value, remedy):
    code, out, err = run(THOUSAND | {option: value}, "--json")
    assert (code, out) == (2, "")
    assert option in err
    assert remedy in err
    assert err.count("\n") == 1


def test_a_missing_option_is_named(run):
    code, _, err = run({"--clients": "10"})
    assert code == 2
    assert "--dim" in err
