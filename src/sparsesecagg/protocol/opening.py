"""Opening sums: restore one secret per member of a pod from the shares in the UNMASK messages.

Every secret is checked against the head that its owner dealt, so a false share is noticed instead of spoiling the sum,
corrected where enough others are there, and its holder named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.decoding import restore
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.protocol.messages import ShareKeys, Unmask, decode_users
from sparsesecagg.protocol.order import OrderView, commitment_of, mask_key_of
from sparsesecagg.protocol.package import mask_private, seed_commitment
from sparsesecagg.protocol.work import Pair


@dataclass(frozen=True)
class Restored:
    """The private seed of each survivor, the mask secret of each other member, by place; missing if not restored."""

    secrets: Mapping[int, SharedSecret]
    agreements: Mapping[int, KeyAgreement]
    """By place of each member that dropped out: its side of all agreements. To parse a key takes as long as one."""
    false_shares: tuple[tuple[int, int], ...]
    """Holder and owner of shares that were found false. Which of the two is to blame can't be told: one may have sent,
    or the other dealt, a false one."""


def restore_secrets(
    order: OrderView,
    owners: Sequence[int],
    survived: set[int],
    packages: Mapping[int, ShareKeys],
    unmask: Mapping[int, Unmask],
) -> Restored:
    """Restore what can be restored; everything is by place."""
    pod, epoch = order.epoch.pod, order.epoch
    row_of = np.full(len(pod), -1)
    row_of[list(owners)] = np.arange(len(owners))
    holders = np.array(sorted(unmask), np.int64)
    by_holder = np.zeros((len(holders), len(owners), shamir.LIMBS), np.uint64)
    present = np.zeros((len(owners), len(holders)), np.bool_)
    for column, holder in enumerate(holders.tolist()):
        message = unmask[holder]
        rows = row_of[decode_users(message.owners, len(pod))]
        elements = shamir.decode_shares(message.shares)
        assert elements is not None  # noqa: S101  # Checked when it was received.
        wanted = rows >= 0
        by_holder[column, rows[wanted]] = elements.reshape(-1, shamir.LIMBS)[wanted]
        present[rows[wanted], column] = True

    agreements: dict[int, KeyAgreement] = {}

    def genuine(row: int, found: bytes) -> bool:
        owner, secret = owners[row], SharedSecret(found)
        user, head = int(pod.users[owner]), packages[owner].head
        if owner in survived:
            return seed_commitment(epoch, order.round_number, user, secret) == commitment_of(head)
        agreement = KeyAgreement(mask_private(epoch, order.round_number, user, secret))
        if agreement.public != mask_key_of(head):
            return False
        agreements[owner] = agreement
        return True

    restored = restore(by_holder.transpose(1, 0, 2), holders, epoch.threshold, genuine, present)
    false_rows, false_columns = np.nonzero(restored.false)
    return Restored(
        {owner: SharedSecret(each) for owner, each in zip(owners, restored.secrets, strict=True) if each is not None},
        agreements,
        tuple(sorted(zip(holders[false_columns].tolist(), np.array(owners)[false_rows].tolist(), strict=True))),
    )


def orphaned_pairs(
    order: OrderView,
    committee: int,
    survived: set[int],
    secrets: Mapping[int, SharedSecret],
    packages: Mapping[int, ShareKeys],
    agreements: Mapping[int, KeyAgreement] | None = None,
) -> list[Pair]:
    """Return the pairs of a survivor and a dropped member of a committee, with what they have agreed on.

    `agreements` are those that follow from the `secrets` of dropped members, as far as they are known already.
    """
    users = order.epoch.pod.users
    pairs = []
    for dropped in order.committee(committee).tolist():
        if dropped in survived:
            continue
        agreement = (agreements or {}).get(dropped) or KeyAgreement(
            mask_private(order.epoch, order.round_number, int(users[dropped]), secrets[dropped])
        )
        pairs += [
            Pair(int(users[peer]), int(users[dropped]), agreement.with_peer(mask_key_of(packages[peer].head)))
            for peer in order.mask_peers(dropped)
            if peer in survived
        ]
    return pairs
