"""No promise is broken, and every control shows that its attack can succeed."""

import pytest

from sparsesecagg.errors import PolicyViolation
from sparsesecagg.lab.attacks import ATTACKS, MODES, Setting, run
from sparsesecagg.lab.attacks.base import Attack, Play
from sparsesecagg.protocol import checks
from sparsesecagg.protocol.epoch import Tags

PLAYED = [(name, mode) for name, attack in ATTACKS.items() for mode in attack.modes]
NEVER_PROMISED = {"moved-mean", "unequal-weights", "differences"}
CLOSED_BY_A_ROSTER = {
    "man-in-the-middle",
    "chosen-groups",
    "weak-parameters",
    "flower-evaluation",
    "flower-metric",
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), PLAYED)
def test_a_promised_attack_reads_nothing_and_its_control_does(name, mode) -> None:
    outcome = run(ATTACKS[name], Setting(17, 0.2, mode, 7))
    assert outcome.control.values > 0
    if outcome.promised:
        assert outcome.loot.values == 0
    else:
        assert outcome.loot.values > 0, "what is not promised is read, and said to be"
    assert not outcome.broken


@pytest.mark.parametrize(
    "name", ["other-members", "thin-group", "weak-parameters", "second-unmask", "second-header", "zero-tags"]
)
@pytest.mark.parametrize(("clients", "alpha"), [(12, 1.0), (13, 0.037)])
def test_small_cohorts_and_odd_alphas_are_attacked_as_well(name: str, clients: int, alpha: float) -> None:
    assert not run(ATTACKS[name], Setting(clients, alpha, "authenticated", 5)).broken


def test_both_modes_face_thirty_attacks_or_more() -> None:
    for mode in MODES:
        assert sum(mode in each.modes and not name.startswith("flower") for name, each in ATTACKS.items()) >= 30


def test_what_is_not_promised_is_known_by_name() -> None:
    assert {name for name, attack in ATTACKS.items() if not attack.promised} == NEVER_PROMISED
    only = {
        name for name, attack in ATTACKS.items() if attack.promised == ("authenticated",) and "plain" in attack.modes
    }
    assert only == CLOSED_BY_A_ROSTER


def test_a_check_that_a_control_takes_out_is_back_afterwards() -> None:
    before = vars(Tags)["valid"], vars(checks)["own_survivors"]
    for name in ("other-members", "thin-group"):
        run(ATTACKS[name], Setting(12, 0.5, "plain", 0))
    assert (vars(Tags)["valid"], vars(checks)["own_survivors"]) == before


def test_what_was_read_before_a_refusal_counts() -> None:
    def early(play: Play) -> None:
        play.values += 3
        raise PolicyViolation("no more")

    outcome = run(Attack("early", "a lie", "a promise", early, ATTACKS["differences"].without_check), Setting())
    assert outcome.broken
    assert outcome.as_json()["values_read"] == 3
    assert outcome.as_json()["refused_by"] == "PolicyViolation"


def test_a_control_that_shows_nothing_breaks_the_outcome() -> None:
    attack = Attack("idle", "a lie", "a promise", lambda play: None, ATTACKS["differences"].without_check)
    assert run(attack, Setting()).broken
