"""`sparsesecagg simulate`, by its contract."""

from __future__ import annotations

import pytest

from cli.commands import run, run_json

STAGES = {"ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"}


def test_the_json_contract(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, *"simulate --clients 12 --dim 300 --alpha 0.5 --dropout 0.2 --rounds 2".split())
    assert result["exact"] is True
    assert result["survivors"] == 10
    assert set(result["dropped"]) == STAGES
    assert result["dropped"]["UPLOAD"] == 2
    assert result["threshold"] == 7
    assert result["alpha_effective"] == pytest.approx(0.5)
    assert set(result["upload_bytes"]) == {"mean", "max"}
    for key in ("sent_bytes", "received_bytes", "client_seconds", "server_seconds"):
        assert set(result[key]) == STAGES | {"total"}
        assert result[key]["total"] == pytest.approx(sum(result[key][stage] for stage in STAGES))
    assert set(result["contributors"]) >= {"mean", "min"}
    assert result["peak_memory_bytes"] > 1e6


def test_ten_of_25_users_send_four_tenths(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, *"simulate --clients 25 --dim 1000 --alpha 0.4".split())
    assert result["alpha_effective"] == 0.4
    assert result["contributors"] == {"mean": 10, "min": 10}


@pytest.mark.parametrize(
    ("pattern", "bits", "largest"),
    [
        ("pairwise", 32, 75_500),
        ("full", 32, 661_000),
        ("committee", 16, 34_500),
        ("committee", 8, 18_000),
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
    arguments = f"simulate --clients 11 --dim 50 --alpha 1 --dropout 0.45 --drop-at {stage}"
    result = run_json(capsys, *arguments.split())
    assert result["exact"]
    assert sum(result["dropped"].values()) == 4


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
        ("--modulus-bits 9", "--modulus-bits"),
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
    assert "6 users left at UPLOAD, 8 are needed" in err


def test_a_pattern_that_reveals_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, *"simulate --clients 10 --dim 20 --alpha 1 --pattern pairwise --json".split())
    assert "docs/privacy.md" in err


def test_small_committees_are_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    """The α that is named removes the warning."""
    _, _, err = run(capsys, *"simulate --clients 40 --dim 100 --alpha 0.1 --json".split())
    assert "--alpha 0.2 gives 8 or more" in err
    _, _, err = run(capsys, *"simulate --clients 40 --dim 100 --alpha 0.2 --json".split())
    assert err == ""


def test_the_alpha_that_is_advised_gives_committees_that_are_large_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """8/25 = 0.32 would be taken for 5/16, which gives committees of seven."""
    _, _, err = run(capsys, *"simulate --clients 25 --dim 100 --alpha 0.2 --json".split())
    assert "committees of 5" in err
    assert "--alpha 0.33 gives 8 or more" in err
    assert run(capsys, *"simulate --clients 25 --dim 100 --alpha 0.33 --json".split())[2] == ""


def test_likely_refusals_are_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *"simulate --clients 40 --dim 100 --alpha 0.2 --dropout 0.45 --min-survivors 4".split())
    assert "clients will refuse about" in err
    assert "would do" in err
    assert code in (0, 1)
