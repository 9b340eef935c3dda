"""The header of a round: who takes part, for what, under which digest. The same computation on both sides.

The digest covers the epoch, the round, whose key packages are used, their mask keys, and the context. Masks are derived
under it and tags are made over it, so a user that was told anything else has no masks in common with the others, and
its upload stays masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.constant_time import bytes_eq

from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.kdf import DIGEST_SIZE, digest
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE
from sparsesecagg.crypto.secrets import RoundSecret
from sparsesecagg.errors import InvalidKey
from sparsesecagg.patterns.base import MaskedSum
from sparsesecagg.patterns.groups import Users
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import BINDING_SIZE, RoundHeader, decode_users, number_bytes, pieces

NO_CONTEXT = bytes(DIGEST_SIZE)
_TAG = "header tag"


class Header:
    """A round as its header describes it, for one group. Users go by their indices."""

    def __init__(self, epoch: Epoch, message: RoundHeader) -> None:
        self.epoch = epoch
        self.round_number = message.round_number
        self.context = message.context
        self.members: Users = decode_users(message.members, len(epoch.group))
        self.is_member = np.zeros(len(epoch.group), np.bool_)
        self.is_member[self.members] = True
        keys = pieces(message.mask_keys, len(self.members), PUBLIC_KEY_SIZE, "the mask keys")
        if len(set(keys)) != len(keys):
            raise InvalidKey("a mask key occurs twice: every key must be fresh and belong to one user")
        self.mask_key: dict[int, bytes] = dict(zip(self.members.tolist(), keys, strict=True))
        self.digest = digest(
            "header",
            epoch.digest,
            number_bytes(message.round_number),
            message.members,
            message.mask_keys,
            message.context,
        )
        self.binding = self.digest[:BINDING_SIZE]
        """What every message of the round carries from UPLOAD on."""

    def partners(self, index: int) -> Users:
        """Return the other members with whom a member exchanges masks, shares and tags, sorted."""
        others = self.epoch.partners(index)
        return others[self.is_member[others]]

    def masked_sum(self) -> MaskedSum:
        """Return the sum of this group in this round, as the pattern has it."""
        epoch = self.epoch
        return epoch.params.shape.masked_sum(epoch.group.number, self.round_number, epoch.seed, self.digest)

    def components(self, indices: set[int]) -> list[set[int]]:
        """Return the parts of a set of members that masks join: the server learns the sum of each part, no less.

        In a complete graph that is one part.
        """
        if not self.epoch.params.neighbours:
            return [set(indices)] if indices else []
        left, found = set(indices), []
        while left:
            part, reached = set(), {left.pop()}
            while reached:
                index = reached.pop()
                part.add(index)
                near = left.intersection(self.partners(index).tolist())
                left -= near
                reached |= near
            found.append(part)
        return found


class Tags:
    """How users of a group show each other which header they work under, without a signature.

    A tag is made with the pair's secret of the round and names its sender and its receiver, so a server can neither
    make one nor return a holder's own as somebody else's.
    """

    def __init__(self, header: Header, index: int, secrets: Mapping[int, RoundSecret]) -> None:
        self._header, self._index, self._secrets = header, index, secrets

    def make(self, receivers: Sequence[int]) -> bytes:
        """Return this user's tags for some others, one behind the other."""
        epoch = self._header.epoch
        user, statement = epoch.user(self._index), self._header.digest
        return b"".join(sealing.tag(self._secrets[each], _TAG, user, epoch.user(each), statement) for each in receivers)

    def valid(self, sender: int, tag: bytes) -> bool:
        """Tell whether another user made this tag for this one, over this header."""
        secret, epoch = self._secrets.get(sender), self._header.epoch
        if secret is None:
            return False
        return bytes_eq(
            tag, sealing.tag(secret, _TAG, epoch.user(sender), epoch.user(self._index), self._header.digest)
        )
