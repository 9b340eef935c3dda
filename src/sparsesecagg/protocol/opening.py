"""Opening a sum: restore one secret per member from the shares in the UNMASK messages.

Who is in the sum is decided here, member by member: t shares of its private seed, and it is in; t shares of its mask
secret, and it is out; neither, and the group's round is lost. Every secret is checked against what its owner published,
so a false share is noticed instead of spoiling the sum, corrected where enough others are there, and its holder named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.decoding import restore
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.patterns.masks import Pair
from sparsesecagg.protocol.epoch import mask_private, seed_commitment
from sparsesecagg.protocol.header import Header
from sparsesecagg.protocol.messages import ShareKeys, Unmask, decode_users
from sparsesecagg.protocol.parameters import Parameters


@dataclass(frozen=True)
class Restored:
    """What the shares give. Users go by their indices."""

    seeds: Mapping[int, SharedSecret]
    """The private seed of each member that is in the sum."""
    agreements: Mapping[int, KeyAgreement]
    """Of each member that is out: its side of all agreements."""
    failed: tuple[int, ...]
    """Members neither of whose secrets could be restored."""
    false_shares: tuple[tuple[int, int], ...]
    """Holder and owner of shares that were found false. Which of the two is to blame can't be told from one: the
    holder may have sent, or the owner dealt, a false one."""

    def pairs(self, header: Header) -> list[Pair]:
        """Return the pairs of one that is in the sum and one that is out, with what they have agreed on."""
        epoch = header.epoch
        return [
            Pair(epoch.user(peer), epoch.user(gone), agreement.with_peer(header.mask_key[peer]))
            for gone, agreement in self.agreements.items()
            for peer in header.partners(gone).tolist()
            if peer in self.seeds
        ]


class _Shares:
    """All shares of a group's round: (members, holders, limbs), which there are, and which are of private seeds."""

    def __init__(self, header: Header, unmask: Mapping[int, Unmask]) -> None:
        size, members = len(header.epoch.group), header.members
        row_of = np.full(size, -1)
        row_of[members] = np.arange(len(members))
        self.holders = np.array(sorted(unmask), np.int64)
        self._elements = np.zeros((len(self.holders), len(members), shamir.LIMBS), np.uint64)
        self.present = np.zeros((len(members), len(self.holders)), np.bool_)
        self.of_seed = np.zeros_like(self.present)
        for column, holder in enumerate(self.holders.tolist()):
            message = unmask[holder]
            rows = row_of[decode_users(message.owners, size)]
            elements = shamir.decode_shares(message.shares)
            if elements is not None:  # Checked when it was received.
                self._elements[column, rows] = elements.reshape(-1, shamir.LIMBS)
            self.present[rows, column] = True
            survivors = row_of[decode_users(message.survivors, size)]
            self.of_seed[survivors[survivors >= 0], column] = True

    def restore(
        self, which: NDArray[np.bool_], params: Parameters, genuine: Callable[[int, bytes], bool]
    ) -> tuple[list[bytes | None], list[tuple[int, int]]]:
        """Restore secrets from some of the shares; return them, and (column, row) of false shares.

        Nobody is named whom as many colluders as the run is made for could have framed.
        """
        shares, present = self._elements.transpose(1, 0, 2), self.present & which
        found = restore(shares, self.holders, params.threshold, genuine, present, params.accusers)
        rows, columns = np.nonzero(found.false)
        return found.secrets, list(zip(columns.tolist(), rows.tolist(), strict=True))


def restore_secrets(
    header: Header, packages: Mapping[int, ShareKeys], uploaded: Collection[int], unmask: Mapping[int, Unmask]
) -> Restored:
    """Restore what can be restored; everything is by index."""
    epoch, number, params = header.epoch, header.round_number, header.epoch.params
    members: list[int] = header.members.tolist()
    shares = _Shares(header, unmask)
    has_uploaded = np.isin(header.members, list(uploaded))[:, None]
    agreements: dict[int, KeyAgreement] = {}

    def genuine_seed(row: int, found: bytes) -> bool:
        user = epoch.user(members[row])
        return seed_commitment(epoch, number, user, SharedSecret(found)) == packages[members[row]].commitment

    def genuine_mask_secret(row: int, found: bytes) -> bool:
        owner = members[row]
        agreement = KeyAgreement(mask_private(epoch, number, epoch.user(owner), SharedSecret(found)))
        if agreement.public != header.mask_key[owner]:
            return False
        agreements[owner] = agreement
        return True

    found, false = shares.restore(shares.of_seed & has_uploaded, params, genuine_seed)
    seeds = {owner: SharedSecret(each) for owner, each in zip(members, found, strict=True) if each is not None}
    is_out = np.array([owner not in seeds for owner in members])[:, None]
    _, more = shares.restore(~shares.of_seed & is_out, params, genuine_mask_secret)
    return Restored(
        seeds,
        agreements,
        tuple(owner for owner in members if owner not in seeds and owner not in agreements),
        tuple(sorted((int(shares.holders[column]), members[row]) for column, row in {*false, *more})),
    )
