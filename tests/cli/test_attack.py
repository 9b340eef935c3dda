"""`sparsesecagg attack`: the JSON contract, the closing sentence, and the complaints."""

import pytest

from cli.commands import run, run_json

ROW = {"name", "mode", "lie", "promised", "values_read", "refused_by", "control_values_read"}
SMALL = ("--clients", "12", "--alpha", "0.5")


def test_the_list_names_every_attack_with_its_lie(capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_json(capsys, "attack", "list")["attacks"]
    assert len(rows) >= 30
    assert all(row["lie"].endswith(".") and row["promise"].endswith(".") for row in rows)
    code, out, _ = run(capsys, "attack")
    assert code == 0
    assert "thin-group" in out


def test_json_holds_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "attack", "thin-group", *SMALL)
    assert [row["mode"] for row in found["attacks"]] == ["plain", "authenticated"]
    for row in found["attacks"]:
        assert row.keys() >= ROW
        assert row["promised"]
        assert row["values_read"] == 0 < row["control_values_read"]
        assert row["refused_by"] == "PolicyViolation"


def test_a_plain_run_says_what_a_roster_would_close(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, "attack", "man-in-the-middle", "--plain", *SMALL)
    (row,) = found["attacks"]
    assert not row["promised"]
    assert row["values_read"] > 0
    (sentence,) = found["summary"]
    assert sentence == ("plain: 0 of 1 hold; not promised: man-in-the-middle; a roster closes man-in-the-middle.")
    (sentence,) = run_json(capsys, "attack", "man-in-the-middle", "--authenticated", *SMALL)["summary"]
    assert sentence == "authenticated: 1 of 1 hold."


def test_the_table_gives_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "attack", "chosen-groups", *SMALL)
    assert code == 0
    assert "not" in out
    assert "holds" in out


def test_a_broken_promise_exits_with_1_and_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparsesecagg.protocol.epoch.Tags.valid", lambda self, sender, tag: True)
    code, _, err = run(capsys, "attack", "withheld-tags", "--plain", *SMALL)
    assert code == 1
    assert "a promise is broken, or a control shows nothing: withheld-tags." in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["no-such"], "must be all or an attack that"),
        (["all", "--clients", "11"], "--clients must be from 12 to 2000, got 11."),
        (["all", "--clients", "2001"], "--clients must be from 12 to 2000, got 2001."),
        (["all", "--alpha", "0"], "--alpha must be in [0.001, 1], got 0."),
        (["all", "--alpha", "2"], "--alpha must be in [0.001, 1], got 2."),
        (["split-graph", "--authenticated"], "must name an attack on authenticated runs, got 'split-graph'"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    code, out, err = run(capsys, "attack", *arguments)
    assert (code, out) == (2, "")
    assert complaint in " ".join(err.split())
