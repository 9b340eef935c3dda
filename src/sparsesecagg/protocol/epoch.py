"""An epoch: the groups as they were drawn, and the sealing keys of one pod. Normally there is one per run.

Parameters, draw and keys go into the epoch's digest, and all secrets of pairs are derived under it, so two users who
were told different groups or keys have nothing in common: no share opens, no tag fits.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE
from sparsesecagg.errors import InvalidKey
from sparsesecagg.patterns import Pod
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.protocol.messages import VIEW_SIZE, EpochKeys, decode_users, pieces
from sparsesecagg.protocol.parameters import Parameters


class Epoch:
    """One pod in one epoch, as its members and the server know it."""

    def __init__(self, params: Parameters, message: EpochKeys, seed: bytes, pod: Pod) -> None:
        self.params = params
        self.number = message.round_number
        self.first_round = message.first_round
        self.pod = pod
        self.present: Users = decode_users(message.present, len(pod))
        """The places of those who advertised a key."""
        keys = pieces(message.keys, len(self.present), PUBLIC_KEY_SIZE, "the sealing keys")
        if len(set(keys)) != len(keys):
            raise InvalidKey("a sealing key occurs twice: every key must be fresh and belong to one user")
        self._key_of: dict[int, bytes] = dict(zip(self.present.tolist(), keys, strict=True))
        self.digest = digest(
            "epoch",
            params.digest,
            number_bytes(self.number),
            number_bytes(self.first_round),
            seed,
            number_bytes(pod.index),
            message.present,
            message.keys,
        )
        self._partners: dict[int, Users] = {}
        """By place, once asked for: a client asks for its own, and ten thousand simulated ones fill the memory else."""
        self.threshold = params.threshold_of(len(pod))
        self.min_survivors = [params.survivors_of(len(members)) for members in pod.committees]

    @property
    def view(self) -> bytes:
        """What packages and orders carry."""
        return self.digest[:VIEW_SIZE]

    def __contains__(self, place: int) -> bool:
        return place in self._key_of

    def sealing_key(self, place: int) -> bytes:
        """Return the public key of a member that advertised one."""
        return self._key_of[place]

    def partners(self, place: int) -> Users:
        """Return the others with whom a member exchanges shares and tags, sorted."""
        found = self._partners.get(place)
        if found is None:
            others = self.pod.graph.neighbours(place)
            found = self._partners[place] = others[self._is_present[others]]
        return found

    @cached_property
    def _is_present(self) -> NDArray[np.bool_]:
        flags = np.zeros(len(self.pod), np.bool_)
        flags[self.present] = True
        return flags

    def holders(self, place: int) -> Users:
        """Return who holds shares of a member's secrets: its partners and itself, sorted."""
        return np.sort(np.append(self.partners(place), place))


def number_bytes(number: int) -> bytes:
    """Return a number as digests take it."""
    return number.to_bytes(8, "little")
