"""Packages: what a user deals ahead of a round. A fresh mask key, a commitment, and sealed shares of two secrets.

Two secrets of 16 bytes with no common parent: one that the mask key comes from, one for the private mask. A package is
bound to its epoch, round and owner through the pairs' secrets that seal it, and needs no answer before it is made.
Shares are sealed under the pair's secret of the round and not under the head as well: a user deals one package per
round, so no second head exists that a share could be put beside.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.kdf import derive, digest
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import (
    SECRET_SIZE,
    Entropy,
    PrivateKey,
    RoundSecret,
    Secret,
    SecretShares,
    SharedSecret,
)
from sparsesecagg.protocol.epoch import Epoch, number_bytes
from sparsesecagg.protocol.messages import ShareKeys, encode, user_number

AHEAD = 2
"""A package travels at most so many rounds ahead, so that who misses one round is still a member of the next."""


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner of a package keeps until its round is over."""

    message: bytes
    """The encoded `ShareKeys`: sent again, if at all, as these bytes."""
    head: bytes
    mask_secret: SharedSecret
    private_seed: SharedSecret
    own_shares: SecretShares
    """The owner's own shares of both."""

    def spent(self) -> Package:
        """Return the package without what is of no use after UPLOAD, such as the two secrets; the own shares stay."""
        return msgspec.structs.replace(self, message=b"", mask_secret=SharedSecret(b""), private_seed=SharedSecret(b""))


def deal(epoch: Epoch, round_number: int, place: int, secrets: Mapping[int, RoundSecret], entropy: Entropy) -> Package:
    """Deal the package of a round; `secrets` are those of the round with each partner, by place."""
    mask_secret = SharedSecret(entropy(shamir.SECRET_SIZE))
    private_seed = SharedSecret(entropy(shamir.SECRET_SIZE))
    user = int(epoch.pod.users[place])
    head = public_key(mask_private(epoch, round_number, user, mask_secret)) + seed_commitment(
        epoch, round_number, user, private_seed
    )
    holders = epoch.holders(place)
    both = [mask_secret.reveal(), private_seed.reveal()]
    shares = shamir.split(both, holders, epoch.threshold, Secret(entropy(SECRET_SIZE)))
    plain = np.ascontiguousarray(shares, "<u4").reshape(len(holders), -1)
    sealed, own = [], b""
    for holder, row in zip(holders.tolist(), plain, strict=True):
        if holder == place:
            own = row.tobytes()
        else:
            sealed.append(sealing.seal(secrets[holder], user, int(epoch.pod.users[holder]), row.tobytes()))
    message = ShareKeys(round_number, epoch.view, user_number(user), head, b"".join(sealed))
    return Package(
        message=encode(message),
        head=head,
        mask_secret=mask_secret,
        private_seed=private_seed,
        own_shares=SecretShares(own),
    )


def open_pair(epoch: Epoch, owner: int, holder: int, sealed: bytes, secret: RoundSecret) -> bytes | None:
    """Return the two shares that `owner` dealt to `holder`, or None if they do not open."""
    users = epoch.pod.users
    plain = sealing.unseal(secret, int(users[owner]), int(users[holder]), sealed)
    return plain if plain is not None and shamir.are_shares(plain) else None


def mask_private(epoch: Epoch, round_number: int, user: int, secret: SharedSecret) -> PrivateKey:
    """Return the private mask key; run, round and user are in it, so that a guess tests one target."""
    names = number_bytes(round_number) + user_number(user)
    return PrivateKey(derive(secret.reveal(), "mask key", epoch.params.run, names))


def seed_commitment(epoch: Epoch, round_number: int, user: int, seed: SharedSecret) -> bytes:
    """Return the hash by which a user commits to its private seed, so that a wrong restoration is noticed."""
    return digest("private seed", epoch.params.run, number_bytes(round_number), user_number(user), seed.reveal())
