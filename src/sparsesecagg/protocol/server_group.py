"""The server's side of an epoch, of one group in it, and of one round of that group.

Uploads are added as they arrive and kept until UNMASK is over, because a user that the holders count as dropped must
come out of the sum again. A group below its threshold loses the round; the others do not.
"""

from __future__ import annotations

import mmap
import tempfile
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import comb
from typing import IO

import msgspec
import numpy as np

from sparsesecagg import errors
from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.decoding import MOST_SETS
from sparsesecagg.crypto.identity import Roster
from sparsesecagg.crypto.keys import require_usable
from sparsesecagg.errors import InvalidKey, MalformedMessage
from sparsesecagg.field import packed_size
from sparsesecagg.patterns.base import GroupSum, Packed
from sparsesecagg.patterns.groups import Group, Groups, Users
from sparsesecagg.protocol import messages
from sparsesecagg.protocol.epoch import AHEAD, Epoch, Header
from sparsesecagg.protocol.messages import EpochKeys, RoundHeader, ShareKeys, Unmask, decode_users, encode, encode_users
from sparsesecagg.protocol.opening import restore_secrets
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.stages import Stage

FALSE_DEALER = "shared secrets that can't be restored"
"""Why the server excludes who seems to have dealt false shares."""
IN_MEMORY = 1 << 29
"""Bytes of a round's uploads that are kept in memory; more go to a temporary file."""


class Kept:
    """The words of a round's uploads, until it is over: in memory, and beyond a limit in a file that has no name."""

    def __init__(self, params: Parameters) -> None:
        self._room, self._users = IN_MEMORY, params.clients
        self._most = packed_size(params.shape.length + params.shape.digits.total, params.modulus_bits)

    def keep(self, user: int, words: Packed) -> Packed:
        """Return the same bytes, which are at most as many as an upload may have."""
        self._room -= len(words)
        if self._room >= 0 or not len(words):
            return words
        file, content = self._file
        file.seek(user * self._most)
        file.write(words)
        file.flush()
        return content[user * self._most :][: len(words)]

    @cached_property
    def _file(self) -> tuple[IO[bytes], memoryview]:
        """One file for all groups: what is not written to takes no room on the disk, nor in memory."""
        file = tempfile.TemporaryFile()  # noqa: SIM115
        file.truncate(self._users * self._most)
        return file, memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


class GroupState(msgspec.Struct, frozen=True, array_like=True):
    """A group between rounds, as bytes. Nothing in it is a secret of a user."""

    keys: bytes
    """The epoch's keys, as its members got them."""
    packages: list[bytes] = []
    """Those of rounds to come."""


@dataclass
class ServerGroup:
    """What the server keeps of a group between rounds. Users go by their indices."""

    epoch: Epoch
    keys: bytes
    """The message that the members got."""
    packages: dict[int, dict[int, ShareKeys]] = field(default_factory=lambda: defaultdict(dict))
    """By round and index."""

    def begin(self, round_number: int, context: bytes, excluded: Collection[int], kept: Kept) -> GroupRound:
        """Begin a round with the packages of all who are not excluded; forget them and all older ones."""
        packages = self.packages.get(round_number, {})
        used = {index: each for index, each in packages.items() if each.sender not in excluded}
        for number in [each for each in self.packages if each <= round_number]:
            del self.packages[number]
        return GroupRound(self.epoch, round_number, used, context, kept)


class ServerEpoch:
    """Keys come in, groups are drawn, and whatever users send later finds its group."""

    def __init__(self, params: Parameters, roster: Roster | None, number: int) -> None:
        self.params, self.number = params, number
        self._seed = params.epoch_seed(number, roster)
        self.drawn: Groups = params.draw(self._seed)
        self.groups: dict[int, ServerGroup] = {}
        """Those enough of whose users advertised keys, by number; none before."""
        self._adverts: dict[int, bytes] = {}

    def take_keys(self, message: messages.AdvertiseKeys) -> None:
        """Keep what a user advertises."""
        if message.binding != self.params.digest[: messages.BINDING_SIZE]:
            raise errors.WrongBinding(f"user {message.sender}")
        if message.sealing_key in self._adverts.values():
            raise InvalidKey(f"user {message.sender} advertises a sealing key that occurs twice")
        require_usable(message.sealing_key)  # Otherwise its whole group would refuse the epoch.
        self._adverts[message.sender] = message.sealing_key

    def publish_keys(self, first_round: int) -> dict[int, bytes]:
        """Return, for each user that advertised a key, the sealing keys of its group."""
        outbound: dict[int, bytes] = {}
        for group in self.drawn.groups:
            users = [user for user in group.users.tolist() if user in self._adverts]
            if len(users) < self.params.threshold:
                continue
            bitmap = encode_users((group.index_of[user] for user in users), len(group))
            binding, keys = self.params.digest[: messages.BINDING_SIZE], b"".join(self._adverts[user] for user in users)
            message = EpochKeys(self.number, binding, first_round, bitmap, keys)
            self._add(group, message, encoded := encode(message))
            outbound |= dict.fromkeys(users, encoded)
        if not outbound:
            raise errors.ThresholdNotMet(Stage.ADVERTISE_KEYS.name, len(self._adverts), self.params.threshold)
        return outbound

    def _add(self, group: Group, message: EpochKeys, encoded: bytes) -> None:
        self.groups[group.number] = ServerGroup(Epoch(self.params, message, self._seed, group), encoded)

    @property
    def users(self) -> set[int]:
        """Those who take part in the epoch."""
        epochs = [group.epoch for group in self.groups.values()]
        return {epoch.user(index) for epoch in epochs for index in epoch.present.tolist()}

    def group_of(self, user: int) -> tuple[ServerGroup, int]:
        """Return the group of a user that takes part in the epoch, and its index there."""
        drawn = self.drawn.of(user)
        group, index = self.groups.get(drawn.number), drawn.index_of[user]
        if group is None or not group.epoch.is_present[index]:
            raise errors.UnknownSender(user)
        return group, index

    def take_package(self, message: ShareKeys, round_number: int) -> None:
        """Keep a key package that travels ahead, for one of the rounds after `round_number`."""
        group, index = self.group_of(message.sender)
        if message.binding != group.epoch.binding:
            raise errors.WrongBinding(f"user {message.sender}")
        if not round_number < message.round_number <= round_number + AHEAD:
            raise errors.WrongRound(message.round_number, round_number + 1)
        if index in group.packages[message.round_number]:
            raise errors.DuplicateMessage(message.sender, Stage.SHARE_KEYS.name)
        messages.require_pieces(message.shares, len(group.epoch.partners(index)), messages.SEALED_SIZE, "the shares")
        require_usable(message.mask_key)
        known = group.packages[message.round_number]
        if message.mask_key in {each.mask_key for each in known.values()}:
            raise InvalidKey(f"user {message.sender} shares a mask key that occurs twice")
        known[index] = message

    def save(self) -> list[GroupState | None]:
        """Return what is kept between rounds, group by group; None where too few users advertised keys."""
        groups = [self.groups.get(number) for number in range(self.params.groups)]
        return [
            GroupState(group.keys, [encode(each) for of in group.packages.values() for each in of.values()])
            if group
            else None
            for group in groups
        ]

    def restore(self, states: list[GroupState | None], round_number: int) -> None:
        """Take up what `save` wrote down after `round_number`."""
        if len(states) != self.params.groups:
            raise MalformedMessage("the saved groups are not those of the parameters")
        for group, saved in zip(self.drawn.groups, states, strict=True):
            if saved is None:
                continue
            message = messages.decode_server_message(saved.keys)
            if not isinstance(message, EpochKeys):
                raise MalformedMessage("the saved keys are not those of an epoch")
            self._add(group, message, saved.keys)
            for package in map(messages.decode_client_message, saved.packages):
                if not isinstance(package, ShareKeys):
                    raise MalformedMessage("a saved key package is not one")
                if package.round_number > round_number:  # Others were passed over by `catch_up`.
                    self.take_package(package, round_number)


class GroupRound:
    """One group in one round. Users go by their indices."""

    def __init__(
        self,
        epoch: Epoch,
        round_number: int,
        packages: Mapping[int, ShareKeys],
        context: bytes,
        kept: Kept | None = None,
    ) -> None:
        self.epoch = epoch
        self._kept = kept or Kept(epoch.params)
        self.packages = packages
        members = sorted(packages)
        self._message = RoundHeader(
            round_number,
            epoch.binding,
            encode_users(members, len(epoch.group)),
            b"".join(packages[index].mask_key for index in members),
            context,
            b"",
        )
        self.header = Header(epoch, self._message)
        self.lost: str | None = None
        """Why the sum can't be opened, once it can't."""
        self.false_shares: dict[int, set[int]] = {}
        """By holder whose shares were false: the owners of the secrets. User numbers."""
        self.accused: dict[int, set[int]] = {}
        """By user without a valid tag or share: who said so. User numbers."""
        self.suspects: dict[int, str] = {}
        """By user that the round failed for, or would have: why. User numbers."""
        self._sum = self.header.masked_sum()
        self._tags: dict[int, tuple[Users, bytes]] = {}
        """By sender: the receivers, and a tag for each."""
        self._unmask: dict[int, Unmask] = {}
        self._require(len(members), "sent key packages")

    def headers(self) -> dict[int, bytes]:
        """Return the header for each member."""
        if self.lost:
            return {}
        sealed = messages.sorted_by_receiver(
            {owner: (self.epoch.partners(owner), package.shares) for owner, package in self.packages.items()},
            messages.SEALED_SIZE,
        )
        return {
            index: encode(msgspec.structs.replace(self._message, shares=sealed.get(index, b"")))
            for index in self.header.members.tolist()
        }

    @property
    def survivors(self) -> list[int]:
        """Those whose uploads arrived."""
        return sorted(self._tags)

    def take_upload(self, index: int, upload: messages.Upload) -> None:
        """Add an upload to the sum, and keep it and its tags."""
        partners = self.header.partners(index)
        messages.require_pieces(upload.tags, len(partners), sealing.TAG_SIZE, "the tags")
        self._sum.add(upload.sender, upload.locations, upload.words, self._kept.keep)
        self._tags[index] = partners, upload.tags

    def take_unmask(self, index: int, message: Unmask) -> None:
        """Keep the shares that a survivor releases."""
        size = len(self.epoch.group)
        owners = decode_users(message.owners, size)
        decode_users(message.survivors, size)
        held = np.zeros(size, np.bool_)
        held[self.header.partners(index)] = held[index] = True
        if not held[owners].all():
            raise errors.InvalidShare(f"user {message.sender} sends shares of secrets that it does not hold")
        messages.require_pieces(message.shares, len(owners), shamir.SHARE_SIZE, "the shares")
        if shamir.decode_shares(message.shares) is None:
            raise errors.InvalidShare(f"user {message.sender} sends a share outside the field")
        self._unmask[index] = message

    def unmask_requests(self) -> dict[int, bytes]:
        """End UPLOAD; return what asks the survivors for shares, if they are enough."""
        self._require(len(self._tags), "uploaded")
        if self.lost:
            return {}
        survivors, number, binding = self.survivors, self.header.round_number, self.header.binding
        bitmap = encode_users(survivors, len(self.epoch.group))
        tags = messages.sorted_by_receiver(self._tags, sealing.TAG_SIZE)
        return {
            index: encode(messages.UnmaskRequest(number, binding, bitmap, tags.get(index, b""))) for index in survivors
        }

    def open(self, threads: int = 1) -> GroupSum | None:
        """Restore the secrets, take out who is not in the sum, remove the masks; None if the round is lost."""
        self._note_accusations()
        self._require(len(self._unmask), "sent shares")
        if self.lost:
            return None
        epoch = self.epoch
        restored = restore_secrets(self.header, self.packages, self._tags, self._unmask)
        for holder, owner in restored.false_shares:
            self.false_shares.setdefault(epoch.user(holder), set()).add(epoch.user(owner))
        self._suspect(restored.false_shares, restored.failed)
        if restored.failed:
            self.lost = f"the secrets of user {epoch.user(restored.failed[0])} can't be restored from the shares sent"
            return None
        for index in self._tags:
            if index not in restored.seeds:
                self._sum.remove(epoch.user(index))
        if len(restored.seeds) < epoch.params.threshold:
            self.lost = f"{len(restored.seeds)} users are in the sum, {epoch.params.threshold} are needed"
            return None
        private = {epoch.user(index): seed for index, seed in restored.seeds.items()}
        self._sum.open(private, restored.pairs(self.header), threads)
        self.lost = self._sum.problem()
        return None if self.lost else self._sum.result()

    def _note_accusations(self) -> None:
        """Count who found no valid tag or share of whom. Users never act on this; the server excludes who has many."""
        declared, size = set(self._tags), len(self.epoch.group)
        for holder, message in self._unmask.items():
            near = {*self.header.partners(holder).tolist(), holder}
            unseen = (declared & near).difference(decode_users(message.survivors, size).tolist())
            unopened = near.difference(decode_users(message.owners, size).tolist())
            if 2 * len(unseen | unopened) > len(near):
                continue  # Its own fault, or it got somebody else's header.
            for index in unseen | unopened:
                self.accused.setdefault(self.epoch.user(index), set()).add(self.epoch.user(holder))

    def _suspect(self, false_shares: tuple[tuple[int, int], ...], failed: tuple[int, ...]) -> None:
        """Name who dealt or sent what is false: a dealer is whose own secret alone fails, a holder fails for many."""
        members = len(self.header.members)
        for holder in {holder for holder, _ in false_shares}:
            if 2 * sum(each == holder for each, _ in false_shares) > members:
                self.suspects[self.epoch.user(holder)] = "sent false shares"
        if len(failed) <= self.epoch.params.accusers:  # More dealers can't be false, but holders can name any number.
            for index in failed:
                if self._is_to_blame(index):
                    self.suspects[self.epoch.user(index)] = FALSE_DEALER

    def _is_to_blame(self, index: int) -> bool:
        """Tell whether a secret would have been restored if its owner had dealt it well and c of its holders lied.

        Where all sets of holders can't be tried, false shares are certain to be corrected up to half of the spare ones;
        there one must be, or a single holder could have somebody excluded. That c of them can is why the server takes
        no more than c users to be false dealers in a run.
        """
        params = self.epoch.params
        answered = len({index, *self.header.partners(index).tolist()} & self._unmask.keys())
        spare = answered - params.threshold
        if spare > 0 and comb(answered, spare) <= MOST_SETS:
            return spare >= params.accusers
        return spare >= 2

    def _require(self, count: int, what: str) -> None:
        needed = self.epoch.params.quorum
        if count < needed and not self.lost:
            self.lost = f"{count} of its users {what}, {needed} are needed"
