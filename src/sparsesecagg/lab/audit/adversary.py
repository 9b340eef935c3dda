"""A server that lies to one group in one round, and all that it and its colluders hold of it.

What it says: a header that leaves users out or has other keys, requests for shares with other survivors or bad tags.
What it hears: uploads, and shares that honest holders release. Colluders hand over their whole state. What follows:
every secret of which there are enough shares from any source, and every sum that is left without an unknown mask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import IntEnum

import msgspec
import numpy as np

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.crypto.secrets import AgreedSecret, PrivateKey, SharedSecret
from sparsesecagg.crypto.shamir import Elements
from sparsesecagg.errors import InvalidShare
from sparsesecagg.patterns.base import GroupSum
from sparsesecagg.patterns.masks import Pair
from sparsesecagg.protocol.epoch import NO_CONTEXT, Epoch, Header, Tags, mask_private, open_pair, seed_commitment
from sparsesecagg.protocol.ledger import ClientState
from sparsesecagg.protocol.messages import (
    SEALED_SIZE,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    decode_users,
    encode_users,
    number_bytes,
    pieces,
)
from sparsesecagg.protocol.server_group import GroupRound


class Kind(IntEnum):
    """Which of an owner's two secrets; their order in a pair of shares."""

    MASK_SECRET = 0
    PRIVATE_SEED = 1


class Adversary:
    """Server and colluders, in one group and one round. Users go by their indices."""

    def __init__(
        self,
        epoch: Epoch,
        round_number: int,
        packages: Mapping[int, ShareKeys],
        colluders: Mapping[int, ClientState] | None = None,
    ) -> None:
        """`colluders` are their states before UPLOAD."""
        self.epoch, self.round_number, self.packages = epoch, round_number, packages
        self._states = dict(colluders or {})
        self.colluders = set(self._states)
        self.uploads: dict[int, Upload] = {}
        self.header_of: dict[int, Header] = {}  # The header that each upload was made under.
        self.seeds: dict[int, SharedSecret] = {}  # Private seeds that are known, by owner.
        self.mask_secrets: dict[int, SharedSecret] = {}
        self._forged: dict[bytes, KeyAgreement] = {}  # The server's own mask keys, by their public halves.
        self._shares: dict[tuple[Kind, int], dict[int, Elements]] = {}
        for index, state in self._states.items():
            self._collude(index, state)

    # What it says

    def show(
        self, *, without: Collection[int] = (), context: bytes = NO_CONTEXT, forged: Collection[int] = ()
    ) -> GroupRound:
        """Return a round as it may be presented: some users left out, some with mask keys of the server's own."""
        packages = {index: each for index, each in self.packages.items() if index not in without}
        for index in forged:
            private = PrivateKey(digest("forged", number_bytes(index)))
            key = public_key(private)
            self._forged[key] = KeyAgreement(private)
            packages[index] = msgspec.structs.replace(packages[index], mask_key=key)
        shown = GroupRound(self.epoch, self.round_number, packages, context)
        shown.lost = ""  # Whether there are enough users is for them to find out.
        return shown

    def request(
        self, header: Header, holder: int, survivors: Collection[int], tags: Mapping[int, bytes] | None = None
    ) -> UnmaskRequest:
        """Return what asks a holder for shares: these survived, each with the tag of its upload or one given here."""
        partners = [each for each in header.partners(holder).tolist() if each in survivors]
        shown = [(tags or {}).get(each) or self.tag(each, holder) for each in partners]
        bitmap = encode_users(np.array(sorted(survivors), np.int64), len(self.epoch.group))
        return UnmaskRequest(self.round_number, header.binding, bitmap, b"".join(shown))

    def tag(self, sender: int, receiver: int) -> bytes:
        """Return the tag that a colluder makes, or that came with an upload; zeros if there is none."""
        if sender in self.colluders and receiver in self.header_of:
            ciphers = self.epoch.ciphers(sender, self._states[sender].secrets[self.round_number])
            return Tags(self.header_of[receiver], sender, ciphers).make([receiver])
        partners = self.header_of[sender].partners(sender).tolist() if sender in self.uploads else []
        if receiver not in partners:
            return bytes(TAG_SIZE)
        return pieces(self.uploads[sender].tags, len(partners), TAG_SIZE, "the tags")[partners.index(receiver)]

    # What it hears

    def take_upload(self, index: int, header: Header, upload: Upload) -> None:
        """Keep an upload, and the header that it was made under."""
        self.uploads[index], self.header_of[index] = upload, header

    def take_shares(self, holder: int, message: Unmask) -> None:
        """Keep what a holder releases: of its own survivors the private seed, of all others the mask secret."""
        survivors, owners = (decode_users(each, len(self.epoch.group)) for each in (message.survivors, message.owners))
        for owner, share in zip(owners.tolist(), _elements(message.shares), strict=True):
            self._shares.setdefault((Kind(owner in survivors), owner), {})[holder] = share

    def _collude(self, index: int, state: ClientState) -> None:
        """Take over a colluder: its own mask secret, and both shares of everybody who dealt it some."""
        number = self.round_number
        if number in state.packages:
            self.mask_secrets[index] = state.packages[number].for_upload().mask_secret
        ciphers = self.epoch.ciphers(index, state.secrets[number]) if number in state.secrets else {}
        for owner, cipher in ciphers.items():
            if owner not in self.packages:
                continue
            place = int(np.searchsorted(self.epoch.partners(owner), index))
            sealed = self.packages[owner].shares[SEALED_SIZE * place : SEALED_SIZE * (place + 1)]
            pair = open_pair(self.epoch, owner, index, sealed, cipher)
            if pair is not None:
                for kind, share in zip(Kind, _elements(pair), strict=True):
                    self._shares.setdefault((kind, owner), {})[index] = share

    # What follows

    def restore(self) -> None:
        """Restore every secret of which there are enough shares."""
        for (kind, owner), held in self._shares.items():
            known = self.mask_secrets if kind is Kind.MASK_SECRET else self.seeds
            holders = sorted(held)[: self.epoch.params.threshold]
            if owner in known or len(holders) < self.epoch.params.threshold:
                continue
            shares = np.array([[held[holder] for holder in holders]], np.uint64)
            found = SharedSecret(shamir.combine(shares, tuple(holders))[0] or b"")
            if not self._genuine(kind, owner, found):
                raise InvalidShare(f"the shares of user {self.epoch.user(owner)} do not fit together")
            known[owner] = found

    def _genuine(self, kind: Kind, owner: int, secret: SharedSecret) -> bool:
        user, package = self.epoch.user(owner), self.packages[owner]
        if kind is Kind.PRIVATE_SEED:
            return seed_commitment(self.epoch, self.round_number, user, secret) == package.commitment
        return public_key(self._private(owner, secret)) == package.mask_key

    def sums(self) -> list[set[int]]:
        """Return the honest users of each sum that can be read: only mask secrets that nobody knows hide any."""
        found: list[set[int]] = []
        for header in {each.digest: each for each in self.header_of.values()}.values():
            honest = set(header.members.tolist()) - self.colluders
            hidden = honest.difference(self.mask_secrets)
            here = {index for index, each in self.header_of.items() if each.digest == header.digest}
            opened = honest & here & self.seeds.keys()
            found += [part for part in header.components(hidden) if part <= opened]
            found += [{index} for index in sorted(opened - hidden)]
        return found

    def read(self, users: Collection[int], header: Header | None = None) -> GroupSum | None:
        """Return the sum of some users' uploads if every mask on it is known, else None."""
        if not set(users) <= self.seeds.keys() & self.uploads.keys():
            return None
        header = header or self.header_of[next(iter(users))]
        epoch, masked_sum, pairs = self.epoch, header.masked_sum(), []
        for index in users:
            for peer in header.partners(index).tolist():
                if peer not in users:
                    agreed = self.agreed(header, index, peer)
                    if agreed is None:
                        return None
                    pairs.append(Pair(epoch.user(index), epoch.user(peer), agreed))
            upload = self.uploads[index]
            masked_sum.add(epoch.user(index), upload.locations, upload.words)
        masked_sum.open({epoch.user(index): self.seeds[index] for index in users}, pairs)
        return masked_sum.result()

    def agreed(self, header: Header, one: int, other: int) -> AgreedSecret | None:
        """Return what the mask keys of two users agree on, if one of their secrets is known."""
        for known, peer in ((other, one), (one, other)):
            own = self._forged.get(header.mask_key[known])
            if own is None and known in self.mask_secrets:
                own = KeyAgreement(self._private(known, self.mask_secrets[known]))
            if own is not None:
                return own.with_peer(header.mask_key[peer])
        return None

    def _private(self, index: int, secret: SharedSecret) -> PrivateKey:
        return mask_private(self.epoch, self.round_number, self.epoch.user(index), secret)


def _elements(shares: bytes) -> Elements:
    found = shamir.decode_shares(shares)
    if found is None:
        raise InvalidShare("a share lies outside the field")
    return found.reshape(-1, shamir.LIMBS)


# The best lie about survivors


def told_dropped(honest: Collection[int], uploaded: int, threshold: int, colluders: int) -> dict[int, set[int]]:
    """Return for each honest holder whom to tell it dropped out, so that the fewest honest users stay in the sum.

    `uploaded` is how many of the group have uploaded, `colluders` how many hold shares for the server. A holder
    believes `uploaded` − t absences, never its own; a member's mask secret opens with t − c votes. With 2t ≤ P + c both
    secrets of everybody open.
    """
    spare, votes, everybody = uploaded - threshold, threshold - colluders, sorted(honest)
    if spare <= 0 or votes <= 0:
        return {}
    if votes <= spare and 2 * votes <= len(everybody):
        # Each against the next t − c in a circle: t − c votes against everybody, and as many for it.
        circle = everybody * 2
        return {holder: set(circle[place + 1 : place + 1 + votes]) for place, holder in enumerate(everybody)}
    for count in range(min(len(everybody) - 1, len(everybody) * spare // votes), 0, -1):
        told = spread_votes(everybody[:count], everybody, spare)
        against = Counter(index for lie in told.values() for index in lie)
        if min(against[index] for index in everybody[:count]) >= votes:
            return told
    return {}


def spread_votes(targets: list[int], holders: list[int], each: int) -> dict[int, set[int]]:
    """Spread the holders' votes evenly over the targets, at most `each` per holder."""
    against = dict.fromkeys(targets, 0)
    told: dict[int, set[int]] = {}
    for holder in sorted(holders, key=lambda index: index not in against):  # Targets have less choice: they go first.
        lie = sorted((index for index in targets if index != holder), key=lambda index: against[index])[:each]
        for index in lie:
            against[index] += 1
        told[holder] = set(lie)
    return told
