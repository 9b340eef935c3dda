"""Who takes part: the key directory, then the members. Pure functions of public messages, the same on both sides.

Each step extends a digest: parameters → directory → members. Shares are sealed under the directory's digest and masks
are derived under the members' digest, so two users who were told different things have nothing that cancels.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from sparsesecagg.crypto.kdf import DIGEST_SIZE, digest
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE
from sparsesecagg.crypto.secrets import PrivateSeed
from sparsesecagg.errors import InvalidKey, MalformedMessage
from sparsesecagg.patterns import Pattern
from sparsesecagg.patterns.graphs import CircleGraph, Users, share_graph
from sparsesecagg.protocol.messages import NONCE_SIZE, KeyDirectory, decode_users, encode_users
from sparsesecagg.protocol.parameters import RoundParameters

ENTRY_SIZE = 2 * PUBLIC_KEY_SIZE + DIGEST_SIZE
_SEALING_KEY = slice(0, PUBLIC_KEY_SIZE)
_MASK_KEY = slice(PUBLIC_KEY_SIZE, 2 * PUBLIC_KEY_SIZE)
_NONCE_COMMITMENT = slice(2 * PUBLIC_KEY_SIZE, ENTRY_SIZE)


class Directory:
    """The users who advertised keys, their keys, and the graph along which they share secrets."""

    def __init__(self, params: RoundParameters, message: KeyDirectory) -> None:
        self.params = params
        self.message = message
        self.users = decode_users(message.users, params.clients)
        size = ENTRY_SIZE * len(self.users)
        if len(message.entries) != size:
            raise MalformedMessage(
                f"the entries of {len(self.users)} users take {size} bytes, not {len(message.entries)}"
            )
        self._place = {user: place for place, user in enumerate(self.users.tolist())}
        keys = {self._field(place, field) for place in range(len(self.users)) for field in (_SEALING_KEY, _MASK_KEY)}
        if len(keys) != 2 * len(self.users):
            raise InvalidKey(
                "a public key occurs twice in the directory: every key must be fresh and belong to one user"
            )
        self.digest = digest("directory", params.digest, message.users, message.entries)

    def sealing_key(self, user: int) -> bytes:
        """Return the public key that shares for `user` are sealed with."""
        return self._field(self._place[user], _SEALING_KEY)

    def mask_key(self, user: int) -> bytes:
        """Return the public key that masks with `user` are derived from."""
        return self._field(self._place[user], _MASK_KEY)

    def require_nonce(self, user: int, nonce: bytes) -> None:
        """Raise unless the nonce is the one that the user committed to when it advertised its keys."""
        commitment = self._field(self._place[user], _NONCE_COMMITMENT)
        if nonce_commitment(self.sealing_key(user), self.mask_key(user), nonce) != commitment:
            raise InvalidKey(f"the nonce of user {user} is not the one it committed to")

    def _field(self, place: int, field: slice) -> bytes:
        """Return a field of an entry; cut out when it is needed, since thousands of users may each hold a directory."""
        start = place * ENTRY_SIZE
        return self.message.entries[start + field.start : start + field.stop]

    def __contains__(self, user: int) -> bool:
        return user in self._place

    @cached_property
    def graph(self) -> CircleGraph:
        """The share graph."""
        return share_graph(self.digest, self.users, self.params.neighbours or None)

    def holders(self, owner: int) -> Users:
        """Return who holds shares of the owner's secrets: its neighbours and itself, sorted."""
        return np.sort(np.append(self.graph.neighbours(owner), owner))


class Members:
    """The users who finished SHARE_KEYS, and the pattern among them.

    The pattern's seed comes from nonces that were committed to before any was revealed, so whoever moves last can't
    choose its keys or its nonce to get the committees it would like.
    """

    def __init__(self, directory: Directory, users: Users, nonces: bytes) -> None:
        self.directory = directory
        self.users = users
        self.nonces = nonces
        self._set = frozenset(users.tolist())
        if not self._set.issubset(directory.users.tolist()):
            raise MalformedMessage("a member is not in the key directory")
        if len(nonces) != NONCE_SIZE * len(users):
            raise MalformedMessage(
                f"the nonces of {len(users)} users take {NONCE_SIZE * len(users)} bytes, not {len(nonces)}"
            )
        for place, user in enumerate(users.tolist()):
            directory.require_nonce(user, nonces[place * NONCE_SIZE : (place + 1) * NONCE_SIZE])
        params = directory.params
        self.context = digest("members", directory.digest, encode_users(users, params.clients), nonces)
        self.pattern: Pattern = params.pattern_type(params.pattern_settings, users, self.context, directory.graph)

    def __contains__(self, user: int) -> bool:
        return user in self._set

    def owners(self, holder: int) -> Users:
        """Return the members whose secrets `holder` has a share of, itself included, sorted."""
        return np.array([user for user in self.directory.holders(holder).tolist() if user in self._set], np.int64)


def nonce_commitment(sealing_key: bytes, mask_key: bytes, nonce: bytes) -> bytes:
    """Return the hash by which the owner of two public keys commits to its nonce.

    It does not depend on the round's parameters, so that an engine can announce keys before a round begins.
    """
    return digest("nonce", sealing_key, mask_key, nonce)


def seed_commitment(params: RoundParameters, user: int, seed: PrivateSeed) -> bytes:
    """Return the hash by which a user commits to its private seed, so that a wrong restoration is noticed."""
    return digest("private seed", params.digest, user.to_bytes(4, "little"), seed.reveal())
