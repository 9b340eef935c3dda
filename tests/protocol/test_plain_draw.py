"""The draw of a plain run: neither the server nor the users alone choose the seed, and each user can check its part."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.errors import InvalidKey
from sparsesecagg.protocol.plain_draw import plain_seed, server_seed_commitment, verify_plain_draw
from strategies import seeds

PARAMS = bytes(range(32))
SERVER = os.urandom(32)
NONCES = [os.urandom(16) for _ in range(4)]
COMMITMENT = server_seed_commitment(PARAMS, SERVER)


def test_every_user_that_sent_a_nonce_gets_the_same_seed() -> None:
    found = {verify_plain_draw(PARAMS, COMMITMENT, SERVER, NONCES, user, NONCES[user]) for user in range(4)}
    assert found == {plain_seed(PARAMS, SERVER, NONCES)}


@given(seeds)
def test_the_server_cannot_open_its_commitment_to_another_seed(other: bytes) -> None:
    """Otherwise it could choose a seed that it likes after it has seen all nonces."""
    with pytest.raises(InvalidKey, match="committed"):
        verify_plain_draw(PARAMS, COMMITMENT, other, NONCES, 0, NONCES[0])
    with pytest.raises(InvalidKey, match="committed"):
        verify_plain_draw(other, COMMITMENT, SERVER, NONCES, 0, NONCES[0])


@pytest.mark.parametrize("nonces", [[b"", *NONCES[1:]], [NONCES[1], NONCES[0], *NONCES[2:]], [], NONCES[1:]])
def test_a_user_whose_nonce_is_missing_or_misplaced_refuses(nonces: list[bytes]) -> None:
    with pytest.raises(InvalidKey, match="user 0"):
        verify_plain_draw(PARAMS, COMMITMENT, SERVER, nonces, 0, NONCES[0])


@pytest.mark.parametrize("user", [-1, 4])
def test_a_number_outside_the_cohort_is_refused(user: int) -> None:
    with pytest.raises(InvalidKey):
        verify_plain_draw(PARAMS, COMMITMENT, SERVER, NONCES, user, NONCES[user % 4])


@given(st.lists(st.binary(max_size=3), max_size=4), st.lists(st.binary(max_size=3), max_size=4))
def test_seeds_differ_whenever_nonces_do(first: list[bytes], second: list[bytes]) -> None:
    """Also where nonces run together to the same bytes, and where somebody's is missing."""
    assert (plain_seed(PARAMS, SERVER, first) == plain_seed(PARAMS, SERVER, second)) == (first == second)
