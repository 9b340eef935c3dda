"""What server and colluding users hold after a round, and not a bit more.

The server keeps every message. The colluders hand over every random byte they drew, from which all they ever knew
follows. From these alone the attacker restores what the protocol lets it: the private seeds of survivors and the
mask keys of dropped users out of the UNMASK messages, the colluders' own mask keys, and the mask key of any user of
whose shares the colluders hold a threshold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, AgreedSecret, PrivateKey, PrivateSeed
from sparsesecagg.errors import InvalidShare
from sparsesecagg.field import unpack
from sparsesecagg.field.words import Words
from sparsesecagg.patterns import BlockIds
from sparsesecagg.privacy.components import Nodes
from sparsesecagg.protocol import RoundParameters, Stage, Transcript
from sparsesecagg.protocol.locations import decode_locations
from sparsesecagg.protocol.membership import Directory, Members
from sparsesecagg.protocol.messages import (
    SEALED_SIZE,
    KeyDirectory,
    ShareDelivery,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    decode_client_message,
    decode_server_message,
    decode_users,
)
from sparsesecagg.protocol.opening import Secrets, restore_secrets

Draws = Sequence[bytes]
"""All random bytes that one user drew in a round, draw by draw."""

Kind = TypeVar("Kind")


class View:
    """The attacker's knowledge after a completed round."""

    def __init__(self, transcript: Transcript, colluders: Mapping[int, Draws]) -> None:
        self.params = RoundParameters.decode(transcript.to_clients[0][2])
        self.colluders = dict(colluders)
        requests = [
            (user, decode_server_message(data))
            for stage, user, data in transcript.to_clients
            if stage is not Stage.ADVERTISE_KEYS
        ]
        answers = [decode_client_message(data) for _, _, data in transcript.to_server]
        self._deliveries = {user: message for user, message in requests if isinstance(message, ShareDelivery)}
        self._shared = {message.sender: message for message in _of_kind(answers, ShareKeys)}
        self._unmask = {message.sender: message for message in _of_kind(answers, Unmask)}
        self.directory = Directory(self.params, _of_kind([m for _, m in requests], KeyDirectory)[0])
        delivery = next(iter(self._deliveries.values()))
        users = decode_users(delivery.users, self.params.clients)
        self.members = Members(self.directory, users, delivery.nonces)
        request = _of_kind([m for _, m in requests], UnmaskRequest)[0]
        self.survivors: list[int] = decode_users(request.survivors, self.params.clients).tolist()
        self.uploads = {message.sender: message for message in _of_kind(answers, Upload)}
        self.honest = [user for user in self.survivors if user not in self.colluders]
        """The survivors whose values are the attacker's aim."""

    # What everybody uploaded

    def read_upload(self, user: int) -> tuple[BlockIds, Words]:
        """Return a survivor's blocks and its masked words, shape (blocks, width)."""
        message, pattern = self.uploads[user], self.members.pattern
        blocks = pattern.selected(user, []) if pattern.public else decode_locations(message.locations, self.params.dim)
        count = pattern.layout.count(blocks)
        words = unpack(message.words, count * self.params.width, self.params.word)
        return blocks, words.reshape(count, self.params.width)

    @cached_property
    def nodes(self) -> Nodes:
        """The honest survivors' uploads, block by block."""
        return Nodes.of({user: self.read_upload(user)[0] for user in self.honest}, self.members.pattern.layout)

    # Secrets

    @cached_property
    def _opened(self) -> Secrets:
        """What UNMASK gives the server: the private seeds of survivors, the mask keys of the dropped."""
        return restore_secrets(self.members, set(self.survivors), self._shared, self._unmask)

    @property
    def private_seeds(self) -> dict[int, PrivateSeed]:
        """The seeds of the survivors' private masks."""
        return {user: secret for user, secret in self._opened.items() if isinstance(secret, PrivateSeed)}

    @cached_property
    def mask_keys(self) -> dict[int, PrivateKey]:
        """Every private mask key that is known: of the dropped, of the colluders, and of the exposed."""
        keys = {user: secret for user, secret in self._opened.items() if isinstance(secret, PrivateKey)}
        for user, draws in self.colluders.items():
            keys[user] = private_key_of(draws, self.directory.mask_key(user))
        for user in self.honest:
            holders = self.colluding_holders(user)
            if len(holders) >= self.params.threshold:
                keys[user] = self._exposed_key(user, holders[: self.params.threshold])
        return keys

    def colluding_holders(self, owner: int) -> list[int]:
        """Return the colluders that were given a share of the owner's secrets."""
        holders = self.directory.holders(owner).tolist()
        return [holder for holder in holders if holder in self.colluders and holder in self._deliveries]

    def _exposed_key(self, owner: int, holders: Sequence[int]) -> PrivateKey:
        """Restore the mask key of an honest survivor from shares that were delivered to colluders."""
        shares = np.stack([self._delivered_share(owner, holder) for holder in holders])
        (secret,) = shamir.combine(shares[None], tuple(holders))
        if secret is None:
            raise InvalidShare(f"the shares of user {owner}'s mask key do not fit together")
        return PrivateKey(secret)

    def _delivered_share(self, owner: int, holder: int) -> NDArray[np.uint64]:
        """Open what `owner` sealed for a colluding `holder`; return the share of the mask key."""
        delivery, directory = self._deliveries[holder], self.directory
        place = self.members.pattern.member_neighbours(holder).index(owner)
        sealed = delivery.shares[place * SEALED_SIZE : (place + 1) * SEALED_SIZE]
        private = private_key_of(self.colluders[holder], directory.sealing_key(holder))
        agreed = KeyAgreement(private).with_peer(directory.sealing_key(owner))
        key = sealing.sealing_key(agreed, directory.digest, owner, holder)
        plain = sealing.unseal(key, sealed, self.params.round_number, owner, holder)
        return np.frombuffer(plain[: shamir.SHARE_SIZE], "<u4").astype(np.uint64)


class Agreements:
    """Agreed secrets of pairs of which at least one private mask key is known."""

    def __init__(self, directory: Directory, keys: Mapping[int, PrivateKey]) -> None:
        self._directory = directory
        self._sides = {user: KeyAgreement(key) for user, key in keys.items()}

    def __contains__(self, user: int) -> bool:
        return user in self._sides

    def between(self, one: int, other: int) -> AgreedSecret:
        """Agree as one of the two, whichever key is known."""
        if one in self._sides:
            return self._sides[one].with_peer(self._directory.mask_key(other))
        return self._sides[other].with_peer(self._directory.mask_key(one))


def private_key_of(draws: Draws, public: bytes) -> PrivateKey:
    """Return the draw that is the private half of a published key."""
    for draw in draws:
        if len(draw) == SECRET_SIZE and public_key(PrivateKey(draw)) == public:
            return PrivateKey(draw)
    raise ValueError("the published key is of none of the user's draws")


def _of_kind(messages: Sequence[object], kind: type[Kind]) -> list[Kind]:
    return [message for message in messages if isinstance(message, kind)]
