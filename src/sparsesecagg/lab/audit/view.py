"""What server and colluding users hold of a run, and not a bit more.

The server keeps every message. The colluders hand over every random byte they drew, from which all they ever knew
follows. From these alone the attacker restores what the protocol lets it: any secret of which enough shares were
released by honest users in UNMASK or lie with colluders, whether or not its committee was opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import AgreedSecret, SharedSecret
from sparsesecagg.field import unpack
from sparsesecagg.field.words import Words
from sparsesecagg.lab.audit.colluder import Colluder, Draws
from sparsesecagg.lab.audit.components import Ids, Nodes, open_components
from sparsesecagg.lab.audit.pooling import Pool, pooled_secrets
from sparsesecagg.protocol.draws import checked_groups, drawn_groups
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.history import read_history
from sparsesecagg.protocol.locations import decode_locations
from sparsesecagg.protocol.messages import (
    EpochKeys,
    Order,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    decode_client_message,
    decode_server_message,
    decode_users,
)
from sparsesecagg.protocol.order import OrderView, extend_chain, mask_key_of
from sparsesecagg.protocol.package import mask_private
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.sliced import Sliced
from sparsesecagg.protocol.stages import Stage
from sparsesecagg.protocol.work import Pair, Work
from sparsesecagg.protocol.works import work_of

Messages = Iterable[tuple[Stage, int, bytes]]
"""Stage, user and bytes of what was sent or received."""


class RunView:
    """The attacker's knowledge of a run. Feed it with the messages, then ask it for rounds."""

    def __init__(
        self,
        params: Parameters,
        colluders: Mapping[int, Draws],
        roster: Roster | None = None,
        identities: Mapping[int, Identity] | None = None,
    ) -> None:
        """`colluders` have drawn these bytes, and may draw more; `identities` are theirs, in an authenticated run."""
        self.params = params
        self._draws = colluders
        self._roster = roster
        self._identities = dict(identities or {})
        self._epochs: dict[int, Epoch] = {}
        """By pod."""
        self._colluders: dict[int, Colluder] = {}
        self._history: dict[int, dict[int, bytes]] = defaultdict(dict)
        """By pod and round: the survivors that were declared."""
        self._packages: dict[int, dict[int, ShareKeys]] = defaultdict(dict)
        self._orders: dict[int, dict[int, Order]] = defaultdict(dict)
        self._uploads: dict[int, dict[int, Upload]] = defaultdict(dict)
        self._requests: dict[int, dict[int, UnmaskRequest]] = defaultdict(dict)
        self._unmask: dict[int, dict[int, Unmask]] = defaultdict(dict)
        """All of these by round and user."""

    def take(self, sent: Messages, received: Messages) -> None:
        """File messages: those that users sent, and those that they received."""
        for stage, user, data in received:
            if stage is Stage.DRAW:
                continue
            message = decode_server_message(data)
            match message:
                case EpochKeys():
                    self._learn_epoch(user, message)
                case Order():
                    self._orders[message.round_number][user] = message
                case UnmaskRequest():
                    self._requests[message.round_number][user] = message
        for stage, _, data in sent:
            if stage is Stage.DRAW:
                continue
            answer = decode_client_message(data)
            match answer:
                case ShareKeys():
                    self._packages[answer.round_number][answer.sender] = answer
                case Upload():
                    self._uploads[answer.round_number][answer.sender] = answer
                case Unmask():
                    self._unmask[answer.round_number][answer.sender] = answer

    def _learn_epoch(self, user: int, message: EpochKeys) -> None:
        """Learn the groups and the keys of a pod from what one of its users was sent."""
        if self._roster is None:
            draw = checked_groups(self.params, message.draw, user, None, None, 0)
        else:
            draw = drawn_groups(self.params, self._roster, message.draw, 0)
        pod = draw.groups.pod_of(user)
        assert pod is not None  # noqa: S101  # Excluded users are sent nothing.
        if pod.index not in self._epochs:
            self._epochs[pod.index] = Epoch(self.params, message, draw.seed, pod)
        epoch = self._epochs[pod.index]
        if user in self._draws:
            self._colluders[user] = Colluder(epoch, pod.place[user], self._draws[user], self._identities.get(user))

    def round(self, number: int) -> View:
        """Return what is known of a round, all of whose messages were taken. Rounds are looked at in order."""
        pods = (self._pod_round(epoch, number) for epoch in self._epochs.values())
        return View(self.params, number, [pod for pod in pods if pod is not None])

    def _pod_round(self, epoch: Epoch, number: int) -> PodView | None:
        """Put together what belongs to one pod; None if none of its users was given an order."""
        place = epoch.pod.place
        orders = {place[user]: order for user, order in self._orders[number].items() if user in place}
        if not orders:
            return None
        history = self._history[epoch.pod.index]
        for order in orders.values():
            history |= dict(read_history(order.history, len(epoch.pod)))
        chain = epoch.digest
        for earlier in sorted(history):
            chain = extend_chain(chain, earlier, history[earlier])
        first = next(iter(orders.values()))
        view = OrderView(epoch, number, decode_users(first.members, len(epoch.pod)), first.terms, chain)
        view.settle(first.committees)
        return PodView(
            view,
            {place[user]: each for user, each in self._packages[number].items() if user in place},
            {place[user]: each for user, each in self._uploads[number].items() if user in place},
            {place[user]: each for user, each in self._requests[number].items() if user in place},
            {place[user]: each for user, each in self._unmask[number].items() if user in place},
            {place[user]: each for user, each in self._colluders.items() if user in place},
        )

    def forget(self, number: int) -> None:
        """Forget a round that was looked at, so that long runs take no more memory than short ones."""
        self._packages.pop(number, None)
        self._orders.pop(number, None)
        self._uploads.pop(number, None)
        self._requests.pop(number, None)
        self._unmask.pop(number, None)


class PodView:
    """One pod in one round. Users go by their places."""

    def __init__(
        self,
        order: OrderView,
        packages: Mapping[int, ShareKeys],
        uploads: Mapping[int, Upload],
        requests: Mapping[int, UnmaskRequest],
        unmask: Mapping[int, Unmask],
        colluders: Mapping[int, Colluder],
    ) -> None:
        self.order = order
        self.epoch = order.epoch
        self.members: list[int] = order.members.tolist()
        """Whose packages are used."""
        self.packages = packages
        self.uploads = uploads
        self.colluders = colluders
        self.honest = [place for place in self.members if place not in self.colluders]
        self.told = {
            place: set(decode_users(request.survivors, len(self.epoch.pod)).tolist())
            for place, request in requests.items()
        }
        """By holder: the survivors that it was told."""
        self.unmask = {place: message for place, message in unmask.items() if place not in self.colluders}
        """What honest holders have answered."""
        self.released = {
            place: set(decode_users(message.owners, len(self.epoch.pod)).tolist())
            for place, message in self.unmask.items()
        }
        """By honest holder: of whose secrets it gave a share away."""
        self.pool = self._pooled()

    def user(self, place: int) -> int:
        """Return the number of a member."""
        return int(self.epoch.pod.users[place])

    # What was uploaded

    def work(self, place: int) -> Work:
        """Return the work of a member's committee."""
        return work_of(self.order, int(self.epoch.pod.committee_of[place]))

    def read_upload(self, place: int) -> tuple[Ids, Words]:
        """Return the slices that a member sent, and its masked words, shape (slices, width)."""
        upload, params, work = self.uploads[place], self.epoch.params, self.work(place)
        if isinstance(work, Sliced):
            numbers, width = np.array(work.numbers, np.int64), params.width
        else:
            numbers, width = decode_locations(upload.locations, params.dim), 1
        words = unpack(upload.words, len(numbers) * width, params.word)
        return numbers, words.reshape(len(numbers), width)

    # Secrets

    def _pooled(self) -> Pool:
        """Return all shares that the attacker has: what honest holders released, and all that colluders were dealt."""
        pool = Pool(self.epoch)
        for holder, message in self.unmask.items():
            pool.add_released(holder, message, self.told[holder])
        for holder, colluder in self.colluders.items():
            # Whether or not it is a member of the round: the server has what was dealt to it.
            for owner in self.order.partners(holder).tolist():
                pool.add_dealt(holder, owner, colluder.open_pair(owner, self.order.round_number, self.packages[owner]))
        return pool

    @cached_property
    def _restored(self) -> tuple[dict[int, SharedSecret], dict[int, SharedSecret]]:
        return pooled_secrets(self.order, self.honest, self.packages, self.pool)

    @property
    def private_seeds(self) -> dict[int, SharedSecret]:
        """The seeds of honest members' private masks that could be restored."""
        return self._restored[1]

    @cached_property
    def agreements(self) -> dict[int, KeyAgreement]:
        """Whose private mask keys are known: honest members' that could be restored, and the colluders'."""
        secrets = {
            **self._restored[0],
            **{
                place: each.mask_secret(self.packages[place])
                for place, each in self.colluders.items()
                if self.order.is_member[place]
            },
        }
        number = self.order.round_number
        return {
            place: KeyAgreement(mask_private(self.epoch, number, self.user(place), secret))
            for place, secret in secrets.items()
        }

    def pair(self, place: int, peer: int) -> Pair:
        """Return a pair of which at least one private mask key is known."""
        return Pair(self.user(place), self.user(peer), agreed_between(self.agreements, self.packages, place, peer))

    # Sums

    @cached_property
    def sizes(self) -> dict[int, int]:
        """By honest member whose value is in a sum that can be opened: how many of them are in it, by the public graph.

        In `pairwise` the graph of a coordinate has fewer edges than the public one, and its components are smaller.
        """
        hidden = [place for place in self.honest if place not in self.agreements]
        opened = [place for place in self.honest if place in self.uploads and place in self.private_seeds]
        return open_components(hidden, opened, self.order.mask_peers)


class View:
    """The attacker's knowledge of one round."""

    def __init__(self, params: Parameters, number: int, pods: Sequence[PodView]) -> None:
        self.params = params
        self.number = number
        self.pods = pods

    @cached_property
    def place_of(self) -> dict[int, tuple[PodView, int]]:
        """By honest user whose value is in a sum that can be opened: its pod and place."""
        return {user: (pod, place) for pod in self.pods for user, place in sorted((pod.user(p), p) for p in pod.sizes)}

    @cached_property
    def nodes(self) -> Nodes:
        """What can be opened of the honest users' uploads, slice by slice."""
        sent = {user: pod.read_upload(place)[0] for user, (pod, place) in self.place_of.items()}
        return Nodes.of(sent, self.params.slices)

    @property
    def closed_values(self) -> int:
        """How many values of honest users' uploads are in no sum that can be opened."""
        closed = {
            pod.user(place): pod.read_upload(place)[0]
            for pod in self.pods
            for place in pod.honest
            if place in pod.uploads and place not in pod.sizes
        }
        return int(Nodes.of(closed, self.params.slices).coordinates.sum())

    @property
    def survivors(self) -> list[int]:
        """All users that some holder was told have survived."""
        told = ((pod, set().union(*pod.told.values())) for pod in self.pods)
        return sorted(pod.user(place) for pod, places in told for place in places)


def agreed_between(
    agreements: Mapping[int, KeyAgreement], packages: Mapping[int, ShareKeys], one: int, other: int
) -> AgreedSecret:
    """Agree as one of two members, whichever key is known."""
    if one in agreements:
        return agreements[one].with_peer(mask_key_of(packages[other].head))
    return agreements[other].with_peer(mask_key_of(packages[one].head))
