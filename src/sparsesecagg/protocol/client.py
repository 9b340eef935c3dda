"""One user's side of a round: a state machine without I/O.

Bytes come in, bytes go out; sockets and Flower live in `engines/`. A call that fails leaves the state as it was. The
client believes nothing unchecked: it holds its own copy of the parameters and its own policy, works on each stage once,
and gives away shares only for a survivor set that its policy accepts.

With an identity (an authenticated round) it also demands proof: it masks nothing before the shares of all members have
opened, which shows that their keys are genuine, and it releases nothing before enough others have confirmed the same
survivors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from cryptography.hazmat.primitives.constant_time import bytes_eq

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, AgreedSecret, PrivateKey, PrivateSeed, Secret, SecretShares
from sparsesecagg.errors import (
    InvalidInput,
    InvalidKey,
    InvalidShare,
    MalformedMessage,
    PolicyViolation,
    WrongRound,
    WrongStage,
    WrongView,
)
from sparsesecagg.field import pack
from sparsesecagg.protocol.allocation import keep_freed_memory
from sparsesecagg.protocol.client_state import ClientState, restore_state, save_state
from sparsesecagg.protocol.masked_update import Trace, Update, mask_update
from sparsesecagg.protocol.membership import Directory, Members, nonce_commitment, seed_commitment
from sparsesecagg.protocol.messages import (
    CONFIRM_TAG_SIZE,
    NONCE_SIZE,
    SEALED_SIZE,
    AdvertiseKeys,
    Confirm,
    ConfirmRequest,
    KeyDirectory,
    ShareDelivery,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    decode_server_message,
    decode_users,
    encode,
    encode_users,
    user_number,
)
from sparsesecagg.protocol.parameters import RoundParameters
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.stages import NEXT_STAGE, NEXT_STAGE_WITH_ROSTER, Stage

Entropy = Callable[[int], bytes]
"""Returns that many random bytes; the system's randomness unless a test or a simulation says otherwise."""

Expected = TypeVar("Expected", KeyDirectory, ShareDelivery, ConfirmRequest, UnmaskRequest)


class Client:
    """One user in one round. Call `advertise_keys`, `share_keys`, `upload`, `unmask`, in this order, once each.

    In an authenticated round give it its `identity`, and call `confirm` before `unmask`.
    """

    def __init__(
        self,
        user: int,
        params: RoundParameters,
        policy: Policy | None = None,
        entropy: Entropy = os.urandom,
        identity: Identity | None = None,
    ) -> None:
        keep_freed_memory()
        params.check()
        if not 0 <= user < params.clients:
            raise InvalidInput("user", f"must be from 0 to {params.clients - 1}, not {user}")
        self.user = user
        self.params = params
        self.policy = policy or Policy()
        self.policy.check_parameters(params)
        self._identity = _checked_identity(identity, user, params)
        self._entropy = entropy
        self._state = ClientState(user=user, params=params.encode())

    def __repr__(self) -> str:
        return f"Client(user={self.user}, round={self.params.round_number}, stage={self.stage.name})"

    @property
    def stage(self) -> Stage:
        """The stage whose message comes next."""
        return self._state.stage

    @property
    def clipped(self) -> int:
        """How many values of the update were clipped."""
        return self._state.clipped

    def advertise_keys(self) -> bytes:
        """Make fresh keys, a fresh private seed and a nonce; return the public keys and a commitment to the nonce."""
        self._require(Stage.ADVERTISE_KEYS)
        sealing_private = PrivateKey(self._entropy(SECRET_SIZE))
        mask_private = PrivateKey(self._entropy(SECRET_SIZE))
        private_seed = PrivateSeed(self._entropy(SECRET_SIZE))
        nonce = self._entropy(NONCE_SIZE)
        keys = public_key(sealing_private), public_key(mask_private)
        message = AdvertiseKeys(*self._head, *keys, nonce_commitment(*keys, nonce))
        self._advance(
            sealing_private=sealing_private, mask_private=mask_private, private_seed=private_seed, nonce=nonce
        )
        return encode(message)

    def share_keys(self, data: bytes) -> bytes:
        """Split both secrets among the neighbours; return one sealed pair of shares for each."""
        directory = Directory(self.params, self._read(data, KeyDirectory, Stage.SHARE_KEYS))
        self.policy.check_present("SHARE_KEYS", len(directory.users), self.params)
        self._require_own_keys(directory)
        holders, threshold = directory.holders(self.user), self.params.threshold
        if len(holders) < threshold:
            raise PolicyViolation(f"only {len(holders)} users would hold shares, the threshold is {threshold}")
        state = self._state
        secrets = [state.mask_private.reveal(), state.private_seed.reveal()]
        shares = shamir.split(secrets, holders, threshold, Secret(self._entropy(SECRET_SIZE)))

        sealed, sealing_agreed, mask_agreed, own_shares = [], {}, {}, b""
        sealing_agreement, mask_agreement = KeyAgreement(state.sealing_private), KeyAgreement(state.mask_private)
        for holder, share in zip(holders.tolist(), shares, strict=True):
            plain = shamir.encode_shares(share)
            if holder == self.user:
                own_shares = plain
                continue
            secret = sealing_agreement.with_peer(directory.sealing_key(holder))
            if self._identity:
                # Only the owner of the peer's identity can know this half.
                secret = AgreedSecret(secret.reveal() + self._identity.secret_with(holder).reveal())
            key = sealing.sealing_key(secret, directory.digest, self.user, holder)
            sealed.append(sealing.seal(key, plain, self.params.round_number, self.user, holder))
            sealing_agreed[holder] = secret
            if self.params.pattern_type.masks_along_shares:
                # Agreeing now keeps it off UPLOAD, which users wait for after training.
                mask_agreed[holder] = mask_agreement.with_peer(directory.mask_key(holder))

        commitment = seed_commitment(self.params, self.user, state.private_seed)
        self._advance(
            directory=data,
            own_shares=SecretShares(own_shares),
            sealing_agreed=sealing_agreed,
            mask_agreed=mask_agreed,
        )
        self._directory = directory
        return encode(ShareKeys(*self._head, commitment, state.nonce, b"".join(sealed)))

    def upload(self, data: bytes, update: Update, weight: int = 1, trace: Trace | None = None) -> bytes:
        """Quantise and mask the selected blocks of the update; return them.

        `update` is a vector of `dim` floats, relative to the model whose digest is in the parameters. `weight` is a
        private integer up to `max_weight`, or 1 in a round without weights.
        """
        message = self._read(data, ShareDelivery, Stage.UPLOAD)
        members, inbox = self._read_delivery(message)
        self.policy.check_weight(self.params, weight)
        opened = self._require_genuine(inbox) if self._identity else {}
        mask_agreement = KeyAgreement(self._state.mask_private)
        masked = mask_update(
            members,
            self.user,
            update,
            weight,
            agreed=lambda peer: (
                self._state.mask_agreed.get(peer) or mask_agreement.with_peer(members.directory.mask_key(peer))
            ),
            private_seed=self._state.private_seed,
            rng=np.random.Generator(np.random.SFC64(int.from_bytes(self._entropy(16), "little"))),
            trace=trace,
        )
        self._advance(
            members=message.users,
            nonces=message.nonces,
            inbox=inbox,
            opened=opened,
            clipped=masked.clipped,
            mask_agreed={},
        )
        self._members = members
        return encode(Upload(*self._head, masked.locations, pack(masked.words, self.params.word)))

    def confirm(self, data: bytes) -> bytes:
        """Settle for one set of survivors, and return a tag for each other survivor that says which.

        Only in an authenticated round. A server that tells different users different survivors finds nobody with
        enough tags to release a share.
        """
        message = self._read(data, ConfirmRequest, Stage.CONFIRM)
        survivors = self._checked_survivors(message.survivors)
        tags = [self._tag(self.user, peer, message.survivors) for peer in survivors if peer != self.user]
        self._advance(confirmed=message.survivors)
        return encode(Confirm(*self._head, b"".join(tags)))

    def unmask(self, data: bytes) -> bytes:
        """Check the survivors, then return one share per owner: of the private seed or of the mask key, never both."""
        message = self._read(data, UnmaskRequest, Stage.UNMASK)
        survivors = self._checked_survivors(message.survivors)
        if self._identity:
            self._require_confirmations(message)
        given, shares = [], []
        for owner in self._members.owners(self.user).tolist():
            pair = self._open_shares(owner)
            if pair is None:  # The owner sealed rubbish; others may still restore its secrets.
                continue
            mask_share, seed_share = pair[: shamir.SHARE_SIZE], pair[shamir.SHARE_SIZE :]
            given.append(owner)
            shares.append(seed_share if owner in survivors else mask_share)
        owners = encode_users(np.array(given, np.int64), self.params.clients)
        self._advance()
        self._state = self._state.wiped()
        return encode(Unmask(*self._head, owners, b"".join(shares)))

    def save(self) -> bytes:
        """Return the whole state as bytes, for an engine that restarts processes between stages.

        They contain this user's secrets: keep them where only this user can read them.
        """
        return save_state(self._state)

    @staticmethod
    def restore(
        data: bytes, policy: Policy | None = None, entropy: Entropy = os.urandom, identity: Identity | None = None
    ) -> Client:
        """Return the client that `save` wrote down. Policy and identity are the owner's to give, not the state's."""
        state = restore_state(data)
        client = Client(state.user, RoundParameters.decode(state.params), policy, entropy, identity)
        client._state = state
        return client

    # Stages and messages

    def _require(self, stage: Stage) -> None:
        if self.stage is not stage:
            raise WrongStage(stage.name, self.stage.name)

    def _advance(self, **changes: Any) -> None:
        following = NEXT_STAGE_WITH_ROSTER if self.params.authenticated else NEXT_STAGE
        self._state = self._state.with_changes(stage=following[self.stage], **changes)

    @property
    def _head(self) -> tuple[int, bytes, bytes]:
        """How every message of this user begins."""
        return self.params.round_number, self.params.view, user_number(self.user)

    def _read(self, data: bytes, expected: type[Expected], stage: Stage) -> Expected:
        message = decode_server_message(data)
        if not isinstance(message, expected):
            raise WrongStage(type(message).__name__, self.stage.name)
        self._require(stage)
        if message.round_number != self.params.round_number:
            raise WrongRound(message.round_number, self.params.round_number)
        if message.view != self.params.view:
            raise WrongView("the server")
        return message

    # What earlier stages have left

    @cached_property
    def _directory(self) -> Directory:
        message = decode_server_message(self._state.directory)
        if not isinstance(message, KeyDirectory):
            raise MalformedMessage("the saved client has no key directory")
        return Directory(self.params, message)

    @cached_property
    def _members(self) -> Members:
        users = decode_users(self._state.members, self.params.clients)
        return Members(self._directory, users, self._state.nonces)

    # Checks

    def _require_own_keys(self, directory: Directory) -> None:
        if self.user not in directory:
            raise PolicyViolation("this user is missing from the key directory")
        own = public_key(self._state.sealing_private), public_key(self._state.mask_private)
        if (directory.sealing_key(self.user), directory.mask_key(self.user)) != own:
            raise InvalidKey("the key directory has other keys for this user than it advertised")
        # Or the server could commit to nonces of its own, and choose the committees.
        directory.require_nonce(self.user, self._state.nonce)

    def _read_delivery(self, message: ShareDelivery) -> tuple[Members, dict[int, bytes]]:
        users = decode_users(message.users, self.params.clients)
        self.policy.check_present("UPLOAD", len(users), self.params)
        members = Members(self._directory, users, message.nonces)
        if self.user not in members:
            raise PolicyViolation("this user is missing from those who shared their keys")
        senders = members.pattern.member_neighbours(self.user)
        size = SEALED_SIZE * len(senders)
        if len(message.shares) != size:
            raise MalformedMessage(f"the shares of {len(senders)} users take {size} bytes, not {len(message.shares)}")
        parts = [message.shares[start : start + SEALED_SIZE] for start in range(0, size, SEALED_SIZE)]
        return members, dict(zip(senders, parts, strict=True))

    def _require_genuine(self, inbox: dict[int, bytes]) -> dict[int, SecretShares]:
        """Open the shares of all senders, which proves their keys; raise if one does not open."""
        opened = {}
        for sender, sealed in inbox.items():
            plain = self._unseal(sender, sealed)
            if plain is None:
                raise PolicyViolation(f"the keys of user {sender} are not proven genuine: its share does not open")
            opened[sender] = SecretShares(plain)
        return opened

    def _checked_survivors(self, bitmap: bytes) -> set[int]:
        """Return the survivors if their sum may be opened at all."""
        users = decode_users(bitmap, self.params.clients)
        survivors = set(users.tolist())
        if not all(user in self._members for user in survivors):
            raise PolicyViolation("the server names a survivor that never shared its keys")
        if self.user not in survivors:
            raise PolicyViolation("the server counts this user as dropped and yet asks for its shares")
        self.policy.check_survivors(self._members, users)
        return survivors

    def _require_confirmations(self, message: UnmaskRequest) -> None:
        """Raise unless `threshold` users, this one included, have confirmed the survivors that it has confirmed."""
        if message.survivors != self._state.confirmed:
            raise PolicyViolation("the survivors are not those that this user has confirmed")
        survivors = decode_users(message.survivors, self.params.clients)
        confirmers = decode_users(message.confirmers, self.params.clients)
        if self.user in confirmers or not np.isin(confirmers, survivors).all():
            raise MalformedMessage("the confirmations are not those of the other survivors")
        if len(message.tags) != CONFIRM_TAG_SIZE * len(confirmers):
            raise MalformedMessage("the confirmations do not fit the users who are said to have sent them")
        agreeing = 1
        for place, peer in enumerate(confirmers.tolist()):
            tag = message.tags[place * CONFIRM_TAG_SIZE : (place + 1) * CONFIRM_TAG_SIZE]
            agreeing += bytes_eq(tag, self._tag(peer, self.user, message.survivors))
        if agreeing < self.params.threshold:
            raise PolicyViolation(
                f"only {agreeing} users have confirmed the same survivors, {self.params.threshold} are needed: "
                "the server may have told others differently"
            )

    # Secrets

    def _open_shares(self, owner: int) -> bytes | None:
        """Return the owner's two shares, or None if they do not open."""
        if owner == self.user:
            return self._state.own_shares.reveal()
        if owner in self._state.opened:
            return self._state.opened[owner].reveal()
        return self._unseal(owner, self._state.inbox[owner])

    def _unseal(self, sender: int, sealed: bytes) -> bytes | None:
        key = sealing.sealing_key(self._state.sealing_agreed[sender], self._directory.digest, sender, self.user)
        try:
            plain = sealing.unseal(key, sealed, self.params.round_number, sender, self.user)
        except InvalidShare:
            return None
        return plain if shamir.decode_shares(plain) is not None else None

    def _tag(self, sender: int, receiver: int, survivors: bytes) -> bytes:
        """Return the tag by which `sender` confirms the survivors to `receiver`; this user is one of them."""
        agreed = self._state.sealing_agreed[receiver if sender == self.user else sender]
        key = sealing.confirm_key(agreed, self._members.context, sender, receiver)
        statement = digest("survivors", self._members.context, survivors)
        return sealing.confirmation(key, statement, CONFIRM_TAG_SIZE)


def _checked_identity(identity: Identity | None, user: int, params: RoundParameters) -> Identity | None:
    """Return the identity if it belongs to this user and this round; None in a round without authentication."""
    if not params.authenticated:
        return None
    if identity is None:
        raise PolicyViolation("the round is authenticated, and this client was given no identity")
    if identity.user != user or identity.roster.digest != params.roster_digest:
        raise PolicyViolation("the round is bound to another roster, or this user has another number in it")
    if len(identity.roster.entries) != params.clients:
        raise PolicyViolation(f"the roster has {len(identity.roster.entries)} users, the round {params.clients}")
    return identity
