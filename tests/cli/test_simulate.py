"""`sparsesecagg simulate`, by its contract."""

from __future__ import annotations

import re

import pytest

from cli.commands import run, run_json

ROUND = {"SHARE_KEYS", "UPLOAD", "UNMASK"}
STAGES = {"ADVERTISE_KEYS", *ROUND}


def test_the_json_contract(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, *"simulate --clients 12 --dim 300 --alpha 0.5 --dropout 0.2 --rounds 2".split())
    assert result["exact"] is True
    assert result["survivors"] + result["dropped"]["UPLOAD"] == 12
    assert set(result["dropped"]) == STAGES
    assert result["threshold"] == 7
    assert (result["alpha"], result["alpha_effective"]) == (0.5, 0.5)
    assert set(result["upload_bytes"]) == {"mean", "max"}
    for key in ("sent_bytes", "received_bytes", "client_seconds", "server_seconds"):
        assert set(result[key]) == ROUND | {"total"}
        assert result[key]["total"] == pytest.approx(sum(result[key][stage] for stage in ROUND))
    assert set(result["contributors"]) >= {"mean", "min"}
    assert result["peak_memory_bytes"] > 1e6
    assert (result["pods"], result["committees"], result["exchanges"], result["confirm"]) == (1, 2, 2, False)
    assert (result["committees_opened"], result["coordinates_updated"]) == (2, 1.0)
    assert set(result["setup_bytes"]) == {"sent", "received"}


def test_alpha_asked_and_used_are_both_told(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, *"simulate --clients 25 --dim 1000 --alpha 0.4".split())
    assert result["alpha"] == pytest.approx(0.4)
    assert result["alpha_effective"] == pytest.approx(1 / 3)
    _, _, err = run(capsys, *"simulate --clients 25 --dim 1000 --alpha 0.4 --json".split())
    assert "alpha is 0.333 instead of 0.4" in err
    finer = run_json(capsys, *"simulate --clients 25 --dim 1000 --alpha 0.4 --committee-size 5".split())
    assert (finer["alpha_effective"], finer["committees"]) == (0.4, 5)
    assert finer["contributors"] == {"mean": 10, "min": 10}


def test_bytes_of_a_round_with_thirty_per_cent_dropouts(capsys: pytest.CaptureFixture[str]) -> None:
    """What the second edition promises: one pod of 100, and pods of 30."""
    common = "simulate --pattern committee --clients 100 --dim 165000 --alpha 0.1 --modulus-bits 8 --rounds 3"
    one = run_json(capsys, *f"{common} --dropout 0.3".split())
    assert one["exact"]
    assert one["upload_bytes"]["max"] <= 18_500
    assert one["sent_bytes"]["total"] <= 26_000
    assert one["received_bytes"]["total"] <= 8_500
    pods = run_json(capsys, *f"{common} --dropout 0.1 --pod-size 30".split())
    assert pods["exact"]
    assert pods["sent_bytes"]["total"] <= 20_000
    assert pods["received_bytes"]["total"] <= 3_800


@pytest.mark.parametrize(
    ("pattern", "bits", "largest"),
    [
        ("pairwise", 32, 75_500),
        ("full", 32, 661_000),
        ("committee", 16, 35_000),
        ("committee", 8, 18_500),
    ],
)
def test_upload_sizes_at_the_papers_setting(
    capsys: pytest.CaptureFixture[str], pattern: str, bits: int, largest: int
) -> None:
    """The paper sends 83,000 bytes, SecAgg 660,000."""
    arguments = (
        f"simulate --pattern {pattern} --clients 100 --dim 165000 --alpha 0.1 --dropout 0.3 --modulus-bits {bits}"
    )
    result = run_json(capsys, *arguments.split())
    assert result["exact"]
    assert result["upload_bytes"]["max"] <= largest
    if pattern != "pairwise":
        assert result["upload_bytes"]["max"] == result["upload_bytes"]["mean"], "the same size for every client"


@pytest.mark.parametrize("stage", [*sorted(STAGES), "ANY"])
def test_users_may_drop_at_any_stage(capsys: pytest.CaptureFixture[str], stage: str) -> None:
    result = run_json(capsys, *f"simulate --clients 40 --dim 50 --alpha 1 --dropout 0.2 --drop-at {stage}".split())
    assert result["exact"]
    at = {name for name, users in result["dropped"].items() if users}
    assert at == {stage} or (stage == "ANY" and len(at) > 1)


def test_every_user_drops_out_by_chance(capsys: pytest.CaptureFixture[str]) -> None:
    """As in train, audit and plan: the number of dropouts differs from seed to seed."""
    arguments = "simulate --clients 40 --dim 20 --alpha 1 --dropout 0.2 --seed".split()
    gone = [run_json(capsys, *arguments, str(seed))["dropped"]["UPLOAD"] for seed in range(12)]
    assert len(set(gone)) > 2
    assert 0.1 < sum(gone) / (12 * 40) < 0.3


def test_a_seed_repeats_the_round(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --clients 10 --dim 500 --alpha 0.3 --pattern pairwise --seed".split()
    sizes = [run_json(capsys, *arguments, seed)["upload_bytes"] for seed in ("1", "1", "2")]
    assert sizes[0] == sizes[1] != sizes[2]


def test_authenticated_and_weighted_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --clients 9 --dim 100 --alpha 0.4 --dropout 0.2 --weighted --authenticated"
    result = run_json(capsys, *arguments.split())
    assert result["exact"]
    assert "CONFIRM" in result["sent_bytes"]
    assert result["threshold"] == 7


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
        ("--clients 2", "--clients"),
        ("--dropout 0.5", "--dropout"),
        ("--dim 0", "--dim"),
        ("--threshold 3", "--threshold"),
        ("--modulus-bits 33", "--modulus-bits"),
        ("--drop-at LUNCH", "--drop-at"),
        ("--rounds 0", "--rounds"),
        ("--pattern topk", "--pattern"),
        ("--alpha 0.1", "--alpha"),
        ("--min-survivors 9", "--min-survivors"),
        ("--nonsense", "--nonsense"),
    ],
)
def test_bad_input_exits_2_with_one_sentence(capsys: pytest.CaptureFixture[str], options: str, named: str) -> None:
    code, out, err = run(capsys, *f"simulate --clients 10 --dim 20 --alpha 0.5 {options}".split())
    assert (code, out) == (2, "")
    assert named in err
    assert err.count("\n") == 1


def test_a_failed_round_exits_1_with_stage_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "simulate --clients 10 --dim 20 --alpha 1 --dropout 0.4 --threshold 8"
    code, out, err = run(capsys, *arguments.split())
    assert (code, out) == (1, "")
    assert re.search(r"[3-7] users left at UPLOAD, 8 are needed", err)


def test_a_pattern_that_reveals_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, *"simulate --clients 10 --dim 20 --alpha 1 --pattern pairwise --json".split())
    assert "docs/privacy.md" in err


def test_small_committees_are_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    """The option that is named removes the warning."""
    _, _, err = run(capsys, *"simulate --clients 40 --dim 100 --alpha 0.1 --json".split())
    assert "committees of 4" in err
    assert "--committee-size 8" in err
    _, _, err = run(capsys, *"simulate --clients 40 --dim 100 --alpha 0.2 --committee-size 8 --json".split())
    assert err == ""
