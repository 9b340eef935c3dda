"""Who draws in a plain run, which has no roster: the server's seed and everybody's nonces.

The server commits to its seed before it sees any nonce, and opens it afterwards. So neither a server that follows the
protocol nor users alone can choose the groups. A server that works together with a user can: it knows its own seed, and
that user sends its nonce last. Without a roster it could invent users as well; a run that must stand that has a roster.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.constant_time import bytes_eq

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.errors import InvalidKey


def server_seed_commitment(params_digest: bytes, server_seed: bytes) -> bytes:
    """Return the hash by which the server commits to its seed before any user sends a nonce."""
    return digest("server seed", params_digest, server_seed)


def plain_seed(params_digest: bytes, server_seed: bytes, nonces: Sequence[bytes]) -> bytes:
    """Return the seed of the groups; `nonces` are in the order of the users, empty for those that sent none."""
    return digest("plain draw", params_digest, server_seed, *nonces)


def verify_plain_draw(
    params_digest: bytes, commitment: bytes, server_seed: bytes, nonces: Sequence[bytes], user: int, own: bytes
) -> bytes:
    """Return the seed for a user; raise `InvalidKey` unless its own nonce counts and the seed was committed to."""
    if not 0 <= user < len(nonces) or not bytes_eq(nonces[user], own):
        raise InvalidKey(f"the nonce of user {user} does not stand in its place")
    if not bytes_eq(server_seed_commitment(params_digest, server_seed), commitment):
        raise InvalidKey("the server's seed is not the one it committed to")
    return plain_seed(params_digest, server_seed, nonces)
