"""Hash chains: a public tip commits to sixteen nonces, and each nonce gives away earlier ones only."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.crypto.chain import MAX_DRAWS, ChainSeed, NonceChain, require_nonce
from sparsesecagg.errors import InvalidInput, InvalidKey
from strategies import seeds

RUN = "run of the tests"
draws = st.integers(1, MAX_DRAWS)


def hashed(run: str, value: bytes) -> bytes:
    """One step of the chain, written out: each part preceded by its length."""
    parts = (b"sparsesecagg/v2/draw chain", run.encode(), value)
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).digest()


@given(seeds)
def test_the_chain_is_sixteen_hashes_long(seed: bytes) -> None:
    chain, value = NonceChain(ChainSeed(seed), RUN), seed
    for draw in range(MAX_DRAWS, 0, -1):
        assert chain.nonce(draw) == value
        value = hashed(RUN, value)
    assert chain.tip == value


@given(seeds, draws)
def test_every_nonce_leads_to_the_tip_by_its_own_number_only(seed: bytes, draw: int) -> None:
    chain = NonceChain(ChainSeed(seed), RUN)
    nonce = chain.nonce(draw)
    require_nonce(nonce, draw, RUN, chain.tip)
    for other in {1, draw - 1, draw + 1, MAX_DRAWS} - {0, draw, MAX_DRAWS + 1}:
        with pytest.raises(InvalidKey, match=f"draw {other}"):
            require_nonce(nonce, other, RUN, chain.tip)


@given(seeds, draws, st.integers(0, 255))
def test_a_nonce_changed_in_one_bit_is_refused(seed: bytes, draw: int, bit: int) -> None:
    chain = NonceChain(ChainSeed(seed), RUN)
    nonce = bytearray(chain.nonce(draw))
    nonce[bit // 8] ^= 1 << bit % 8
    with pytest.raises(InvalidKey):
        require_nonce(bytes(nonce), draw, RUN, chain.tip)


def test_a_nonce_of_another_run_or_length_is_refused() -> None:
    chain = NonceChain(ChainSeed(bytes(32)), RUN)
    with pytest.raises(InvalidKey):
        require_nonce(chain.nonce(3), 3, "another run", chain.tip)
    with pytest.raises(InvalidKey):
        require_nonce(chain.nonce(3)[:-1], 3, RUN, chain.tip)
    longer = NonceChain(ChainSeed(bytes(33)), RUN)
    with pytest.raises(InvalidKey):
        require_nonce(longer.nonce(16), 16, RUN, longer.tip)


@pytest.mark.parametrize("draw", [-1, 0, 17, 256])
def test_there_is_no_nonce_beyond_the_sixteen(draw: int) -> None:
    chain = NonceChain(ChainSeed(bytes(32)), RUN)
    with pytest.raises(InvalidInput, match="from 1 to 16"):
        chain.nonce(draw)
    with pytest.raises(InvalidInput, match="from 1 to 16"):
        require_nonce(bytes(32), draw, RUN, chain.tip)


def test_a_chain_prints_no_nonce() -> None:
    chain = NonceChain(ChainSeed(b"\x07" * 32), RUN)
    assert repr(chain) == f"NonceChain(run={RUN!r})"
