"""`sparsesecagg plan`: the JSON contract, the table, the lines to paste, and the complaints."""

from __future__ import annotations

import re

import pytest

from cli.commands import run, run_json
from sparsesecagg import Parameters, RoundOptions
from sparsesecagg.planning.noise import DifferentialPrivacy, with_noise

CONTRACT = {
    "feasible",
    "reason",
    "alpha",
    "groups",
    "group_size",
    "threshold",
    "anonymity",
    "modulus_bits",
    "upload_bytes",
    "all_bytes_sent",
    "all_bytes_received",
    "compression_vs_secagg",
    "privacy_failure_log2",
    "abort_probability",
    "dp",
}
TENTH = "plan --dim 1663370 --dropout 0.1 --colluding 0.1 --min-anonymity 5"
HOPELESS = "plan --clients 1000 --dim 1000 --dropout 0.3 --colluding 0.3333 --min-anonymity 5"


def pasted(out: str, program: str) -> list[str]:
    """Return the words of the line for a program, without its name."""
    line = next(line.strip() for line in out.splitlines() if line.strip().startswith(f"sparsesecagg {program} "))
    return line.split()[2:]


@pytest.mark.parametrize(("clients", "anonymity", "groups"), [(10, 5, 1), (25, 12, 1), (100, 60, 1), (1000, 20, 10)])
def test_what_is_kept_against_a_malicious_server(
    capsys: pytest.CaptureFixture[str], clients: int, anonymity: int, groups: int
) -> None:
    answer = run_json(capsys, *TENTH.split(), "--clients", str(clients))
    assert answer.keys() == CONTRACT
    assert answer["feasible"] is True
    assert answer["anonymity"] >= anonymity
    assert answer["groups"] == groups
    assert answer["privacy_failure_log2"] <= -40
    assert answer["abort_probability"] <= 0.02
    assert answer["dp"] is None


def test_a_thousand_users_that_send_a_twenty_fifth(capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_json(capsys, *f"{TENTH} --clients 1000 --alpha 0.04".split())
    assert answer["alpha"] == 0.04
    assert answer["upload_bytes"] <= 78_000
    assert answer["all_bytes_received"] <= 11_000
    assert answer["compression_vs_secagg"] > 80


def test_not_feasible_is_an_answer_with_a_reason_and_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_json(capsys, *HOPELESS.split())
    assert answer.keys() == CONTRACT
    assert answer["feasible"] is False
    assert {key for key, value in answer.items() if value is not None} == {"feasible", "reason"}
    assert answer["reason"].startswith("availability: too few users stay")
    remedies = answer["reason"].split("; feasible: ")[1].split(" or ")
    assert "--server semi-honest" in remedies
    for remedy in remedies:
        assert run_json(capsys, *HOPELESS.split(), *remedy.split())["feasible"] is True


def test_other_options(capsys: pytest.CaptureFixture[str]) -> None:
    usual, strict, other, small = (
        run_json(capsys, *TENTH.split(), "--clients", "1000", *more.split())
        for more in ("", "--failure-log2 -80", "--server semi-honest", "--group-size 60")
    )
    assert strict["privacy_failure_log2"] <= -80
    assert strict["anonymity"] < usual["anonymity"] < other["anonymity"]
    assert "follows the protocol" in other["reason"]
    assert (small["groups"], small["group_size"]) == (17, 59)


def test_readers_get_a_table_a_sentence_and_lines_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *f"{TENTH} --clients 1000 --alpha 0.04".split())
    assert "honest users in every sum, malicious server" in out
    assert "Feasible. Privacy: 10 groups of 100" in " ".join(out.split())
    flower = re.search(r"SecAgg\(FedAvg\(\), options=(RoundOptions\(.*\)), roster=\"FILE\"\)", out)
    assert flower is not None
    assert eval(flower[1], {"RoundOptions": RoundOptions}) == RoundOptions(  # noqa: S307
        alpha=0.04, group_size=100, threshold=82, colluding=0.1, modulus_bits=9
    )
    assert pasted(out, "roster")[-6:-1] != []
    _, out, _ = run(capsys, *HOPELESS.split())
    assert "Not feasible. Availability: too few users stay" in " ".join(out.split())
    assert "To use it" not in out


@pytest.mark.parametrize(
    ("options", "cells"),
    [
        ("--clients 400 --dim 100", ["2.0 times 32-bit SecAgg", "never with at most 0 colluding users"]),
        (
            "--clients 400 --dim 100000 --colluding 0.1",
            ["1/11.6 of 32-bit SecAgg", "per run: more than 31 colluding users in a group"],
        ),
        ("--clients 4 --dim 100 --server semi-honest --colluding 0.26", ["never with at most 1 colluding user "]),
        (
            "--clients 100 --dim 100",
            ["2 levels from 0 to the clip: within 0.4 points of 32 levels in groups of 5 to 100"],
        ),
        ("--clients 120 --dim 100", ["2 levels from 0 to the clip upload"]),
        ("--clients 4 --dim 100 --server semi-honest", ["8 levels from 0 to the clip upload"]),
        ("--clients 30 --dim 100 --epsilon 8 --rounds 1", ["δ = 1e-05, one round: user level"]),
    ],
)
def test_what_the_table_says(capsys: pytest.CaptureFixture[str], options: str, cells: list[str]) -> None:
    _, out, _ = run(capsys, *f"plan --dropout 0.1 --colluding 0 --min-anonymity 1 {options}".split())
    said = " ".join(re.sub("[│┃]", " ", out).split())
    for cell in cells:
        assert cell in said


def test_one_user_is_not_called_users(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *"plan --clients 3 --dim 100 --dropout 0.1 --colluding 0.1 --min-anonymity 1".split())
    assert "while 1 honest user in every sum against a malicious server" in " ".join(out.split())


@pytest.mark.parametrize("options", ["", "--server semi-honest --group-size 20"])
def test_the_lines_run_and_cost_what_was_planned(capsys: pytest.CaptureFixture[str], options: str) -> None:
    asked = f"plan --clients 40 --dim 60000 --dropout 0.1 --colluding 0.1 --min-anonymity 5 {options}".split()
    answer, (_, out, _) = run_json(capsys, *asked), run(capsys, *asked)
    found = run_json(capsys, "simulate", *pasted(out, "simulate"), "--rounds", "4")
    assert found["exact"]
    assert (found["groups"], found["threshold"]) == (answer["groups"], answer["threshold"])
    assert found["upload_bytes"]["mean"] == pytest.approx(answer["upload_bytes"], rel=0.02)
    code, _, err = run(capsys, "train", *pasted(out, "train"), "--rounds", "0")
    assert (code, err) == (2, "sparsesecagg: --rounds must be at least 1, got 0.\n"), "all other options are known"


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--clients", "2", "must be from 3 to 1048576, got 2"),
        ("--dim", "0", "must be from 1 to 2^40, got 0"),
        ("--dropout", "0.5", "must be in [0, 0.5), got 0.5"),
        ("--colluding", "0.7", "must be in [0, 0.5), got 0.7"),
        ("--min-anonymity", "0", "must be from 1 to the 1000 clients, got 0"),
        ("--min-anonymity", "1001", "must be from 1 to the 1000 clients, got 1001"),
        ("--failure-log2", "0", "below 0, got 0"),
        ("--alpha", "0", "must be in (0, 1], got 0"),
        ("--alpha", "2", "must be in (0, 1], got 2"),
        ("--group-size", "2", "must be from 3 to the 1000 clients, got 2"),
        ("--server", "lying", "must be one of malicious, semi-honest, got 'lying'"),
        ("--clients", "many", "must be a whole number"),
        ("--seed", "1", "is not an option"),
        ("--confirm", "1", "is not an option"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence_that_names_option_and_range(
    capsys: pytest.CaptureFixture[str], option: str, value: str, problem: str
) -> None:
    code, out, err = run(capsys, *f"{TENTH} --clients 1000 --json".split(), option, value)
    assert (code, out) == (2, "")
    assert err.startswith(f"sparsesecagg: {option} ")
    assert problem in err
    assert err.count("\n") == 1


def test_a_missing_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "plan", "--clients", "10")
    assert (code, err) == (2, "sparsesecagg: --dim is required.\n")


NOISY = "plan --dim 7850 --dropout 0.1 --colluding 0.1 --min-anonymity 5 --rounds 100"
MEANING = "user level, zero-out neighbours, no amplification"


def test_differential_privacy_has_its_own_key_and_one_large_group(capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_json(capsys, *NOISY.split(), "--clients", "1000", "--epsilon", "8", "--delta", "1e-5")
    assert answer.keys() == CONTRACT
    assert (answer["feasible"], answer["groups"]) == (True, 1)
    dp = answer["dp"]
    assert dp.keys() == {
        "epsilon",
        "delta",
        "noise_multiplier",
        "honest_noise_users",
        "noise_std_vs_trusted_server",
        "noise_norm_in_clips",
    }
    assert (dp["epsilon"], dp["delta"]) == (8, 1e-5)
    assert dp["honest_noise_users"] == answer["anonymity"]
    assert MEANING in answer["reason"]
    several = run_json(capsys, *NOISY.split(), "--clients", "1000", "--epsilon", "8", "--group-size", "100")
    assert several["groups"] == 10
    assert several["dp"]["noise_std_vs_trusted_server"] > 4 * dp["noise_std_vs_trusted_server"]


def test_what_cannot_learn_is_refused_with_remedies_that_work(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*NOISY.split(), "--clients", "100", "--epsilon", "8"]
    answer = run_json(capsys, *asked)
    assert answer["feasible"] is False
    assert answer["dp"]["noise_norm_in_clips"] > 3
    assert "above 3 a model rarely learns (a rule of thumb)" in answer["reason"]
    assert MEANING in answer["reason"]
    remedies = answer["reason"].split("; feasible: ")[1].split(";")[0].split(" or ")
    assert [remedy.split()[0] for remedy in remedies] == ["--rounds", "--dim", "--clients", "--epsilon"]
    for remedy in remedies:
        better = run_json(capsys, *asked, *remedy.split())
        assert better["feasible"] is True, remedy
        assert 2.8 < better["dp"]["noise_norm_in_clips"] <= 3, "no more than needed is given up"


def test_the_lines_of_a_private_plan_carry_clip_and_noise(capsys: pytest.CaptureFixture[str]) -> None:
    asked = f"{NOISY} --clients 1000 --epsilon 8 --clip-norm 0.5".split()
    _, out, _ = run(capsys, *asked)
    assert MEANING in " ".join(re.sub("[│┃]", " ", out).split())
    flower = re.search(
        r"SecAgg\(FedAvg\(\), options=(RoundOptions\(.*\)), dp=(DifferentialPrivacy\(.*\)), roster=", out
    )
    assert flower is not None
    names = {"RoundOptions": RoundOptions, "DifferentialPrivacy": DifferentialPrivacy}
    options, dp = (eval(part, names) for part in flower.groups())  # noqa: S307
    params = Parameters.create(1000, 7850, with_noise(options, dp, 1000, 7850))
    assert params.mechanism is not None
    assert params.mechanism.clip == 0.5
    assert 7.95 < params.mechanism.cost.times(100).epsilon(1e-5) <= 8
    trained = pasted(out, "train")
    assert " ".join(trained).endswith("--colluding 0.1 --rounds 100 --dp-epsilon 8 --dp-delta 1e-05 --dp-clip 0.5")
    code, _, err = run(capsys, "train", *trained, "--rounds", "0")
    assert (code, err) == (2, "sparsesecagg: --rounds must be at least 1, got 0.\n"), "all other options are known"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("--epsilon 0 --rounds 9", "--epsilon must be above 0 and at most 25, got 0"),
        ("--epsilon -1 --rounds 9", "--epsilon must be above 0 and at most 25, got -1"),
        ("--epsilon nan --rounds 9", "--epsilon must be above 0 and at most 25, got nan"),
        ("--epsilon inf --rounds 9", "--epsilon must be above 0 and at most 25, got inf"),
        ("--epsilon 1 --rounds 9 --delta 0.001", "--delta must be above 2^-40,"),
        ("--epsilon 1 --rounds 9 --delta 0", "below 1/1000, one over the users, got 0"),
        ("--epsilon 1 --rounds 9 --failure-log2 -10", "--delta must be above 2^-10,"),
        ("--epsilon 1 --rounds 0", "--rounds must be at least 1, got 0"),
        ("--epsilon 1 --rounds 9 --clip-norm 0", "--clip-norm must be above 0 and at most 1e30, got 0"),
        ("--epsilon 1", "--rounds is required with --epsilon"),
        ("--rounds 9", "--rounds must be given together with --epsilon"),
        ("--delta 1e-6", "--delta must be given together with --epsilon"),
        ("--clip-norm 1", "--clip-norm must be given together with --epsilon"),
    ],
)
def test_bad_input_about_noise_is_one_sentence(capsys: pytest.CaptureFixture[str], given: str, problem: str) -> None:
    code, out, err = run(capsys, *f"{TENTH} --clients 1000 --json {given}".split())
    assert (code, out) == (2, "")
    assert problem in err
    assert err.count("\n") == 1


def test_malicious_users_need_twice_as_many_groups_and_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Which costs anonymity, and noise: √K times as much."""
    asked = f"{NOISY} --clients 1000 --epsilon 8 --alpha 0.2".split()
    one, nine = run_json(capsys, *asked), run_json(capsys, *asked, "--malicious", "4")
    assert (one["groups"], nine["groups"]) == (1, 10), "groups of 111 at most, of which 4 are fewer than half"
    assert "malicious users: 10 groups that send the same slice withstand 4 of them" in nine["reason"]
    _, out, _ = run(capsys, *asked, "--malicious", "4")
    simulate, flower = out.splitlines()[-3:-1] if "roster build" in out else out.splitlines()[-2:]
    assert simulate.startswith("  sparsesecagg simulate") and "train" not in out.rpartition(simulate)[2]
    assert flower.endswith('over="clipped-groups", groups=10, roster="FILE")')
    assert "group_size" not in flower
    assert "same_slices" not in flower
    assert nine["anonymity"] < one["anonymity"]
    assert nine["dp"]["noise_std_vs_trusted_server"] > 3 * one["dp"]["noise_std_vs_trusted_server"]
    code, _, err = run(capsys, *f"{TENTH} --clients 30 --malicious 5 --json".split())
    assert (code, err) == (2, "sparsesecagg: --malicious must be from 0 to 4 with 30 clients, got 5.\n")
    code, _, err = run(capsys, *f"{TENTH} --clients 8 --malicious 1 --json".split())
    assert (code, err) == (2, "sparsesecagg: --malicious must be 0 with 8 clients, got 1.\n")
