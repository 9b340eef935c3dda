"""Who takes part: the key directory, then the members. Pure functions of public messages, the same on both sides.

Each step extends a digest: parameters → directory → members. Shares are sealed under the directory's digest and masks are
derived under the members' digest, so two users who were told different things have nothing in common that cancels.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE
from sparsesecagg.errors import InvalidKey, MalformedMessage
from sparsesecagg.patterns import Pattern
from sparsesecagg.patterns.graphs import CircleGraph, Users, share_graph
from sparsesecagg.protocol.messages import KeyDirectory, decode_users, encode_users
from sparsesecagg.protocol.parameters import RoundParameters

_ENTRY_SIZE = 2 * PUBLIC_KEY_SIZE


class Directory:
    """The users who advertised keys, their keys, and the graph along which they share secrets."""

    def __init__(self, params: RoundParameters, message: KeyDirectory) -> None:
        self.params = params
        self.message = message
        self.users = decode_users(message.users, params.clients)
        if len(message.keys) != _ENTRY_SIZE * len(self.users):
            raise MalformedMessage(f"{len(self.users)} users have {_ENTRY_SIZE * len(self.users)} bytes of keys, not {len(message.keys)}")
        self._place = {int(user): place for place, user in enumerate(self.users)}
        keys = [message.keys[i : i + PUBLIC_KEY_SIZE] for i in range(0, len(message.keys), PUBLIC_KEY_SIZE)]
        if len(set(keys)) != len(keys):
            raise InvalidKey("a public key occurs twice in the directory: every key must be fresh and belong to one user")
        self._keys = keys
        self.digest = digest("directory", params.digest, message.users, message.keys)

    def sealing_key(self, user: int) -> bytes:
        """Return the public key that shares for `user` are sealed with."""
        return self._keys[2 * self._place[user]]

    def mask_key(self, user: int) -> bytes:
        """Return the public key that masks with `user` are derived from."""
        return self._keys[2 * self._place[user] + 1]

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
    """The users who finished SHARE_KEYS, and the pattern among them."""

    def __init__(self, directory: Directory, users: Users) -> None:
        self.directory = directory
        self.users = users
        self._set = frozenset(users.tolist())
        if not all(user in directory for user in self._set):
            raise MalformedMessage("a member is not in the key directory")
        params = directory.params
        self.context = digest("members", directory.digest, encode_users(users, params.clients))
        self.pattern: Pattern = params.pattern_type(params.pattern_settings, users, self.context, directory.graph)

    def __contains__(self, user: int) -> bool:
        return user in self._set

    def owners(self, holder: int) -> Users:
        """Return the members whose secrets `holder` has a share of, itself included, sorted."""
        holders = self.directory.holders(holder)
        return holders[np.isin(holders, self.users)]
