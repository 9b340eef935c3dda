"""All shares that an attacker has of a pod's secrets in a round, and what they restore.

An honest holder releases one share per owner: of the private seed, if it was told that the owner survived, otherwise
of the mask secret. A colluder gives both. Nobody counts here what was meant to be opened: a secret with enough shares
is known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum

import numpy as np

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.prime_field import Elements
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.errors import InvalidShare
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import ShareKeys, Unmask, decode_users
from sparsesecagg.protocol.order import OrderView, commitment_of, mask_key_of
from sparsesecagg.protocol.package import mask_private, seed_commitment


class Kind(IntEnum):
    """Which of an owner's two secrets; their order in a dealt pair."""

    MASK_SECRET = 0
    PRIVATE_SEED = 1


class Pool:
    """Shares by kind, owner and holder; all by place."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._shares: dict[tuple[Kind, int], dict[int, Elements]] = {}

    def add_released(self, holder: int, message: Unmask, told: Collection[int]) -> None:
        """Add what an honest holder released, given the survivors that it was told."""
        owners = decode_users(message.owners, len(self._epoch.pod)).tolist()
        shares = shamir.decode_shares(message.shares)
        assert shares is not None  # noqa: S101  # Honest users release what they were dealt.
        for owner, share in zip(owners, shares.reshape(-1, shamir.LIMBS), strict=True):
            kind = Kind.PRIVATE_SEED if owner in told else Kind.MASK_SECRET
            self._shares.setdefault((kind, owner), {})[holder] = share

    def add_dealt(self, holder: int, owner: int, pair: bytes) -> None:
        """Add both shares that an owner dealt to a colluding holder."""
        shares = shamir.decode_shares(pair)
        assert shares is not None  # noqa: S101
        for kind, share in zip(Kind, shares.reshape(-1, shamir.LIMBS), strict=True):
            self._shares.setdefault((kind, owner), {})[holder] = share

    def of(self, kind: Kind, owner: int) -> dict[int, Elements]:
        """Return the shares of one secret, by holder."""
        return self._shares.get((kind, owner), {})


def pooled_secrets(
    order: OrderView, owners: Sequence[int], packages: Mapping[int, ShareKeys], pool: Pool
) -> tuple[dict[int, SharedSecret], dict[int, SharedSecret]]:
    """Return every mask secret and every private seed of the owners for which the pool has enough shares."""
    return (
        _restored(Kind.MASK_SECRET, order, owners, packages, pool),
        _restored(Kind.PRIVATE_SEED, order, owners, packages, pool),
    )


def _restored(
    kind: Kind, order: OrderView, owners: Sequence[int], packages: Mapping[int, ShareKeys], pool: Pool
) -> dict[int, SharedSecret]:
    epoch, threshold = order.epoch, order.epoch.threshold
    enough = [owner for owner in owners if len(pool.of(kind, owner)) >= threshold]
    if not enough:
        return {}
    chosen = [sorted(pool.of(kind, owner).items())[:threshold] for owner in enough]
    shares = np.array([[share for _, share in each] for each in chosen], np.uint64)
    holders = np.array([[holder for holder, _ in each] for each in chosen], np.int64)
    found = {}
    for owner, secret in zip(enough, shamir.combine_each(shares, holders), strict=True):
        user, head = int(epoch.pod.users[owner]), packages[owner].head
        restored = SharedSecret(secret or b"")
        if kind is Kind.PRIVATE_SEED:
            right = seed_commitment(epoch, order.round_number, user, restored) == commitment_of(head)
        else:
            right = public_key(mask_private(epoch, order.round_number, user, restored)) == mask_key_of(head)
        if not right:
            raise InvalidShare(f"the shares of user {user} do not fit together")
        found[owner] = restored
    return found
