"""An epoch: one group as it was drawn, the sealing keys of its users, key packages; and the header of a round in it.

Parameters, seed and keys go into the epoch's digest, and all secrets of pairs are derived under it, so two users who
were told different groups or keys have nothing in common: no share opens, no tag fits. Every pair agrees once and
hashes on for each round (a ratchet): what a round needs is taken from the ratchets when its key package is made, and
nothing that is left gives the secrets of rounds before.

A header says who takes part in a round, and for what. Its digest covers the epoch, the round, whose key packages are
used, their mask keys, and the context. Masks are derived under it and tags are made over it, so a user that was told
anything else has no masks in common with the others, and its upload stays masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.crypto.kdf import DIGEST_SIZE, derive, digest
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE, KeyAgreement, public_key
from sparsesecagg.crypto.sealing import PairCipher
from sparsesecagg.crypto.secrets import (
    SECRET_SIZE,
    Entropy,
    PairRatchets,
    PrivateKey,
    RoundSecrets,
    Secret,
    SecretShares,
    SharedSecret,
)
from sparsesecagg.errors import InvalidKey, WrongStage
from sparsesecagg.patterns.base import MaskedSum
from sparsesecagg.patterns.groups import Group, Users
from sparsesecagg.protocol import messages
from sparsesecagg.protocol.messages import EpochKeys, RoundHeader, ShareKeys, encode, number_bytes, user_number
from sparsesecagg.protocol.parameters import Parameters

NO_CONTEXT = bytes(DIGEST_SIZE)
AHEAD = 2
"""A key package travels at most so many rounds ahead, so that who misses one round is still a member of the next."""


class Epoch:
    """One group in one epoch, as its users and the server know it."""

    def __init__(self, params: Parameters, message: EpochKeys, seed: bytes, group: Group) -> None:
        self.params = params
        self.number = message.round_number
        self.first_round = message.first_round
        self.seed = seed
        self.group = group
        self.present: Users = messages.decode_users(message.present, len(group))
        """The indices of those who advertised a key."""
        keys = messages.pieces(message.keys, len(self.present), PUBLIC_KEY_SIZE, "the sealing keys")
        if len(set(keys)) != len(keys):
            raise InvalidKey("a sealing key occurs twice: every key must be fresh and belong to one user")
        self._keys = message.keys
        self.is_present = np.zeros(len(group), np.bool_)
        self.is_present[self.present] = True
        self._partners: dict[int, Users] = {}
        """By index, once asked for: a client asks for its own, and ten thousand simulated ones fill the memory else."""
        self.digest = digest(
            "epoch",
            params.digest,
            number_bytes(self.number),
            number_bytes(self.first_round),
            seed,
            number_bytes(group.number),
            message.present,
            message.keys,
        )
        self.binding = self.digest[: messages.BINDING_SIZE]
        """What key packages and headers carry."""

    @staticmethod
    def of_user(params: Parameters, message: EpochKeys, roster: Roster | None, user: int) -> Epoch:
        """Return the epoch of the group that a user is in."""
        seed = params.epoch_seed(message.round_number, roster)
        return Epoch(params, message, seed, params.draw(seed).of(user))

    @property
    def sealing_key(self) -> dict[int, bytes]:
        """The keys, by index: put together when they are asked for, which is once."""
        keys = messages.pieces(self._keys, len(self.present), PUBLIC_KEY_SIZE, "the sealing keys")
        return dict(zip(self.present.tolist(), keys, strict=True))

    def user(self, index: int) -> int:
        """Return a user's number."""
        return self.group.numbers[index]

    def partners(self, index: int) -> Users:
        """Return the others with whom a user exchanges shares and tags, sorted."""
        found = self._partners.get(index)
        if found is None:
            others = self.group.graph.neighbours(index)
            found = self._partners[index] = others[self.is_present[others]]
        return found

    def holders(self, index: int) -> Users:
        """Return who holds shares of a user's secrets: its partners and itself, sorted."""
        return np.sort(np.append(self.partners(index), index))

    def ratchets(self, index: int, private: PrivateKey, identity: Identity | None) -> PairRatchets:
        """Agree with each partner; return the ratchets, in order."""
        agreement, user, started, sealing_key = KeyAgreement(private), self.user(index), b"", self.sealing_key
        for partner in self.partners(index).tolist():
            peer = self.user(partner)
            agreed = agreement.with_peer(sealing_key[partner]).reveal()
            if identity:
                agreed += identity.secret_with(peer).reveal()  # Only the owner of the peer's identity knows this.
            started += sealing.pair_ratchet(agreed, self.digest, user, peer)
        return PairRatchets(started)

    def ciphers(self, index: int, secrets: RoundSecrets) -> dict[int, PairCipher]:
        """Return a user's ciphers of a round, by partner."""
        return dict(zip(self.partners(index).tolist(), sealing.ciphers(secrets), strict=True))


class Unspent(msgspec.Struct, frozen=True):
    """What a key package needs until its owner has uploaded."""

    message: bytes
    """The encoded `ShareKeys`: sent again, if at all, as these bytes."""
    mask_secret: SharedSecret
    private_seed: SharedSecret


class KeyPackage(msgspec.Struct, frozen=True):
    """What the owner of a key package keeps until its round is over.

    A fresh mask key, a commitment, and sealed shares of two secrets of 16 bytes with no common parent: one that the
    mask key comes from, one for the private mask. It is bound to its epoch, round and owner through the pairs' secrets
    that seal it, and needs no answer before it is made. One is made per round, so no second mask key exists that a
    share could be put beside.
    """

    mask_key: bytes
    own_shares: SecretShares
    """The owner's own shares of both secrets."""
    unspent: Unspent | None
    """None once the upload was made."""

    def for_upload(self) -> Unspent:
        """Return what an upload takes; raise if it was made already."""
        if self.unspent is None:
            raise WrongStage("upload", "UNMASK: the key package was used")
        return self.unspent

    def spent(self) -> KeyPackage:
        """Return the package as it is after UPLOAD."""
        return msgspec.structs.replace(self, unspent=None)


def make_package(
    epoch: Epoch, round_number: int, index: int, ciphers: Mapping[int, PairCipher], entropy: Entropy
) -> KeyPackage:
    """Make the key package of a round; `ciphers` are those of the round, by partner."""
    mask_secret = SharedSecret(entropy(shamir.SECRET_SIZE))
    private_seed = SharedSecret(entropy(shamir.SECRET_SIZE))
    user = epoch.user(index)
    mask_key = public_key(mask_private(epoch, round_number, user, mask_secret))
    holders = epoch.holders(index)
    both = [mask_secret.reveal(), private_seed.reveal()]
    shares = shamir.split(both, holders, epoch.params.threshold, Secret(entropy(SECRET_SIZE)))
    dealt = messages.pieces(shamir.encode_shares(shares), len(holders), 2 * shamir.SHARE_SIZE, "the shares")
    plain = dict(zip(holders.tolist(), dealt, strict=True))
    own = SecretShares(plain.pop(index))
    sealed = b"".join([sealing.seal(ciphers[each], user, epoch.user(each), plain[each]) for each in plain])
    commitment = seed_commitment(epoch, round_number, user, private_seed)
    message = ShareKeys(round_number, epoch.binding, user_number(user), mask_key, commitment, sealed)
    return KeyPackage(mask_key, own, Unspent(encode(message), mask_secret, private_seed))


def open_pair(epoch: Epoch, owner: int, holder: int, sealed: bytes, cipher: PairCipher) -> bytes | None:
    """Return the two shares that `owner` dealt to `holder`, or None if they do not open."""
    return sealing.unseal(cipher, epoch.user(owner), epoch.user(holder), sealed)


def mask_private(epoch: Epoch, round_number: int, user: int, secret: SharedSecret) -> PrivateKey:
    """Return the private mask key; run, round and user are in it, so that a guess tests one target."""
    names = number_bytes(round_number) + user_number(user)
    return PrivateKey(derive(secret.reveal(), "mask key", epoch.params.run, names))


def seed_commitment(epoch: Epoch, round_number: int, user: int, seed: SharedSecret) -> bytes:
    """Return the hash by which a user commits to its private seed, so that a wrong restoration is noticed."""
    return digest("private seed", epoch.params.run, number_bytes(round_number), user_number(user), seed.reveal())


class Header:
    """A round as its header describes it, for one group. Users go by their indices."""

    def __init__(self, epoch: Epoch, message: RoundHeader) -> None:
        self.epoch = epoch
        self.round_number = message.round_number
        self.context = message.context
        self.members: Users = messages.decode_users(message.members, len(epoch.group))
        self.is_member = np.zeros(len(epoch.group), np.bool_)
        self.is_member[self.members] = True
        keys = messages.pieces(message.mask_keys, len(self.members), PUBLIC_KEY_SIZE, "the mask keys")
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
        self.binding = self.digest[: messages.BINDING_SIZE]
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

    def __init__(self, header: Header, index: int, ciphers: Mapping[int, PairCipher]) -> None:
        self._header, self._index, self._ciphers = header, index, ciphers

    def make(self, receivers: Sequence[int]) -> bytes:
        """Return this user's tags for some others, one behind the other."""
        epoch = self._header.epoch
        user, statement = epoch.user(self._index), self._header.digest
        return b"".join([sealing.tag(self._ciphers[each], user, epoch.user(each), statement) for each in receivers])

    def valid(self, sender: int, tag: bytes) -> bool:
        """Tell whether another user made this tag for this one, over this header."""
        cipher, epoch = self._ciphers.get(sender), self._header.epoch
        if cipher is None:
            return False
        return sealing.is_tag(cipher, epoch.user(sender), epoch.user(self._index), self._header.digest, tag)
