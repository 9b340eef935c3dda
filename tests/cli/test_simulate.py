"""`sparsesecagg simulate`, by its contract."""

from __future__ import annotations

import re

import pytest

from cli.commands import run, run_json

ROUND = {"SHARE_KEYS", "UPLOAD", "UNMASK"}
STAGES = {"ADVERTISE_KEYS", *ROUND}
KEYS = {
    "exact",
    "survivors",
    "dropped",
    "threshold",
    "alpha_effective",
    "upload_bytes",
    "sent_bytes",
    "received_bytes",
    "client_seconds",
    "server_seconds",
    "contributors",
    "peak_memory_bytes",
    "groups",
    "group_size",
    "groups_opened",
    "coordinates_updated",
    "exchanges",
}


def test_the_json_contract(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, *"simulate --clients 12 --dim 300 --alpha 0.5 --dropout 0.2 --rounds 2".split())
    assert set(result) == KEYS
    assert result["exact"] is True
    assert set(result["dropped"]) == STAGES
    assert result["survivors"] + sum(result["dropped"].values()) == 12
    assert (result["threshold"], result["alpha_effective"], result["exchanges"]) == (7, 0.5, 2)
    assert set(result["upload_bytes"]) == {"mean", "max"}
    for key in ("sent_bytes", "received_bytes", "client_seconds", "server_seconds"):
        assert set(result[key]) == ROUND | {"total"}
        assert result[key]["total"] == pytest.approx(sum(result[key][stage] for stage in ROUND))
    assert result["contributors"]["min"] <= result["contributors"]["mean"] == result["survivors"]
    assert result["peak_memory_bytes"] > 1e6
    assert (result["groups"], result["group_size"]) == (1, {"min": 12, "max": 12})
    assert (result["groups_opened"], result["coordinates_updated"]) == (1, 0.5)


@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.3, 0.1, 0.037, 0.01, 0.0123, 0.77])
def test_the_alpha_in_use_is_within_a_hundredth_of_the_one_asked_for(
    capsys: pytest.CaptureFixture[str], alpha: float
) -> None:
    result = run_json(capsys, *f"simulate --clients 25 --dim 20000 --alpha {alpha}".split())
    assert result["exact"]
    assert abs(result["alpha_effective"] - alpha) <= 0.01 * alpha
    assert abs(result["coordinates_updated"] - result["alpha_effective"]) <= 0.01


def test_bytes_of_a_round_with_thirty_per_cent_dropouts(capsys: pytest.CaptureFixture[str]) -> None:
    common = "simulate --pattern sliced --dim 165000 --alpha 0.1 --modulus-bits 8 --dropout 0.3"
    large = run_json(capsys, *f"{common} --clients 100".split())
    assert large["exact"]
    assert large["groups"] == 1
    assert large["upload_bytes"]["max"] <= 18_500
    assert large["sent_bytes"]["total"] <= 27_000
    assert large["received_bytes"]["total"] <= 9_500
    small = run_json(capsys, *f"{common} --clients 10".split())
    assert small["exact"]
    assert small["upload_bytes"]["max"] <= 17_000


def test_groups_of_an_authenticated_cohort(capsys: pytest.CaptureFixture[str]) -> None:
    """Each sends another slice; bytes follow the size of a group and not that of the cohort."""
    common = "simulate --authenticated --group-size 20 --alpha 0.05 --dim 20000 --modulus-bits 9 --dropout 0.05"
    two, four = (run_json(capsys, *f"{common} --clients {clients}".split()) for clients in (40, 80))
    for result, groups in ((two, 2), (four, 4)):
        assert result["exact"]
        assert (result["groups"], result["group_size"], result["exchanges"]) == (groups, {"min": 20, "max": 20}, 2)
        assert result["coordinates_updated"] == pytest.approx(0.05 * result["groups_opened"])
    for key in ("sent_bytes", "received_bytes"):
        assert four[key]["total"] == pytest.approx(two[key]["total"], rel=0.05)


def test_a_group_that_is_lost_leaves_the_sum_of_the_others_exact(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --clients 60 --group-size 10 --dim 600 --alpha 0.1 --dropout 0.2 --threshold 9 --rounds 3"
    result = run_json(capsys, *arguments.split())
    assert result["exact"]
    assert 0 < result["groups_opened"] < 6
    assert result["coordinates_updated"] == pytest.approx(0.1 * result["groups_opened"])


@pytest.mark.parametrize(
    ("options", "largest"),
    [
        ("--clients 100 --pattern pairwise --alpha 0.1", 75_500),
        ("--clients 40 --pattern full", 660_600),  # And 8 bytes for each of 60 more partners.
        ("--clients 100 --pattern sliced --alpha 0.1", 20_000),
    ],
)
def test_upload_sizes_at_the_papers_setting(capsys: pytest.CaptureFixture[str], options: str, largest: int) -> None:
    """The paper sends 83,000 bytes, SecAgg 660,000."""
    result = run_json(capsys, *f"simulate --dim 165000 --dropout 0.3 {options}".split())
    assert result["exact"]
    assert result["upload_bytes"]["max"] <= largest
    if "pairwise" not in options:
        assert result["upload_bytes"]["max"] == result["upload_bytes"]["mean"], "the same size for every client"


def test_full_sends_everything_whatever_alpha_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --pattern full --clients 10 --dim 100 --alpha 0.4".split()
    assert run_json(capsys, *arguments)["alpha_effective"] == 1
    assert "--alpha 0.4 is not used" in run(capsys, *arguments)[2]


@pytest.mark.parametrize("stage", [*sorted(STAGES), "ANY"])
def test_users_may_drop_at_any_stage(capsys: pytest.CaptureFixture[str], stage: str) -> None:
    result = run_json(capsys, *f"simulate --clients 15 --dim 50 --alpha 1 --dropout 0.2 --drop-at {stage}".split())
    assert result["exact"]
    at = {name for name, users in result["dropped"].items() if users}
    assert at == {stage} or (stage == "ANY" and len(at) > 1)


def test_every_user_drops_out_by_chance(capsys: pytest.CaptureFixture[str]) -> None:
    """As in train, audit and plan: the number of dropouts differs from seed to seed."""
    arguments = "simulate --clients 12 --dim 20 --alpha 1 --dropout 0.2 --seed".split()
    gone = [run_json(capsys, *arguments, str(seed))["dropped"]["UPLOAD"] for seed in range(8)]
    assert len(set(gone)) > 2
    assert 0.1 < sum(gone) / (8 * 12) < 0.3


def test_a_seed_repeats_the_round(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --clients 10 --dim 500 --alpha 0.3 --pattern pairwise --seed".split()
    sizes = [run_json(capsys, *arguments, seed)["upload_bytes"] for seed in ("1", "1", "2")]
    assert sizes[0] == sizes[1] != sizes[2]


def test_authenticated_and_weighted_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --clients 9 --dim 100 --alpha 0.4 --dropout 0.1 --max-weight 1000 --authenticated"
    result = run_json(capsys, *arguments.split())
    assert result["exact"]
    assert result["threshold"] == 6


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *"simulate --clients 10 --dim 50 --alpha 1".split())
    assert code == 0
    assert "the sum is exact" in " ".join(out.split())
    assert "UPLOAD" in out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--alpha 0", "--alpha"),
        ("--alpha 1.5", "--alpha"),
        ("--alpha x", "--alpha"),
        ("--alpha 1e-300", "--alpha must be at least 2^-20, got 1e-300."),
        ("--alpha 1e-6", "--alpha of 1e-06 sends 1 of every 990092 coordinates, and the model has 20: use 0.05."),
        ("--alpha 0.02", "--alpha"),  # A model of 20 coordinates has no block of 50.
        ("--clients 2", "--clients"),
        ("--dropout 0.5", "--dropout"),
        ("--dim 0", "--dim"),
        ("--threshold 3", "--threshold"),
        ("--threshold 11", "--threshold"),
        ("--modulus-bits 33", "--modulus-bits"),
        ("--modulus-bits 4", "--modulus-bits"),
        ("--drop-at LUNCH", "--drop-at"),
        ("--rounds 0", "--rounds"),
        ("--pattern committee", "--pattern"),
        ("--group-size 2", "--group-size"),
        ("--clients 5 --group-size 3", "--group-size of 3 leaves groups of 2 among 5 clients: use at least 5."),
        ("--clients 50 --group-size 3", "--group-size of 3 leaves groups of 2 among 50 clients: use at least 4."),
        ("--group-size 11", "--group-size"),
        ("--group-size 5 --pattern full", "--group-size"),
        ("--group-size 5 --neighbours 4", "--neighbours"),
        ("--authenticated --threshold 5", "--threshold"),
        ("--authenticated --clients 30 --threshold 16", "--threshold"),  # 2t ≤ P + c: 32 ≤ 30 + 3.
        ("--authenticated --neighbours 4", "--neighbours"),
        ("--committee-size 5", "--committee-size"),
        ("--confirm", "--confirm"),
        ("--min-survivors 9", "--min-survivors"),
    ],
)
def test_bad_input_exits_2_with_one_sentence(capsys: pytest.CaptureFixture[str], options: str, named: str) -> None:
    code, out, err = run(capsys, *f"simulate --clients 10 --dim 20 --alpha 0.5 {options}".split())
    assert (code, out) == (2, "")
    assert f"{err.rstrip()} ".startswith(f"sparsesecagg: {named} ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            "--dropout 0.4 --threshold 8",
            "[3-7] users left at UPLOAD, 8 are needed; lower --dropout or lower --threshold",
        ),
        ("--dropout 0.4 --threshold 6 --seed 2", "[3-5] users left at UPLOAD, 6 are needed; lower --dropout"),
        ("--clients 5 --dropout 0.3 --authenticated --seed 2", "3 users left at UPLOAD, 4 are needed; lower --dropout"),
        (
            "--clients 31 --dim 2 --alpha 0.5 --dropout 0.1 --seed 38 --drop-at ADVERTISE_KEYS --neighbours 2",
            "only 1 user would hold shares, the threshold is 2; lower --dropout or raise --neighbours",
        ),
    ],
)
def test_a_failed_round_exits_1_with_stage_reason_and_what_would_help(
    capsys: pytest.CaptureFixture[str], options: str, sentence: str
) -> None:
    code, out, err = run(capsys, *f"simulate --clients 10 --dim 20 --alpha 1 {options}".split())
    assert (code, out) == (1, "")
    assert re.search(rf"the round failed: {sentence}\.\n$", err)


def test_some_failed_rounds_are_told_and_the_others_count(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --clients 10 --dim 20 --alpha 1 --dropout 0.3 --rounds 12 --json"
    code, out, err = run(capsys, *arguments.split())
    failed = len(re.findall(r"round \d+ failed: [0-5] users left at UPLOAD, 6 are needed", err))
    assert (code, 0 < failed < 12) == (0, True)
    assert f'"groups_opened": {(12 - failed) / 12}' in out
    assert '"exact": true' in out


def test_a_pattern_that_reveals_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, *"simulate --clients 10 --dim 20 --alpha 1 --pattern pairwise --json".split())
    assert "docs/privacy.md" in err


def test_groups_that_protect_nobody_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    """Five users drawn from forty may all collude; with a roster they count on more."""
    _, _, err = run(capsys, *"simulate --authenticated --clients 40 --group-size 5 --dim 100 --json".split())
    assert "protect nobody from a malicious server" in err
    _, _, err = run(capsys, *"simulate --authenticated --clients 40 --dim 100 --json".split())
    assert "protect" not in err
