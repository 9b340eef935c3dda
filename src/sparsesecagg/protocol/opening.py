"""Opening a sum: restore one secret per member from the shares in the UNMASK messages.

Who is in the sum is decided here, member by member: t shares of its private seed, and it is in; t shares of its mask
secret, and it is out; neither, and the group's round is lost. Every secret is checked against what its owner published,
so a false share is noticed instead of spoiling the sum, corrected where enough others are there, and its holder named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.decoding import restore
from sparsesecagg.crypto.keys import KeyAgreement, parsed
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.patterns.masks import Pair
from sparsesecagg.protocol.epoch import Header, mask_private, seed_commitment
from sparsesecagg.protocol.messages import ShareKeys, Unmask, decode_users


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
        epoch, keys = header.epoch, {peer: parsed(header.mask_key[peer]) for peer in self.seeds}
        return [
            Pair(epoch.user(peer), epoch.user(gone), agreement.with_peer(keys[peer]))
            for gone, agreement in self.agreements.items()
            for peer in header.partners(gone).tolist()
            if peer in self.seeds
        ]


def restore_secrets(
    header: Header, packages: Mapping[int, ShareKeys], uploaded: Collection[int], unmask: Mapping[int, Unmask]
) -> Restored:
    """Restore what can be restored; everything is by index."""
    epoch, number, params = header.epoch, header.round_number, header.epoch.params
    size, members, holders = len(epoch.group), header.members.tolist(), np.array(sorted(unmask), np.int64)
    row_of = np.full(size, -1)
    row_of[header.members] = np.arange(len(members))
    shares = np.zeros((len(members), len(holders), shamir.LIMBS), np.uint64)
    present = np.zeros((len(members), len(holders)), np.bool_)
    of_seed = np.zeros_like(present)
    for column, holder in enumerate(holders.tolist()):
        rows = row_of[decode_users(unmask[holder].owners, size)]
        elements = shamir.decode_shares(unmask[holder].shares)
        if elements is None:
            continue  # Such a message is refused when it is received.
        shares[rows, column] = elements.reshape(-1, shamir.LIMBS)
        present[rows, column] = True
        survivors = row_of[decode_users(unmask[holder].survivors, size)]
        of_seed[survivors[survivors >= 0], column] = True
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

    # Nobody is named whom as many colluders as the run is made for could have framed.
    has_uploaded = np.isin(header.members, list(uploaded))[:, None]
    which = present & of_seed & has_uploaded
    private = restore(shares, holders, params.threshold, genuine_seed, which, params.accusers)
    is_out = np.array([each is None for each in private.secrets])[:, None]
    which = present & ~of_seed & is_out
    mask = restore(shares, holders, params.threshold, genuine_mask_secret, which, params.accusers)
    restored = zip(members, private.secrets, strict=True)
    seeds = {owner: SharedSecret(each) for owner, each in restored if each is not None}
    rows, columns = np.nonzero(private.false | mask.false)
    return Restored(
        seeds,
        agreements,
        tuple(owner for owner in members if owner not in seeds and owner not in agreements),
        tuple(sorted((int(holders[column]), members[row]) for row, column in zip(rows, columns, strict=True))),
    )
