"""The order of a round: what a user uploads, with whom, under which digest. The same computation on both sides.

The digest covers the epoch, the round, whose packages are used, the heads of all committees, the terms, and the chain
of everything that was declared before. Masks are derived under it and tags are made over it, so whoever was told
anything else masks apart from the others, and nobody opens it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.kdf import DIGEST_SIZE, digest
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE
from sparsesecagg.errors import InvalidKey
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.protocol.epoch import Epoch, number_bytes
from sparsesecagg.protocol.messages import VIEW_SIZE, encode_users

NO_TERMS = bytes(DIGEST_SIZE)


def mask_key_of(head: bytes) -> bytes:
    """Return the mask key of a head."""
    return head[:PUBLIC_KEY_SIZE]


def commitment_of(head: bytes) -> bytes:
    """Return the commitment to the private seed of a head."""
    return head[PUBLIC_KEY_SIZE:]


def extend_chain(chain: bytes, round_number: int, survivors: bytes) -> bytes:
    """Return the chain of declared survivors with one more round."""
    return digest("survivors", chain, number_bytes(round_number), survivors)


class OrderView:
    """A round as its order describes it, for one pod."""

    def __init__(self, epoch: Epoch, round_number: int, members: Users, terms: bytes, chain: bytes) -> None:
        self.epoch = epoch
        self.round_number = round_number
        self.members = members
        self._terms, self._chain = terms, chain
        self.is_member = np.zeros(len(epoch.pod), np.bool_)
        self.is_member[members] = True
        self.digest = b""

    def committee(self, number: int) -> NDArray[np.int64]:
        """Return the members of one of the pod's committees whose packages are used."""
        places = self.epoch.pod.committees[number]
        return places[self.is_member[places]]

    def heads_digest(self, number: int, heads: Mapping[int, bytes]) -> bytes:
        """Return the digest of the heads of a committee, whose keys must all differ."""
        places = self.committee(number).tolist()
        if len({mask_key_of(heads[place]) for place in places}) != len(places):
            raise InvalidKey("a mask key occurs twice in a committee: every key must be fresh and belong to one user")
        names = self.epoch.pod.users[places].astype("<u4").tobytes()
        return digest("heads", number_bytes(self.round_number), names, *(heads[place] for place in places))

    def settle(self, committees: bytes) -> None:
        """Compute the order's digest, given the digests of the heads of all committees."""
        self.digest = digest(
            "order",
            self.epoch.digest,
            number_bytes(self.round_number),
            encode_users(self.members, len(self.epoch.pod)),
            committees,
            self._terms,
            self._chain,
        )

    @property
    def view(self) -> bytes:
        """What every message of the round carries from UPLOAD on."""
        return self.digest[:VIEW_SIZE]

    def large_enough(self, number: int) -> bool:
        """Tell whether enough packages of a committee are used for its sum to be opened at all."""
        return len(self.committee(number)) >= self.epoch.min_survivors[number]

    def partners(self, place: int) -> Users:
        """Return the other members with whom a member exchanges shares and tags, sorted."""
        others = self.epoch.partners(place)
        return others[self.is_member[others]]

    def mask_peers(self, place: int) -> list[int]:
        """Return the members of its committee with whom a member shares a mask, sorted."""
        pod = self.epoch.pod
        others = self.partners(place)
        peers: list[int] = others[pod.committee_of[others] == pod.committee_of[place]].tolist()
        return peers

    def joined(self, places: set[int]) -> list[set[int]]:
        """Return the parts of a set of members that masks join; the server learns the sum of each part, no less.

        In a complete graph that is one part per committee.
        """
        if not self.epoch.params.neighbours:
            committee_of = self.epoch.pod.committee_of
            parts: dict[int, set[int]] = {}
            for place in places:
                parts.setdefault(int(committee_of[place]), set()).add(place)
            return list(parts.values())
        left, found = set(places), []
        while left:
            part, reached = set(), {left.pop()}
            while reached:
                place = reached.pop()
                part.add(place)
                near = left.intersection(self.mask_peers(place))
                left -= near
                reached |= near
            found.append(part)
        return found
