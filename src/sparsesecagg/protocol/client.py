"""One user's side of a round: a state machine without I/O.

Bytes come in, bytes go out; sockets and Flower live in `engines/`. A call that fails leaves the state as it was. The
client believes nothing unchecked: it holds its own copy of the parameters and its own policy, works on each stage once,
and gives away shares only for a survivor set that its policy accepts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, AgreedSecret, PrivateKey, PrivateSeed, Secret, SealingKey
from sparsesecagg.crypto.stream import CHUNK_WORDS, MaskStream
from sparsesecagg.errors import InvalidInput, InvalidKey, InvalidShare, MalformedMessage, PolicyViolation, WrongRound, WrongStage
from sparsesecagg.field import pack
from sparsesecagg.patterns import ALL, BlockIds
from sparsesecagg.protocol.locations import encode_locations
from sparsesecagg.protocol.masking import Mask, RowMasks, add_to_column, local_rows, pair_seeds, private_mask_seed
from sparsesecagg.protocol.messages import (
    SEALED_SIZE,
    AdvertiseKeys,
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
)
from sparsesecagg.protocol.parameters import RoundParameters
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.roster import Directory, Members
from sparsesecagg.protocol.stages import NEXT_STAGE, Stage

Entropy = Callable[[int], bytes]
"""Returns that many random bytes; the system's randomness unless a test or a simulation says otherwise."""

Trace = Callable[[BlockIds, NDArray[Any]], None]
"""Told the blocks and the quantised integers of an upload before they are masked. For simulations and tests only."""

Expected = TypeVar("Expected", KeyDirectory, ShareDelivery, UnmaskRequest)


class Client:
    """One user in one round. Call `advertise_keys`, `share_keys`, `upload`, `unmask`, in this order, once each."""

    def __init__(self, user: int, params: RoundParameters, policy: Policy | None = None, entropy: Entropy = os.urandom) -> None:
        params.check()
        if not 0 <= user < params.clients:
            raise InvalidInput("user", f"must be from 0 to {params.clients - 1}, not {user}")
        self.user = user
        self.params = params
        self.policy = policy or Policy()
        self.policy.check_parameters(params)
        self.stage = Stage.ADVERTISE_KEYS
        self.clipped = 0
        self._entropy = entropy
        self._sealing_private = PrivateKey(b"")
        self._mask_private = PrivateKey(b"")
        self._private_seed = PrivateSeed(b"")
        self._directory: Directory | None = None
        self._members: Members | None = None
        self._opening_keys: dict[int, SealingKey] = {}
        self._agreed: dict[int, AgreedSecret] = {}
        self._own_shares = b""
        self._inbox: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return f"Client(user={self.user}, round={self.params.round_number}, stage={self.stage.name})"

    def advertise_keys(self) -> bytes:
        """Make fresh keys and a fresh private seed; return the public keys."""
        self._require(Stage.ADVERTISE_KEYS)
        sealing_private, mask_private = PrivateKey(self._entropy(SECRET_SIZE)), PrivateKey(self._entropy(SECRET_SIZE))
        private_seed = PrivateSeed(self._entropy(SECRET_SIZE))
        message = AdvertiseKeys(self.params.round_number, self.user, public_key(sealing_private), public_key(mask_private))
        self._sealing_private, self._mask_private, self._private_seed = sealing_private, mask_private, private_seed
        self._advance()
        return encode(message)

    def share_keys(self, data: bytes) -> bytes:
        """Split both secrets among the neighbours; return one sealed pair of shares for each."""
        message = self._read(data, KeyDirectory, Stage.SHARE_KEYS)
        directory = Directory(self.params, message)
        self.policy.check_present("SHARE_KEYS", len(directory.users), self.params)
        self._require_own_keys(directory)
        holders = directory.holders(self.user)
        if len(holders) < self.params.threshold:
            raise PolicyViolation(f"only {len(holders)} users would hold shares, the threshold is {self.params.threshold}")
        secrets = [self._mask_private.reveal(), self._private_seed.reveal()]
        shares = shamir.split(secrets, holders, self.params.threshold, Secret(self._entropy(SECRET_SIZE)))

        sealing_agreement, mask_agreement = KeyAgreement(self._sealing_private), KeyAgreement(self._mask_private)
        sealed, opening_keys, agreed, own_shares = [], {}, {}, b""
        for holder, share in zip(holders.tolist(), shares, strict=True):
            plain = shamir.encode_shares(share)
            if holder == self.user:
                own_shares = plain
                continue
            secret = sealing_agreement.with_peer(directory.sealing_key(holder))
            key = sealing.sealing_key(secret, directory.digest, self.user, holder)
            sealed.append(sealing.seal(key, plain, self.params.round_number, self.user, holder))
            opening_keys[holder] = sealing.sealing_key(secret, directory.digest, holder, self.user)
            if self.params.pattern_type.masks_along_shares:
                # Agreeing now keeps it off UPLOAD, which users wait for after training.
                agreed[holder] = mask_agreement.with_peer(directory.mask_key(holder))

        reply = ShareKeys(self.params.round_number, self.user, self._commitment(), b"".join(sealed))
        self._directory, self._opening_keys, self._agreed, self._own_shares = directory, opening_keys, agreed, own_shares
        self._advance()
        return encode(reply)

    def upload(self, data: bytes, update: NDArray[np.floating[Any]], weight: int = 1, trace: Trace | None = None) -> bytes:
        """Quantise and mask the selected blocks of the update; return them.

        `update` is a vector of `dim` floats, relative to the model whose digest is in the parameters. `weight` is a
        private integer up to `max_weight`, or 1 in a round without weights.
        """
        message = self._read(data, ShareDelivery, Stage.UPLOAD)
        members, inbox = self._read_delivery(message)
        factor = self._check_update(update, weight)

        # Seeds of all pairs, then what the pattern makes of them.
        peers = members.pattern.peers(self.user)
        agreed = self._agree(members, peers)
        seeds = [pair_seeds(secret, members.context, self.user, peer) for peer, secret in zip(peers, agreed, strict=True)]
        shared = members.pattern.shared(self.user, peers, [pattern_seed for _, pattern_seed in seeds])
        selected = members.pattern.selected(self.user, shared)

        word = self.params.word
        if not isinstance(selected, slice):
            shared = local_rows(selected, [np.asarray(blocks) for blocks in shared], members.pattern.layout.blocks)  # type: ignore[assignment]
        masks = [
            Mask(MaskStream(mask_seed, word), rows, positive=self.user < peer)
            for peer, (mask_seed, _), rows in zip(peers, seeds, shared, strict=True)
        ]
        private = private_mask_seed(self._private_seed, members.context, self.user)
        masks.append(Mask(MaskStream(private, word), ALL, positive=True))

        rng = np.random.Generator(np.random.SFC64(int.from_bytes(self._entropy(16), "little")))
        if members.pattern.public:
            words, clipped = self._masked_blocks(update, factor, weight, selected, masks, rng, trace)
            locations = b""
        else:
            words, clipped = self._masked_coordinates(update, factor, np.asarray(selected), masks, rng, trace)
            locations = encode_locations(np.asarray(selected), self.params.dim)
        reply = encode(Upload(self.params.round_number, self.user, locations, pack(words, word)))
        self._members, self._inbox, self.clipped = members, inbox, clipped
        self._agreed = {}
        self._advance()
        return reply

    def unmask(self, data: bytes) -> bytes:
        """Check the survivors, then return one share per owner: of the private seed or of the mask key, never both."""
        message = self._read(data, UnmaskRequest, Stage.UNMASK)
        members = self._members
        assert members is not None  # noqa: S101  # Set by `upload`, without which the stage is not reached.
        survivors = decode_users(message.survivors, self.params.clients)
        alive = set(survivors.tolist())
        if not all(user in members for user in alive):
            raise PolicyViolation("the server names a survivor that never shared its keys")
        if self.user not in alive:
            raise PolicyViolation("the server counts this user as dropped and yet asks for its shares")
        self.policy.check_survivors(members, survivors)

        given, shares = [], []
        for owner in members.owners(self.user).tolist():
            pair = self._open_shares(owner)
            if pair is None:  # The owner sealed rubbish; others may still restore its secrets.
                continue
            mask_share, seed_share = pair[: shamir.SHARE_SIZE], pair[shamir.SHARE_SIZE :]
            given.append(owner)
            shares.append(seed_share if owner in alive else mask_share)
        owners = encode_users(np.array(given, np.int64), self.params.clients)
        self._forget()
        self._advance()
        return encode(Unmask(self.params.round_number, self.user, owners, b"".join(shares)))

    # Stages and checks

    def _require(self, stage: Stage) -> None:
        if self.stage is not stage:
            raise WrongStage(stage.name, self.stage.name)

    def _advance(self) -> None:
        self.stage = NEXT_STAGE[self.stage]

    def _read(self, data: bytes, expected: type[Expected], stage: Stage) -> Expected:
        message = decode_server_message(data)
        if not isinstance(message, expected):
            raise WrongStage(type(message).__name__, self.stage.name)
        self._require(stage)
        if message.round_number != self.params.round_number:
            raise WrongRound(message.round_number, self.params.round_number)
        return message

    def _require_own_keys(self, directory: Directory) -> None:
        if self.user not in directory:
            raise PolicyViolation("this user is missing from the key directory")
        own = public_key(self._sealing_private), public_key(self._mask_private)
        if (directory.sealing_key(self.user), directory.mask_key(self.user)) != own:
            raise InvalidKey("the key directory has other keys for this user than it advertised")

    def _read_delivery(self, message: ShareDelivery) -> tuple[Members, dict[int, bytes]]:
        assert self._directory is not None  # noqa: S101  # Set by `share_keys`, without which the stage is not reached.
        users = decode_users(message.users, self.params.clients)
        self.policy.check_present("UPLOAD", len(users), self.params)
        members = Members(self._directory, users)
        if self.user not in members:
            raise PolicyViolation("this user is missing from those who shared their keys")
        senders = members.pattern.member_neighbours(self.user)
        if len(message.shares) != SEALED_SIZE * len(senders):
            raise MalformedMessage(f"shares of {len(senders)} users take {SEALED_SIZE * len(senders)} bytes, not {len(message.shares)}")
        parts = [message.shares[i : i + SEALED_SIZE] for i in range(0, len(message.shares), SEALED_SIZE)]
        return members, dict(zip(senders, parts, strict=True))

    def _check_update(self, update: NDArray[np.floating[Any]], weight: int) -> float:
        """Check shape, type and weight; return the factor that the weight puts on the update."""
        if not isinstance(update, np.ndarray) or update.dtype.kind != "f":
            raise InvalidInput("update", f"must be a NumPy array of floats, not {getattr(update, 'dtype', type(update).__name__)}")
        if update.shape != (self.params.dim,):
            raise InvalidInput("update", f"must have shape ({self.params.dim},), not {update.shape}")
        largest = self.params.max_weight
        if largest == 0 and weight != 1:
            raise InvalidInput("weight", f"must be 1 in a round without weights, not {weight}: set max_weight")
        if largest and not 0 <= weight <= largest:
            raise InvalidInput("weight", f"must be from 0 to {largest}")
        return weight / largest if largest else 1.0

    # Masking

    def _agree(self, members: Members, peers: Sequence[int]) -> list[AgreedSecret]:
        agreement = KeyAgreement(self._mask_private)
        return [self._agreed.get(peer) or agreement.with_peer(members.directory.mask_key(peer)) for peer in peers]

    def _masked_blocks(
        self,
        update: NDArray[np.floating[Any]],
        factor: float,
        weight: int,
        selected: BlockIds,
        masks: Sequence[Mask],
        rng: np.random.Generator,
        trace: Trace | None,
    ) -> tuple[NDArray[Any], int]:
        """Quantise and mask whole blocks, piece by piece, so that memory stays at the size of the upload."""
        params, word, layout = self.params, self.params.word, self.params.layout
        blocks = range(layout.blocks) if isinstance(selected, slice) else selected.tolist()
        row_masks = RowMasks(masks, len(blocks), word)
        words = np.empty((len(blocks), params.width), word.dtype)
        total_clipped = 0
        for row, block in enumerate(blocks):
            clipped = 0
            for start in range(0, layout.length, CHUNK_WORDS):
                stop = min(layout.length, start + CHUNK_WORDS)
                values = layout.piece(update, block, start, stop)
                integers, beyond = params.quantizer.quantize(values, factor, rng)
                clipped += beyond
                self._mask_piece(words, row, start, integers, row_masks, block, trace)
            digits = params.digits.write((weight if params.max_weight else 0, clipped))
            self._mask_piece(words, row, layout.length, digits, row_masks, block, trace)
            total_clipped += clipped
        return words, total_clipped

    def _mask_piece(
        self,
        words: NDArray[Any],
        row: int,
        start: int,
        integers: NDArray[Any],
        row_masks: RowMasks,
        block: int,
        trace: Trace | None,
    ) -> None:
        if trace:
            trace(slice(block * self.params.width + start, block * self.params.width + start + len(integers)), integers)
        sums = self.params.word.embed(integers)
        row_masks.add(row, sums)
        words[row, start : start + len(integers)] = self.params.word.reduce(sums)

    def _masked_coordinates(
        self,
        update: NDArray[np.floating[Any]],
        factor: float,
        selected: NDArray[np.int64],
        masks: Sequence[Mask],
        rng: np.random.Generator,
        trace: Trace | None,
    ) -> tuple[NDArray[Any], int]:
        """Quantise and mask single coordinates."""
        integers, clipped = self.params.quantizer.quantize(update[selected], factor, rng)
        if trace:
            trace(selected, integers)
        sums = self.params.word.embed(integers)
        add_to_column(sums, masks, self.params.word)
        return self.params.word.reduce(sums), clipped

    # Secrets

    def _commitment(self) -> bytes:
        return seed_commitment(self._private_seed, self.params, self.user)

    def _open_shares(self, owner: int) -> bytes | None:
        """Return the owner's two shares, or None if they do not open."""
        if owner == self.user:
            return self._own_shares
        try:
            plain = sealing.unseal(self._opening_keys[owner], self._inbox[owner], self.params.round_number, owner, self.user)
        except InvalidShare:
            return None
        return plain if shamir.decode_shares(plain) is not None else None

    def _forget(self) -> None:
        """Wipe what is of no more use."""
        for secret in (self._sealing_private, self._mask_private, self._private_seed, *self._opening_keys.values()):
            secret.wipe()
        self._opening_keys, self._own_shares, self._inbox = {}, b"", {}

    # Saving and restoring

    def save(self) -> bytes:
        """Return the whole state as bytes, for an engine that restarts processes between stages.

        They contain this user's secrets: keep them where only this user can read them.
        """
        state = _SavedClient(
            user=self.user,
            params=self.params.encode(),
            stage=self.stage.name,
            clipped=self.clipped,
            secrets=[self._sealing_private.reveal(), self._mask_private.reveal(), self._private_seed.reveal()],
            directory=encode(self._directory.message) if self._directory else b"",
            members=encode_users(self._members.users, self.params.clients) if self._members else b"",
            opening_keys={user: key.reveal() for user, key in self._opening_keys.items()},
            agreed={user: secret.reveal() for user, secret in self._agreed.items()},
            own_shares=self._own_shares,
            inbox=self._inbox,
        )
        return msgspec.msgpack.encode(state)

    @staticmethod
    def restore(data: bytes, policy: Policy | None = None, entropy: Entropy = os.urandom) -> Client:
        """Return the client that `save` wrote down. The policy is not part of the state: it is the owner's to give."""
        try:
            state = msgspec.msgpack.decode(data, type=_SavedClient)
        except msgspec.MsgspecError:
            raise MalformedMessage("the bytes are not a saved client") from None
        client = Client(state.user, RoundParameters.decode(state.params), policy, entropy)
        client.stage, client.clipped = Stage(state.stage), state.clipped
        client._sealing_private, client._mask_private = map(PrivateKey, state.secrets[:2])
        client._private_seed = PrivateSeed(state.secrets[2])
        if state.directory:
            message = decode_server_message(state.directory)
            if not isinstance(message, KeyDirectory):
                raise MalformedMessage("the saved client has no key directory")
            client._directory = Directory(client.params, message)
            if state.members:
                client._members = Members(client._directory, decode_users(state.members, client.params.clients))
        client._opening_keys = {user: SealingKey(key) for user, key in state.opening_keys.items()}
        client._agreed = {user: AgreedSecret(secret) for user, secret in state.agreed.items()}
        client._own_shares, client._inbox = state.own_shares, state.inbox
        return client


def seed_commitment(seed: PrivateSeed, params: RoundParameters, user: int) -> bytes:
    """Return a hash that binds the user to its private seed, so that a wrong restoration is noticed."""
    return digest("private seed", params.digest, user.to_bytes(4, "little"), seed.reveal())


class _SavedClient(msgspec.Struct, frozen=True):
    """A client's state on disk. Never printed: the fields are secret."""

    user: int
    params: bytes
    stage: str
    clipped: int
    secrets: list[bytes]
    directory: bytes
    members: bytes
    opening_keys: dict[int, bytes]
    agreed: dict[int, bytes]
    own_shares: bytes
    inbox: dict[int, bytes]

    def __repr__(self) -> str:
        return f"_SavedClient(user={self.user}, stage={self.stage}, <secrets>)"
