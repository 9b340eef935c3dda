"""The server's side of a round: a state machine without I/O.

`receive` takes one client message at a time, `close_stage` ends a stage and returns the next message for each client.
A message that does not fit raises a typed error and changes nothing. Uploads are added as they arrive and then
forgotten, so memory stays at one model (and, for `pairwise`, the locations of each user).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.keys import require_usable
from sparsesecagg.errors import (
    DuplicateMessage,
    InvalidKey,
    InvalidShare,
    MalformedMessage,
    ThresholdNotMet,
    UnknownSender,
    WrongRound,
    WrongStage,
    WrongView,
)
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.protocol.allocation import keep_freed_memory
from sparsesecagg.protocol.masked_sum import MaskedSum
from sparsesecagg.protocol.membership import Directory, Members
from sparsesecagg.protocol.messages import (
    CONFIRM_TAG_SIZE,
    SEALED_SIZE,
    AdvertiseKeys,
    ClientMessage,
    Confirm,
    ConfirmRequest,
    KeyDirectory,
    Message,
    ShareDelivery,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    decode_client_message,
    decode_users,
    encode,
    encode_users,
)
from sparsesecagg.protocol.opening import restore_secrets
from sparsesecagg.protocol.parameters import RoundParameters
from sparsesecagg.protocol.result import Result
from sparsesecagg.protocol.stages import NEXT_STAGE, NEXT_STAGE_WITH_ROSTER, STAGES, STAGES_WITH_ROSTER, Stage

_MESSAGE_OF: dict[Stage, type[Message]] = {
    Stage.ADVERTISE_KEYS: AdvertiseKeys,
    Stage.SHARE_KEYS: ShareKeys,
    Stage.UPLOAD: Upload,
    Stage.CONFIRM: Confirm,
    Stage.UNMASK: Unmask,
}
Kept = TypeVar("Kept")


class Server:
    """One round. Feed it with `receive`, end each stage with `close_stage`, read `result`."""

    def __init__(self, params: RoundParameters) -> None:
        keep_freed_memory()
        params.check()
        self.params = params
        self.stage = Stage.ADVERTISE_KEYS
        self.result: Result | None = None
        stages = [stage.name for stage in (STAGES_WITH_ROSTER if params.authenticated else STAGES)]
        self.dropped: dict[str, int] = dict.fromkeys(stages, 0)
        self._sent: dict[str, dict[int, int]] = {stage: {} for stage in stages}
        self._received: dict[str, dict[int, int]] = {stage: {} for stage in stages}
        self._present: set[int] = set(range(params.clients))
        """Who may send in this stage: those who sent in the one before."""
        self._heard: set[int] = set()
        """Who has sent in this stage."""
        self._keys: dict[int, AdvertiseKeys] = {}
        self._taken_keys: set[bytes] = set()
        self._shares: dict[int, ShareKeys] = {}
        self._confirmations: dict[int, Confirm] = {}
        self._unmask: dict[int, Unmask] = {}
        self._directory: Directory | None = None
        self._members: Members | None = None
        self._survivors: Users = np.empty(0, np.int64)
        self._sum: MaskedSum | None = None

    def receive(self, data: bytes, sender: int | None = None) -> int:
        """Take one message; return its sender.

        `sender` is who the transport says it came from, if it knows. Raises a typed error, and changes nothing, for
        a message that is malformed, late, early, of another round, a second one, or from somebody unknown.
        """
        message = decode_client_message(data)
        if message.round_number != self.params.round_number:
            raise WrongRound(message.round_number, self.params.round_number)
        if message.view != self.params.view:
            raise WrongView(f"user {message.sender}")
        if self.stage is Stage.DONE or not isinstance(message, _MESSAGE_OF[self.stage]):
            raise WrongStage(type(message).__name__, self.stage.name)
        if message.sender not in self._present or sender not in (None, message.sender):
            raise UnknownSender(message.sender)
        if message.sender in self._heard:
            raise DuplicateMessage(message.sender, self.stage.name)
        self._take(message)
        self._heard.add(message.sender)
        self._sent[self.stage.name][message.sender] = len(data)
        return message.sender

    @property
    def waiting_for(self) -> set[int]:
        """The users that may still send in this stage."""
        return self._present - self._heard

    def close_stage(self) -> dict[int, bytes]:
        """End the stage: count who fell silent, and return the next message for each who did not.

        Raises `ThresholdNotMet` when too few are left; then the round is over and nothing was revealed. After UNMASK
        the answer is empty and `result` is set.
        """
        if self.stage is Stage.DONE:
            raise WrongStage("close_stage", Stage.DONE.name)
        stage, users = self.stage, np.array(sorted(self._heard), np.int64)
        self.dropped[stage.name] = len(self._present) - len(users)
        self.stage = Stage.DONE  # A round that fails below is over.
        if len(users) < self.params.threshold:
            raise ThresholdNotMet(stage.name, len(users), self.params.threshold)
        outbound = {
            Stage.ADVERTISE_KEYS: self._make_directory,
            Stage.SHARE_KEYS: self._deliver_shares,
            Stage.UPLOAD: self._announce_survivors,
            Stage.CONFIRM: self._request_shares,
            Stage.UNMASK: self._open_sum,
        }[stage](users)
        self._present, self._heard = self._heard, set()
        self.stage = (NEXT_STAGE_WITH_ROSTER if self.params.authenticated else NEXT_STAGE)[stage]
        if self.stage is not Stage.DONE:
            self._received[self.stage.name] = {user: len(data) for user, data in outbound.items()}
        return outbound

    # Receiving

    def _take(self, message: ClientMessage) -> None:
        match message:
            case AdvertiseKeys():
                self._take_keys(message)
            case ShareKeys():
                self._take_shares(message)
            case Upload():
                _kept(self._sum).add(message)
            case Confirm():
                self._take_confirmation(message)
            case Unmask():
                self._take_unmask(message)

    def _take_keys(self, message: AdvertiseKeys) -> None:
        fresh = {message.sealing_key, message.mask_key}
        if len(fresh) < 2 or fresh & self._taken_keys:
            raise InvalidKey(f"user {message.sender} advertises a public key that occurs twice")
        for key in fresh:
            require_usable(key)  # Otherwise all its neighbours would refuse the directory.
        self._keys[message.sender] = message
        self._taken_keys |= fresh

    def _take_shares(self, message: ShareKeys) -> None:
        directory = _kept(self._directory)
        neighbours = directory.graph.neighbours(message.sender)
        if len(message.shares) != SEALED_SIZE * len(neighbours):
            raise MalformedMessage(
                f"shares for {len(neighbours)} neighbours take {SEALED_SIZE * len(neighbours)} bytes, "
                f"not {len(message.shares)}"
            )
        directory.require_nonce(message.sender, message.nonce)
        self._shares[message.sender] = message

    def _take_confirmation(self, message: Confirm) -> None:
        size = CONFIRM_TAG_SIZE * (len(self._survivors) - 1)
        if len(message.tags) != size:
            raise MalformedMessage(
                f"tags for {len(self._survivors) - 1} survivors take {size} bytes, not {len(message.tags)}"
            )
        self._confirmations[message.sender] = message

    def _take_unmask(self, message: Unmask) -> None:
        owners = decode_users(message.owners, self.params.clients)
        if not set(owners.tolist()).issubset(_kept(self._members).owners(message.sender).tolist()):
            raise InvalidShare(f"user {message.sender} sends shares of secrets that it does not hold")
        if len(message.shares) != shamir.SHARE_SIZE * len(owners):
            raise MalformedMessage(
                f"{len(owners)} shares take {shamir.SHARE_SIZE * len(owners)} bytes, not {len(message.shares)}"
            )
        if shamir.decode_shares(message.shares) is None:
            raise InvalidShare(f"user {message.sender} sends a share outside the field")
        self._unmask[message.sender] = message

    # Closing

    def _make_directory(self, users: Users) -> dict[int, bytes]:
        """Publish what all have advertised."""
        adverts = [self._keys[user] for user in users.tolist()]
        entries = b"".join(advert.sealing_key + advert.mask_key + advert.nonce_commitment for advert in adverts)
        message = KeyDirectory(*self._head, encode_users(users, self.params.clients), entries)
        self._directory = Directory(self.params, message)
        return dict.fromkeys(users.tolist(), encode(message))

    def _deliver_shares(self, users: Users) -> dict[int, bytes]:
        """Sort the sealed shares by receiver, and make the pattern from those who sent some."""
        directory = _kept(self._directory)
        nonces = b"".join(self._shares[user].nonce for user in users.tolist())
        self._members = Members(directory, users, nonces)
        self._sum = MaskedSum(self._members)
        sealed = np.frombuffer(b"".join(self._shares[user].shares for user in users.tolist()), f"V{SEALED_SIZE}")
        receivers = np.concatenate([directory.graph.neighbours(user) for user in users.tolist()])
        # Senders are in order, and so they stay for each receiver, who expects them so.
        order = np.argsort(receivers, kind="stable")
        first, behind = (np.searchsorted(receivers[order], users, side).tolist() for side in ("left", "right"))
        bitmap = encode_users(users, self.params.clients)
        return {
            user: encode(ShareDelivery(*self._head, bitmap, nonces, sealed[order[start:stop]].tobytes()))
            for user, start, stop in zip(users.tolist(), first, behind, strict=True)
        }

    def _announce_survivors(self, users: Users) -> dict[int, bytes]:
        """Say whose uploads arrived, and ask for shares; or, with a roster, for confirmations first."""
        self._survivors = users
        kind = ConfirmRequest if self.params.authenticated else UnmaskRequest
        return dict.fromkeys(users.tolist(), encode(kind(*self._head, encode_users(users, self.params.clients))))

    def _request_shares(self, users: Users) -> dict[int, bytes]:
        """Hand everybody the tags that the others made for it, and ask for shares."""
        survivors = encode_users(self._survivors, self.params.clients)
        place_of = {user: place for place, user in enumerate(self._survivors.tolist())}
        outbound = {}
        for receiver in users.tolist():
            tags = []
            for sender in users[users != receiver].tolist():
                # A sender leaves itself out of its tags, so those behind it move up by one.
                place = place_of[receiver] - (place_of[receiver] > place_of[sender])
                tags.append(self._confirmations[sender].tags[place * CONFIRM_TAG_SIZE : (place + 1) * CONFIRM_TAG_SIZE])
            confirmers = encode_users(users[users != receiver], self.params.clients)
            outbound[receiver] = encode(UnmaskRequest(*self._head, survivors, confirmers, b"".join(tags)))
        return outbound

    @property
    def _head(self) -> tuple[int, bytes]:
        """How every message of the server begins."""
        return self.params.round_number, self.params.view

    def _open_sum(self, _users: Users) -> dict[int, bytes]:
        """Restore the secrets, remove the masks that are left in the sum, and write the result."""
        members, masked = _kept(self._members), _kept(self._sum)
        secrets = restore_secrets(members, set(self._survivors.tolist()), self._shares, self._unmask)
        masked.remove_masks(secrets)
        self.result = self._make_result(masked, secrets.false_shares)
        return {}

    def _make_result(self, opened: MaskedSum, false_shares: tuple[tuple[int, int], ...]) -> Result:
        params, integers = self.params, opened.integers()
        public = params.pattern_type.public
        return Result(
            params=params,
            total=opened.total(),
            contributors_per_block=opened.contributors.astype(np.int64),
            weight_per_block=integers[:, 0] if params.max_weight else None,
            clipped=int(integers[:, 1].sum()) if public else None,
            survivors=tuple(self._survivors.tolist()),
            dropped=dict(self.dropped),
            sent_bytes={stage: tuple(sizes.values()) for stage, sizes in self._sent.items()},
            received_bytes={
                stage: tuple(sizes.values()) if stage != Stage.ADVERTISE_KEYS.name else (len(params.encode()),)
                for stage, sizes in self._received.items()
            },
            false_shares=false_shares,
        )


def _kept(value: Kept | None) -> Kept:
    """Return what an earlier stage has set."""
    assert value is not None  # noqa: S101  # The stages run in order.
    return value
