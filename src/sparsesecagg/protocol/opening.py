"""Opening the sum: restore one secret per member, then list the masks that are still in the sum.

What is left in the sum of the uploads are the private masks of the survivors and the masks that survivors share with
those who dropped out; all others have cancelled. Everything here works on messages that the server has checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import PrivateKey, PrivateSeed
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.errors import InvalidShare, ThresholdNotMet
from sparsesecagg.protocol.locations import decode_locations
from sparsesecagg.protocol.masking import Mask, pair_seeds, private_mask_seed
from sparsesecagg.protocol.membership import Members, seed_commitment
from sparsesecagg.protocol.messages import ShareKeys, Unmask, decode_users
from sparsesecagg.protocol.stages import Stage

Secrets = dict[int, PrivateSeed | PrivateKey]
"""The private seed of each survivor, the private mask key of each dropped member."""


def restore_secrets(
    members: Members, survivors: set[int], shared: Mapping[int, ShareKeys], unmask: Mapping[int, Unmask]
) -> Secrets:
    """Restore one secret per member from the shares in the UNMASK messages.

    Owners with the same first `threshold` holders are combined together. Every secret is checked against what its
    owner published, so a false share is noticed instead of spoiling the sum.
    """
    params = members.directory.params
    collected: dict[int, list[tuple[int, NDArray[np.uint64]]]] = {user: [] for user in members.users.tolist()}
    for holder, message in sorted(unmask.items()):
        elements = shamir.decode_shares(message.shares)
        if elements is None:
            raise InvalidShare(f"user {holder} sends a share outside the field")
        rows = elements.reshape(-1, shamir.LIMBS)
        for owner, row in zip(decode_users(message.owners, params.clients).tolist(), rows, strict=True):
            if len(collected[owner]) < params.threshold:
                collected[owner].append((holder, row))

    groups: dict[tuple[int, ...], list[int]] = {}
    for owner, shares in collected.items():
        if len(shares) < params.threshold:
            raise ThresholdNotMet(Stage.UNMASK.name, len(shares), params.threshold)
        groups.setdefault(tuple(holder for holder, _ in shares), []).append(owner)

    secrets: Secrets = {}
    for holders, owners in groups.items():
        stacked = np.stack([np.stack([row for _, row in collected[owner]]) for owner in owners])
        for owner, found in zip(owners, shamir.combine(stacked, holders), strict=True):
            secret = _genuine(found, owner, members, shared[owner] if owner in survivors else None)
            if secret is None:
                raise InvalidShare(
                    f"the shares of user {owner}'s secret do not fit together: a holder or the owner gave a false one"
                )
            secrets[owner] = secret
    return secrets


def remaining_masks(members: Members, secrets: Secrets, locations: Mapping[int, bytes]) -> Iterator[Mask]:
    """Make the masks that are left in the sum, with the signs that remove them, one by one.

    `locations` are the coded coordinates of each survivor, for a pattern that is not public.
    """
    survivors = {user for user, secret in secrets.items() if isinstance(secret, PrivateSeed)}
    for user, secret in secrets.items():
        if isinstance(secret, PrivateSeed):
            yield _private_mask(members, user, secret, locations)
        else:
            yield from _orphaned_masks(members, user, secret, survivors)


def _genuine(
    found: bytes | None, owner: int, members: Members, shared: ShareKeys | None
) -> PrivateSeed | PrivateKey | None:
    """Return the secret as what it is, if it is the one its owner committed to; `shared` only for survivors."""
    if found is None:
        return None
    if shared is not None:
        seed = PrivateSeed(found)
        return seed if seed_commitment(members.directory.params, owner, seed) == shared.seed_commitment else None
    key = PrivateKey(found)
    return key if public_key(key) == members.directory.mask_key(owner) else None


def _private_mask(members: Members, user: int, seed: PrivateSeed, locations: Mapping[int, bytes]) -> Mask:
    params = members.directory.params
    if members.pattern.public:
        rows = members.pattern.selected(user, [])
    else:
        rows = decode_locations(locations[user], params.dim)
    return Mask(MaskStream(private_mask_seed(seed, members.context, user), params.word), rows, positive=False)


def _orphaned_masks(members: Members, user: int, private: PrivateKey, survivors: set[int]) -> list[Mask]:
    """Return the masks that survivors share with a dropped user."""
    peers = [peer for peer in members.pattern.peers(user) if peer in survivors]
    agreement = KeyAgreement(private)
    agreed = [agreement.with_peer(members.directory.mask_key(peer)) for peer in peers]
    seeds = [pair_seeds(secret, members.context, user, peer) for peer, secret in zip(peers, agreed, strict=True)]
    shared = members.pattern.shared(user, peers, [pattern_seed for _, pattern_seed in seeds])
    word = members.directory.params.word
    # The survivor added its mask if its number is the smaller one; now it is taken away.
    return [
        Mask(MaskStream(mask_seed, word), rows, positive=peer > user)
        for peer, (mask_seed, _), rows in zip(peers, seeds, shared, strict=True)
    ]
