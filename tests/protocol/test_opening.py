"""Restoring the secrets: false shares are left out where others can stand in, and never spoil the sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.rounds import Round, small, updates
from sparsesecagg.crypto import shamir
from sparsesecagg.errors import InvalidShare, ThresholdNotMet
from sparsesecagg.protocol import Result, RoundParameters, Stage
from sparsesecagg.protocol.messages import Unmask, decode_client_message, decode_users, encode
from sparsesecagg.protocol.opening import _MOST_TRIES, _choices

Lies = Mapping[int, Callable[[int], bool]]
"""For each lying holder: of which owners' secrets it sends a false share."""

SEVEN = small(clients=7, dim=30)
"""Seven holders, of whom four are needed."""


def everybody(_owner: int) -> bool:
    return True


def with_lies(data: bytes, clients: int, lies_about: Callable[[int], bool]) -> bytes:
    """Return an UNMASK message with one limb of some shares changed."""
    message = decode_client_message(data)
    assert isinstance(message, Unmask)
    elements = shamir.decode_shares(message.shares)
    assert elements is not None
    rows = elements.reshape(-1, shamir.LIMBS)
    for row, owner in zip(rows, decode_users(message.owners, clients).tolist(), strict=True):
        if lies_about(owner):
            # A liar's own error, since equal ones may cancel.
            row[owner % shamir.LIMBS] = (row[owner % shamir.LIMBS] + 3**message.sender) % shamir.PRIME
    return encode(msgspec.structs.replace(message, shares=shamir.encode_shares(rows.reshape(-1))))


def open_with(params: RoundParameters, lies: Lies, silent: tuple[int, ...] = (), late: tuple[int, ...] = ()) -> Result:
    """Run a round in which some holders lie; `silent` users drop out at UPLOAD, `late` ones at UNMASK."""
    game = Round(params).run_to(Stage.UPLOAD)
    game.step(silent=silent)
    for user in [user for user in game.inbox if user not in late]:
        answer = game.answer(user)
        game.server.receive(with_lies(answer, params.clients, lies[user]) if user in lies else answer)
    try:
        game.server.close_stage()
    except InvalidShare:
        assert game.server.result is None
        raise
    assert game.server.result is not None
    return game.server.result


def test_an_honest_opening_gives_the_plain_sum() -> None:
    vectors = updates(SEVEN)
    assert open_with(SEVEN, {}).sum() == pytest.approx(np.clip(vectors, -1, 1).sum(axis=0), abs=1e-5)
    without = open_with(SEVEN, {}, silent=(5,)).sum()
    assert without == pytest.approx(np.clip(np.delete(vectors, 5, axis=0), -1, 1).sum(axis=0), abs=1e-5)


@pytest.mark.parametrize("silent", [(), (5,)], ids=["all survive", "one drops out"])
@pytest.mark.parametrize("liar", [0, 3, 6])
def test_the_sum_is_right_although_a_holder_lies_about_everything(liar: int, silent: tuple[int, ...]) -> None:
    """About private seeds and about the mask key of a user who dropped out, wherever the liar stands."""
    honest = open_with(SEVEN, {}, silent)
    result = open_with(SEVEN, {liar: everybody}, silent)
    assert np.array_equal(result.total, honest.total)
    assert honest.false_shares == ()
    # A liar behind the first four is not even looked at.
    assert {holder for holder, _ in result.false_shares} == ({liar} if liar < 4 else set())


def test_a_single_lie_is_found_and_named() -> None:
    result = open_with(SEVEN, {1: lambda owner: owner == 5})
    assert result.false_shares == ((1, 5),)


def test_holders_who_lie_about_different_secrets_are_all_left_out() -> None:
    lies = {0: lambda owner: owner < 3, 2: lambda owner: owner >= 3}
    result = open_with(SEVEN, lies)
    assert {holder for holder, _ in result.false_shares} == {0, 2}
    assert all(lies[holder](owner) for holder, owner in result.false_shares)
    assert np.array_equal(result.total, open_with(SEVEN, {}).total)


@given(st.sets(st.integers(0, 10), max_size=4), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_as_many_lies_as_there_are_spare_shares_are_left_out(liars: set[int], seed: int) -> None:
    """Eleven holders, six needed; each liar lies about a random half of the secrets."""
    params = small(clients=11, dim=20)
    about = np.random.default_rng(seed).random((11, 11)) < 0.5
    result = open_with(params, {liar: lambda owner, liar=liar: bool(about[liar, owner]) for liar in liars})
    assert np.array_equal(result.total, open_with(params, {}).total)
    assert all(holder in liars and about[holder, owner] for holder, owner in result.false_shares)


def test_in_a_sparse_graph_every_secret_has_its_own_holders() -> None:
    params = small(clients=15, dim=20, neighbours=6)
    result = open_with(params, {4: everybody}, silent=(9,))
    assert np.array_equal(result.total, open_with(params, {}, silent=(9,)).total)
    assert {holder for holder, _ in result.false_shares} <= {4}


@pytest.mark.parametrize("about", [0, 4], ids=["a private seed", "a mask key"])
def test_a_false_share_without_a_spare_one_fails_the_round_instead_of_spoiling_the_sum(about: int) -> None:
    """Five users, three needed, and one of four survivors falls silent before UNMASK; the owner is named."""
    with pytest.raises(InvalidShare, match=f"user {about}"):
        open_with(small(), {0: lambda owner: owner == about}, silent=(4,), late=(3,))


def test_too_many_lies_fail_the_round_after_a_bounded_search() -> None:
    with pytest.raises(InvalidShare, match="do not fit together"):
        open_with(SEVEN, dict.fromkeys(range(4), everybody))


@pytest.mark.parametrize("owner", [0, 7, 14])
def test_a_secret_with_too_few_shares_ends_the_round(owner: int) -> None:
    """In a sparse graph enough users may be left, and yet too few holders of one secret, whoever's it is."""
    params = small(clients=15, dim=20, neighbours=4)
    game = Round(params).run_to(Stage.UNMASK)
    lonely = game.server._members.directory.holders(owner).tolist()  # type: ignore[union-attr]
    for user in [user for user in game.inbox if user not in lonely[:3]]:
        game.server.receive(game.answer(user))
    with pytest.raises(ThresholdNotMet, match="2 users left at UNMASK, 3 are needed"):
        game.server.close_stage()


@pytest.mark.parametrize(("count", "needed"), [(7, 4), (10, 9), (52, 51), (299, 298), (11, 6)])
def test_any_single_false_share_is_left_out_within_the_tries_that_are_made(count: int, needed: int) -> None:
    """For certain, not by luck: the first choices leave out each share once."""
    choices = list(islice(_choices(count, needed), 1 + -(-count // (count - needed))))
    assert choices[0].tolist() == list(range(needed))
    assert all(len(set(chosen.tolist())) == needed for chosen in choices)
    left_out = [set(range(count)) - set(chosen.tolist()) for chosen in choices[1:]]
    assert set().union(*left_out) == set(range(count))
    assert len(choices) <= _MOST_TRIES


def test_without_a_spare_share_there_is_one_choice() -> None:
    assert [chosen.tolist() for chosen in _choices(4, 4)] == [[0, 1, 2, 3]]


def test_with_spare_shares_there_is_always_another_choice() -> None:
    assert len(list(islice(_choices(7, 4), 1000))) == 1000
