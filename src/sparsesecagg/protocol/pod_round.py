"""The server's side of one pod in one round: orders out, uploads and shares in, opened committees at the end.

Uploads are added as they arrive and then forgotten. A committee that is too thin, and a pod below its threshold, lose
what they have sent in this round; nothing else is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import numpy as np

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.errors import InvalidShare, MalformedMessage
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.history import write_history
from sparsesecagg.protocol.messages import (
    SEALED_SIZE,
    Confirm,
    ConfirmRequest,
    Order,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    decode_users,
    encode,
    encode_users,
    require_pieces,
)
from sparsesecagg.protocol.opening import Restored, orphaned_pairs, restore_secrets
from sparsesecagg.protocol.order import OrderView
from sparsesecagg.protocol.relay import sorted_by_receiver
from sparsesecagg.protocol.work import Total, Work
from sparsesecagg.protocol.works import work_of

Lost = dict[int, str]
"""By committee, counted over all pods: why its sum was not opened."""


class PodRound:
    """One pod in one round. Users go by their places."""

    def __init__(
        self, epoch: Epoch, round_number: int, packages: Mapping[int, ShareKeys], terms: bytes, chain: bytes
    ) -> None:
        self.epoch = epoch
        self.packages = packages
        members = np.array(sorted(packages), np.int64)
        self.order = OrderView(epoch, round_number, members, terms, chain)
        heads = {place: package.head for place, package in packages.items()}
        self._heads = heads
        self._committees = b"".join(
            self.order.heads_digest(number, heads) for number in range(len(epoch.pod.committees))
        )
        self._terms = terms
        self.order.settle(self._committees)
        self.lost: Lost = {}
        self.false_shares: dict[int, set[int]] = {}
        """By user whose shares were false: the owners of the secrets."""
        self.survivors: Users = np.empty(0, np.int64)
        self._survived: set[int] = set()
        self._works: dict[int, Work] = {}
        self._tags: dict[int, tuple[Users, bytes]] = {}
        """By sender: the receivers, and a tag for each."""
        self._confirmations: dict[int, tuple[Users, bytes]] = {}
        self._unmask: dict[int, Unmask] = {}
        for number in range(len(epoch.pod.committees)):
            if not self.order.large_enough(number):
                self._lose(number, f"{len(self.order.committee(number))} packages")
        if len(members) < epoch.threshold:
            self._lose_all(f"{len(members)} of its {epoch.threshold} users sent packages")

    def orders(self, history: Mapping[int, list[tuple[int, bytes]]]) -> dict[int, bytes]:
        """Return the order for each member of a committee that can still be opened."""
        epoch, order, outbound = self.epoch, self.order, {}
        bitmap = encode_users(order.members, len(epoch.pod))
        sealed = sorted_by_receiver(
            {owner: (epoch.partners(owner), package.shares) for owner, package in self.packages.items()}, SEALED_SIZE
        )
        for number in range(len(epoch.pod.committees)):
            if epoch.pod.first + number in self.lost:
                continue
            members = order.committee(number).tolist()
            heads = b"".join(self._heads[place] for place in members)
            for place in members:
                outbound[place] = encode(
                    Order(
                        order.round_number,
                        epoch.view,
                        bitmap,
                        self._committees,
                        heads,
                        self._terms,
                        write_history(history[place]),
                        sealed.get(place, b""),
                    )
                )
        return outbound

    # Receiving

    def take_upload(self, place: int, upload: Upload) -> None:
        """Add an upload to its committee's sum, and keep its tags."""
        partners = self.order.partners(place)
        require_pieces(upload.tags, len(partners), sealing.TAG_SIZE, "the tags")
        number = int(self.epoch.pod.committee_of[place])
        work = self._works.get(number) or work_of(self.order, number)
        work.add(upload)
        self._works[number] = work
        self._tags[place] = partners, upload.tags

    def take_confirm(self, place: int, message: Confirm) -> None:
        """Keep a survivor's confirmations."""
        others = self._among(self.order.partners(place), self._survived)
        require_pieces(message.tags, len(others), sealing.TAG_SIZE, "the confirmations")
        self._confirmations[place] = others, message.tags

    def take_unmask(self, place: int, message: Unmask) -> None:
        """Keep the shares that a survivor releases."""
        owners = decode_users(message.owners, len(self.epoch.pod))
        held = np.zeros(len(self.epoch.pod), np.bool_)
        held[self.order.partners(place)] = held[place] = True
        if not held[owners].all():
            raise InvalidShare(f"user {self._user(place)} sends shares of secrets that it does not hold")
        if len(message.shares) != shamir.SHARE_SIZE * len(owners):
            raise MalformedMessage(
                f"{len(owners)} shares take {shamir.SHARE_SIZE * len(owners)} bytes, got {len(message.shares)}"
            )
        if shamir.decode_shares(message.shares) is None:
            raise InvalidShare(f"user {self._user(place)} sends a share outside the field")
        self._unmask[place] = message

    # Closing

    def declare(self) -> bytes:
        """End UPLOAD: settle who survived, and return the set."""
        self.survivors = np.array(sorted(self._tags), np.int64)
        self._survived = set(self._tags)
        for number, members in enumerate(self.epoch.pod.committees):
            left = len(self._survived.intersection(members.tolist()))
            if left < self.epoch.min_survivors[number]:
                self._lose(number, f"{left} survivors, {self.epoch.min_survivors[number]} are needed")
        if len(self.survivors) < self.epoch.threshold:
            self._lose_all(f"{len(self.survivors)} of {self.epoch.threshold} users that a pod needs")
        return encode_users(self.survivors, len(self.epoch.pod))

    @property
    def over(self) -> bool:
        """Whether nothing of this pod can be opened any more."""
        return len(self.lost) == len(self.epoch.pod.committees)

    def confirm_requests(self) -> dict[int, bytes]:
        """Return what tells the survivors who they are, to be confirmed."""
        bitmap = encode_users(self.survivors, len(self.epoch.pod))
        request = encode(ConfirmRequest(self.order.round_number, self.order.view, bitmap))
        return dict.fromkeys(self.survivors.tolist(), request)

    def settle(self) -> None:
        """End CONFIRM: nobody releases a share unless enough users have confirmed the survivors."""
        if len(self._confirmations) < self.epoch.threshold:
            self._lose_all(f"{len(self._confirmations)} of the {self.epoch.threshold} users that a pod needs confirmed")

    def unmask_requests(self) -> dict[int, bytes]:
        """Return what asks the survivors for shares: the survivors' tags, and confirmations where there are any."""
        size = len(self.epoch.pod)
        bitmap = encode_users(self.survivors, size)
        asked = sorted(self._confirmations) if self.epoch.params.confirm else self.survivors.tolist()
        tags = sorted_by_receiver(self._tags, sealing.TAG_SIZE)
        confirmations = sorted_by_receiver(self._confirmations, sealing.TAG_SIZE)
        outbound = {}
        for place in asked:
            confirmers = self._among(self.order.partners(place), self._confirmations)
            outbound[place] = encode(
                UnmaskRequest(
                    self.order.round_number,
                    self.order.view,
                    bitmap,
                    tags.get(place, b""),
                    encode_users(confirmers, size) if len(confirmers) else b"",
                    confirmations.get(place, b""),
                )
            )
        return outbound

    def _among(self, places: Users, some: Collection[int]) -> Users:
        """Return those places that are in a set."""
        included = np.zeros(len(self.epoch.pod), np.bool_)
        included[list(some)] = True
        return places[included[places]]

    def openings(self, total: Total) -> list[Callable[[], None]]:
        """Restore the secrets; return what opens each committee and adds it to the total.

        Committees are independent, so the calls may run in threads.
        """
        pod, order = self.epoch.pod, self.order
        if len(self._unmask) < self.epoch.threshold:
            self._lose_all(f"{len(self._unmask)} of the {self.epoch.threshold} users that a pod needs sent shares")
        numbers = [number for number in range(len(pod.committees)) if pod.first + number not in self.lost]
        owners = [place for number in numbers for place in order.committee(number).tolist()]
        restored = restore_secrets(order, owners, self._survived, self.packages, self._unmask)
        for holder, owner in restored.false_shares:
            self.false_shares.setdefault(self._user(holder), set()).add(self._user(owner))
        return [partial(self._open, number, restored, total) for number in numbers]

    def _open(self, number: int, restored: Restored, total: Total) -> None:
        """Remove the masks that are left in a committee's sum, and add it to the total."""
        secrets = restored.secrets
        members = self.order.committee(number).tolist()
        missing = [self._user(place) for place in members if place not in secrets]
        if missing:
            self._lose(number, f"the secret of user {missing[0]} can't be restored from the shares that were sent")
            return
        work = self._works.pop(number)  # Its memory is free as soon as it is opened.
        private = {self._user(place): secrets[place] for place in members if place in self._survived}
        orphaned = orphaned_pairs(self.order, number, self._survived, secrets, self.packages, restored.agreements)
        work.open(private, orphaned)
        if problem := work.problem():
            self._lose(number, problem)
            return
        with total.lock:
            work.add_to(total)

    def _lose(self, number: int, reason: str) -> None:
        self.lost.setdefault(self.epoch.pod.first + number, reason)

    def _lose_all(self, reason: str) -> None:
        for number in range(len(self.epoch.pod.committees)):
            self._lose(number, reason)

    def _user(self, place: int) -> int:
        return int(self.epoch.pod.users[place])
