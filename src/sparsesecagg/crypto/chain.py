"""Hash chains: one value in the roster commits a user to the nonces of all draws of a run.

The chain starts with a secret, v_16, and ends with the public tip, v_0; each value is the hash of the one before:

    v_16 (secret)  →  …  →  v_2  →  v_1  →  v_0 = tip            v_{k−1} = H(run, v_k)

The nonce of draw number k is v_k. Whoever sees it hashes it k times and compares with the tip, so its owner can't
choose it after the roster was made. It gives away the nonces of earlier draws, and none of later ones.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.constant_time import bytes_eq

from sparsesecagg.crypto.kdf import DIGEST_SIZE, digest
from sparsesecagg.crypto.secrets import Secret
from sparsesecagg.errors import InvalidInput, InvalidKey

MAX_DRAWS = 16
"""How many draws a run can have; the plan charges log2 of it."""

CHAIN_NONCE_SIZE = DIGEST_SIZE


class ChainSeed(Secret):
    """The secret start of a chain, v_16."""


class NonceChain:
    """One user's nonces for all draws of a run."""

    def __init__(self, seed: ChainSeed, run: str) -> None:
        self._seed = seed
        self._run = run

    @property
    def tip(self) -> bytes:
        """The public end of the chain, which commits to all of it."""
        return _hashed(self._seed.reveal(), self._run, MAX_DRAWS)

    def nonce(self, draw: int) -> bytes:
        """Return the nonce of a draw; giving it away gives away those of all earlier draws."""
        require_draw_number(draw)
        return _hashed(self._seed.reveal(), self._run, MAX_DRAWS - draw)

    def __repr__(self) -> str:
        return f"NonceChain(run={self._run!r})"


def require_draw_number(draw: int) -> None:
    """Raise `InvalidInput` unless a chain has a nonce for this draw."""
    if not 1 <= draw <= MAX_DRAWS:
        raise InvalidInput("draw", f"must be from 1 to {MAX_DRAWS}, got {draw}")


def require_nonce(nonce: bytes, draw: int, run: str, tip: bytes) -> None:
    """Raise `InvalidKey` unless this is the nonce of the draw in the chain that ends with the tip."""
    require_draw_number(draw)
    if len(nonce) != CHAIN_NONCE_SIZE or not bytes_eq(_hashed(nonce, run, draw), tip):
        raise InvalidKey(f"the nonce is not the one that the roster commits to for draw {draw}")


def _hashed(value: bytes, run: str, times: int) -> bytes:
    name = run.encode()
    for _ in range(times):
        value = digest("draw chain", name, value)
    return value
