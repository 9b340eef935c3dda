"""Centred clipping: with honest groups the mean hardly changes, a bad group can't move it far, half of them can."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sparsesecagg import InProcessRun, Parameters, RoundOptions, Server
from sparsesecagg.errors import InvalidInput
from sparsesecagg.protocol.combine import CentredClipping, Combine, Median, Sum

DIM, GROUPS, SIZE = 120, 7, 5
OPTIONS = RoundOptions(alpha=0.5, group_size=SIZE, same_slices=True, clip=4.0, dropout=0.0)


def trained(bad: int, combine: Combine, rounds: int = 4) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the last mean where something was opened, and the honest users' own there."""
    params = Parameters.create(GROUPS * SIZE, DIM, OPTIONS)
    run = InProcessRun(params, make_server=lambda found, roster: Server(found, roster, combine=combine))
    spoilt = {int(run.server.groups.groups[number].users[0]) for number in range(bad)}
    rng = np.random.default_rng(0)
    common = rng.standard_normal(DIM).astype(np.float32) / 10
    for _ in range(rounds):
        updates = [common + rng.standard_normal(DIM).astype(np.float32) / 20 for _ in range(params.clients)]
        for user in spoilt:
            updates[user] = np.full(DIM, -4.0, np.float32)
        result = run.round(updates).result
    honest = np.mean([update for user, update in enumerate(updates) if user not in spoilt], axis=0)
    return result.mean()[result.updated], honest[result.updated]


def distance(found: tuple[NDArray[np.float32], NDArray[np.float32]]) -> float:
    return float(np.linalg.norm(found[0] - found[1]))


def test_without_bad_users_it_is_nearly_the_mean() -> None:
    assert distance(trained(0, CentredClipping())) < 1.3 * distance(trained(0, Sum)) + 0.05


def test_a_bad_user_in_fewer_than_half_of_the_groups_moves_little() -> None:
    assert distance(trained(2, CentredClipping())) < 0.2 * distance(trained(2, Sum))


def test_bad_users_in_most_groups_move_it_all_the_same() -> None:
    """The control: what is promised ends at half of the groups."""
    assert distance(trained(6, CentredClipping())) > 3 * distance(trained(2, CentredClipping()))


@pytest.mark.parametrize("options", [RoundOptions(), RoundOptions(alpha=0.5, group_size=5)])
def test_it_needs_three_groups_that_send_the_same_slice(options: RoundOptions) -> None:
    params = Parameters.create(20, DIM, options)
    with pytest.raises(InvalidInput, match="same_slices"):
        CentredClipping()(params)


def test_the_last_aggregate_is_where_the_next_one_begins() -> None:
    clipping = CentredClipping()
    found, _ = trained(0, clipping, rounds=1)
    assert clipping.last is not None
    assert clipping.last[clipping.last != 0] == pytest.approx(found[found != 0])


def test_it_is_what_its_formula_says() -> None:
    """Recomputed in float64 from the groups' means, over rounds that cover different coordinates."""
    params = Parameters.create(GROUPS * SIZE, DIM, OPTIONS)
    clipping, last, rng = CentredClipping(), np.zeros(DIM), np.random.default_rng(1)
    run = InProcessRun(params, make_server=lambda found, roster: Server(found, roster, combine=clipping))
    for _ in range(4):
        result = run.round([rng.standard_normal(DIM) for _ in range(params.clients)]).result
        covered = result.combined.contributors > 0
        assert 0 < covered.sum() < DIM
        mean = np.where(covered, 0.9 * last, 0)
        for _ in range(3):
            away = [np.where(covered, each - mean, 0) for _, each in result.combined.groups]
            lengths = np.linalg.norm(away, axis=1)
            weights = np.minimum(1, (np.median(lengths) / lengths) ** 2)
            mean = mean + weights @ np.array(away) / GROUPS
        last = np.where(covered, mean, last)
        assert result.combined.robust == pytest.approx(mean, abs=1e-5)
        assert clipping.last == pytest.approx(last, abs=1e-5)


def test_equal_groups_are_their_mean() -> None:
    """Where the radius is zero, and so is every distance after the first pass."""
    params = Parameters.create(12, 2, RoundOptions(group_size=4, same_slices=True, clip=4.0))
    run = InProcessRun(params, make_server=lambda found, roster: Server(found, roster, combine=CentredClipping()))
    for value in (0.0, 3.0):
        assert run.round([np.full(2, value)] * 12).result.mean() == pytest.approx([value] * 2, abs=1e-5)


def test_the_median_is_that_of_the_groups_means() -> None:
    """Coordinate by coordinate: three groups of four, in each of which all send the same."""
    params = Parameters.create(12, 2, RoundOptions(group_size=4, same_slices=True, clip=4.0))
    run = InProcessRun(params, make_server=lambda found, roster: Server(found, roster, combine=Median))
    means = ([3.0, -1.0], [2.0, -2.0], [-4.0, 1.0])
    sent = {user: mean for group, mean in zip(run.server.groups.groups, means, strict=True) for user in group.users}
    result = run.round([np.array(sent[user], np.float32) for user in range(12)]).result
    assert result.mean() == pytest.approx([2.0, -1.0], abs=1e-5)


def test_the_median_of_no_group_is_zero() -> None:
    robust = Median(Parameters.create(12, 2, RoundOptions(group_size=4, same_slices=True))).total().robust
    assert robust is not None
    assert robust.tolist() == [0.0, 0.0]


def test_three_groups_are_enough() -> None:
    params = Parameters.create(12, DIM, RoundOptions(group_size=4, same_slices=True))
    assert params.groups == 3
    CentredClipping()(params)


@pytest.mark.parametrize("decay", [-0.1, 1.1])
def test_a_decay_beyond_one_is_refused(decay: float) -> None:
    with pytest.raises(InvalidInput, match=r"decay must be in \[0, 1\]"):
        CentredClipping(decay)
    CentredClipping(0.0)
    CentredClipping(1.0)
