"""No promise is broken, and every control shows that its attack can succeed."""

import pytest

from sparsesecagg.lab.attacks import ATTACKS, Setting, run

PLAYED = [(name, mode) for name, attack in ATTACKS.items() for mode in attack.modes]


@pytest.mark.parametrize(("name", "mode"), PLAYED)
@pytest.mark.parametrize(("clients", "alpha", "seed"), [(31, 0.2, 7)])
def test_a_promised_attack_reads_nothing_and_its_control_does(
    name, mode, clients: int, alpha: float, seed: int
) -> None:
    outcome = run(ATTACKS[name], Setting(clients, alpha, mode, seed))
    assert outcome.control.values > 0
    if outcome.promised:
        assert outcome.reading.values == 0
    assert not outcome.broken


def test_both_modes_face_sixteen_attacks_or_more() -> None:
    for mode in ("plain", "authenticated"):
        assert sum(mode in attack.modes for attack in ATTACKS.values()) >= 16


def test_a_check_that_a_control_takes_out_is_back_afterwards() -> None:
    from sparsesecagg.protocol import release

    before = vars(release)["shown_survivors"]
    run(ATTACKS["other-members"], Setting(30, 0.2, "plain", 0))
    assert vars(release)["shown_survivors"] is before


def test_what_is_not_promised_is_read_and_said_to_be() -> None:
    outcome = run(ATTACKS["two-survivor-sets"], Setting(30, 0.2, "plain", 0))
    assert not outcome.promised
    assert outcome.reading.values > 0
    assert not outcome.broken
