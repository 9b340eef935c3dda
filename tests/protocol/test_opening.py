"""False shares: up to half of those to spare are survived and named, too many lose the group, never spoil the sum."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.rounds import Run, grouped, small
from sparsesecagg.errors import TooLittleOpened
from sparsesecagg.protocol import Parameters, Result, Stage
from sparsesecagg.protocol.messages import Unmask, decode_client_message, decode_users, encode

About = Callable[[int], bool]


def everybody(owner: int) -> bool:
    return True


def with_lies(run: Run, user: int, about: About) -> bytes:
    """Return a user's shares, with the share of each owner that it lies about changed."""
    message = decode_client_message(run.answer(user))
    assert isinstance(message, Unmask)
    group = run.group(user)
    owners = group.users[decode_users(message.owners, len(group))].tolist()
    shares = bytearray(message.shares)
    for row, owner in enumerate(owners):
        if about(owner):
            shares[20 * row] ^= 1
    return encode(msgspec.structs.replace(message, shares=bytes(shares)))


def open_with(
    params: Parameters, liars: dict[int, About], silent: Collection[int] = (), late: Collection[int] = ()
) -> Result:
    """Run a round in which some users lie, some drop out before UPLOAD, and some before UNMASK."""
    run = Run(params).begin().step(silent)
    run.run_to(Stage.UNMASK)
    for user in run.inbox:
        if user not in late:
            run.server.receive(None, with_lies(run, user, liars[user]) if user in liars else run.answer(user))
    run.server.close_stage()
    return run.result


SEVEN = small(clients=7, dim=20)  # Four restore a secret, so one false share of seven is certainly found.


@pytest.mark.parametrize("silent", [(), (6,)])
@pytest.mark.parametrize("liar", [0, 3, 5])
def test_one_liar_is_survived_and_named(liar: int, silent: tuple[int, ...]) -> None:
    result = open_with(SEVEN, {liar: everybody}, silent)
    truth = open_with(SEVEN, {}, silent)
    assert np.array_equal(result.total, truth.total)
    assert dict(result.false_shares) == {liar: tuple(range(7))}
    assert not truth.false_shares
    assert result.survivors == truth.survivors


@pytest.mark.parametrize(("clients", "threshold"), [(9, 5), (11, 6), (13, 9), (12, 7), (21, 11)])
def test_half_of_the_shares_to_spare_may_be_false(clients: int, threshold: int) -> None:
    """(n − t)/2 liars, whatever they lie about; they are named and nobody else is."""
    params = small(clients=clients, dim=5, threshold=threshold)
    liars: dict[int, Callable[[int], bool]] = dict.fromkeys(range((clients - threshold) // 2), everybody)
    result = open_with(params, liars)
    assert np.array_equal(result.total, open_with(params, {}).total)
    assert set(result.false_shares) == set(liars)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.sets(st.integers(0, 10), max_size=2), st.integers(0, 2**32))
def test_who_is_named_has_lied(liars: set[int], seed: int) -> None:
    """Eleven users, six needed: two liars, each about a random half of the secrets."""
    params = small(clients=11, dim=3)
    about = np.random.default_rng(seed).random((11, 11)) < 0.5
    result = open_with(params, {liar: about[liar].__getitem__ for liar in liars})
    assert not result.lost
    named = {(holder, owner) for holder, owners in result.false_shares.items() for owner in owners}
    assert named == {(liar, owner) for liar in liars for owner in range(11) if about[liar, owner]}


def test_beyond_that_the_group_is_lost_and_the_reason_says_whose_secret() -> None:
    with pytest.raises(TooLittleOpened, match=r"the secrets of user \d can't be restored"):
        open_with(SEVEN, dict.fromkeys(range(4), everybody))


@pytest.mark.parametrize("about", [0, 4], ids=["a private seed", "a mask secret"])
def test_a_false_share_without_a_spare_one_loses_the_sum_instead_of_spoiling_it(about: int) -> None:
    """Five users, three needed, one has dropped out and another one before UNMASK."""
    with pytest.raises(TooLittleOpened, match=f"the secrets of user {about} can't be restored"):
        open_with(small(), {0: lambda owner: owner == about}, silent=(4,), late=(3,))


def test_only_the_group_whose_secrets_are_lied_about_is_lost() -> None:
    params = grouped()
    users = Run(params).server.groups.groups[1].users.tolist()
    result = open_with(params, dict.fromkeys(users[:3], everybody))
    assert set(result.lost) == {1}
    truth = open_with(params, {})
    kept = result.updated
    assert np.array_equal(result.total[kept], truth.total[kept])
    assert not result.total[~kept].any()
    assert kept.sum() == truth.updated.sum() / 2


def test_in_a_sparse_graph_every_secret_has_its_own_holders() -> None:
    params = small(clients=15, dim=20, neighbours=8, threshold=5)
    result = open_with(params, {4: everybody}, silent=(9,))
    assert np.array_equal(result.total, open_with(params, {}, silent=(9,)).total)
    assert set(result.false_shares) == {4}


def test_a_secret_with_too_few_shares_loses_the_sum() -> None:
    """In a sparse graph enough users may be left, and yet too few holders of one secret, whoever's it is."""
    params = small(clients=15, dim=20, neighbours=4)
    run = Run(params).run_to(Stage.UNMASK)
    holders = run.clients[7]._joined()[0].holders(7).tolist()
    with pytest.raises(TooLittleOpened, match="can't be restored"):
        run.step(silent=holders[:3])
