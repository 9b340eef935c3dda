"""A server that lies about who dropped out, to leave as few honest users in a sum as the clients let it.

It follows the protocol in everything else and talks to real clients. Two lies:

- It declares users dropped that have uploaded, the same ones to everybody. Clients demand `min_survivors` in a
  committee and `threshold` in a pod, and stop for good when they are declared dropped too often; so the server spreads
  its victims evenly.
- Where users do not confirm the survivors to each other, it tells different holders different survivors. Then more
  members can be left out than by one set: a member's mask key opens when `threshold` holders were told that it
  dropped. With a threshold of 2t ≤ P + c_P (c_P colluders in a pod of P) both secrets of everybody open. Whoever
  answered notices with the next order, so this lie is told once, in the last round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.identity import Roster
from sparsesecagg.protocol.messages import (
    UnmaskRequest,
    Upload,
    decode_client_message,
    encode,
    encode_users,
    pieces,
)
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.pod_round import PodRound
from sparsesecagg.protocol.server import Server
from sparsesecagg.protocol.stages import Stage


@dataclass(frozen=True)
class Present:
    """Who of a committee has uploaded, by place, and how many of it must survive."""

    honest: list[int]
    colluders: int
    least: int

    @property
    def may_drop(self) -> int:
        """How many honest members a holder can be told have dropped; 0 if the committee can't be opened."""
        spare = len(self.honest) + self.colluders - self.least
        return max(0, min(spare, len(self.honest) - 1))


def victims(committees: Mapping[int, Present], spare: int, excluded: Mapping[int, int]) -> set[int]:
    """Return the honest members to declare dropped, the same to everybody.

    `spare` is how many of the pod can be left out; committees that end with the fewest honest users come first. Those
    that were excluded least often so far are left out first.
    """
    chosen: set[int] = set()
    by_honest_left = sorted(committees.values(), key=lambda each: len(each.honest) - each.may_drop)
    for committee in by_honest_left:
        count = min(committee.may_drop, spare - len(chosen))
        chosen.update(sorted(committee.honest, key=lambda place: (excluded[place], place))[: max(0, count)])
    return chosen


def told_dropped(
    committees: Mapping[int, Present], holders: Collection[int], *, spare: int, votes: int
) -> dict[int, set[int]]:
    """Return for each honest holder whom to tell it dropped, so that the fewest honest members stay in the sums.

    A member counts as dropped if `votes` honest holders were told so. A holder is never told that it dropped itself.
    """
    told: dict[int, set[int]] = {holder: set() for holder in holders}
    if votes <= 0:
        return told  # Colluders hold enough shares of everything: no lie is needed.
    by_honest_left = sorted(committees.values(), key=lambda each: len(each.honest) - len(told) * each.may_drop // votes)
    for committee in by_honest_left:
        each, found = _everybody(committee, holders, spare, votes)
        if not found:
            each, found = _most(committee, holders, min(committee.may_drop, spare), votes)
        for holder, lie in found.items():
            told[holder] |= lie
        spare -= each
    return told


def _everybody(committee: Present, holders: Collection[int], spare: int, votes: int) -> tuple[int, dict[int, set[int]]]:
    """Find votes by which both secrets of every honest member open; it takes 2t ≤ P + c_P."""
    most = min(len(committee.honest) + committee.colluders - committee.least, spare)
    for each in range(1, most + 1) if 2 * votes <= len(holders) else ():
        found = _votes(committee.honest, holders, each)
        against = Counter(place for lie in found.values() for place in lie)
        if all(votes <= against[place] <= len(holders) - votes for place in committee.honest):
            return each, found
    return 0, {}


def _most(committee: Present, holders: Collection[int], each: int, votes: int) -> tuple[int, dict[int, set[int]]]:
    """Find votes by which the most honest members count as dropped, one at least being left."""
    for count in range(min(len(committee.honest) - 1, len(holders) * each // votes), 0, -1):
        found = _votes(committee.honest[:count], holders, each)
        against = Counter(place for lie in found.values() for place in lie)
        if all(against[place] >= votes for place in committee.honest[:count]):
            return each, found
    return 0, {}


def _votes(targets: list[int], holders: Collection[int], each: int) -> dict[int, set[int]]:
    """Spread the holders' votes evenly over the targets, at most `each` per holder."""
    against = dict.fromkeys(targets, 0)
    found = {}
    for holder in sorted(holders, key=lambda place: place not in against):  # Targets have less choice: they go first.
        lie = sorted((place for place in targets if place != holder), key=lambda place: against[place])[:each]
        for place in lie:
            against[place] += 1
        found[holder] = set(lie)
    return found


class LyingServer(Server):
    """A server that chooses who has dropped out."""

    def __init__(
        self,
        params: Parameters,
        seed: bytes,
        roster: Roster | None = None,
        *,
        colluders: Collection[int] = (),
        last_round: int = 0,
    ) -> None:
        """`last_round` is the round in which different users are told different survivors, where that is possible."""
        super().__init__(params, seed, roster)
        self._helpers = set(colluders)
        self._last_round = last_round
        self._held: dict[int, tuple[bytes, Upload]] = {}
        """Uploads that arrived in this round, by user."""
        self._excluded: Counter[int] = Counter()
        """By user: how often it was declared dropped though it had uploaded."""

    @property
    def _splits(self) -> bool:
        return not self.params.confirm and self.round_number == self._last_round

    def receive(self, data: bytes, sender: int | None = None) -> int:
        """Hold uploads back until all have arrived, and keep from the honest server's eyes what follows a split."""
        if self.stage is Stage.UPLOAD:
            message = decode_client_message(data)
            if isinstance(message, Upload):
                self._held[message.sender] = data, message
                return message.sender
        if self.stage is Stage.UNMASK and self._splits:
            return decode_client_message(data).sender
        return super().receive(data, sender)

    def close_stage(self) -> dict[int, bytes]:
        """Tell the lies where UPLOAD ends."""
        if self.stage is not Stage.UPLOAD:
            return super().close_stage()
        held, self._held = self._held, {}
        if not self._splits:
            left_out = {user for pod in self.pod_rounds for user in self._left_out(pod, held)}
            self._excluded.update(left_out)
        else:
            left_out = set()
        for user, (data, _) in held.items():
            if user not in left_out:
                super().receive(data, user)
        honest_requests = super().close_stage()
        if not self._splits:
            return honest_requests
        requests = {user: data for pod in self.pod_rounds for user, data in self._split(pod, held).items()}
        return {user: requests.get(user, data) for user, data in honest_requests.items()}

    def _left_out(self, pod: PodRound, held: Mapping[int, tuple[bytes, Upload]]) -> set[int]:
        """Return the users of a pod to declare dropped."""
        users = pod.epoch.pod.users.tolist()
        uploaded = [place for place in pod.order.members.tolist() if users[place] in held]
        excluded = {place: self._excluded[users[place]] for place in uploaded}
        chosen = victims(self._committees(pod, uploaded), len(uploaded) - pod.epoch.threshold, excluded)
        return {users[place] for place in chosen}

    def _committees(self, pod: PodRound, uploaded: Collection[int]) -> dict[int, Present]:
        """Return who is left of each committee that can be opened at all."""
        users, found = pod.epoch.pod.users.tolist(), {}
        for number, least in enumerate(pod.epoch.min_survivors):
            left = [place for place in pod.order.committee(number).tolist() if place in uploaded]
            honest = [place for place in left if users[place] not in self._helpers]
            if len(left) >= least and honest:
                found[number] = Present(honest, len(left) - len(honest), least)
        return found

    def _split(self, pod: PodRound, held: Mapping[int, tuple[bytes, Upload]]) -> dict[int, bytes]:
        """Return a request of its own for each honest holder of a pod."""
        users, order = pod.epoch.pod.users.tolist(), pod.order
        uploaded = [place for place in order.members.tolist() if users[place] in held]
        holders = [place for place in uploaded if users[place] not in self._helpers]
        helpers = sum(users[place] in self._helpers for place in pod.epoch.present.tolist())
        told = told_dropped(
            self._committees(pod, uploaded),
            holders,
            spare=len(uploaded) - pod.epoch.threshold,
            votes=pod.epoch.threshold - helpers,
        )
        requests = {}
        for holder, dropped in told.items():
            survivors = [place for place in uploaded if place not in dropped]
            partners = [place for place in order.partners(holder).tolist() if place in survivors]
            tags = b"".join(_tag_for(pod, place, holder, held[users[place]][1]) for place in partners)
            bitmap = encode_users(np.array(survivors, np.int64), len(pod.epoch.pod))
            requests[users[holder]] = encode(UnmaskRequest(order.round_number, order.view, bitmap, tags))
        return requests


def _tag_for(pod: PodRound, sender: int, receiver: int, upload: Upload) -> bytes:
    """Return the tag that a member's upload has for another one."""
    partners = pod.order.partners(sender)
    tags = pieces(upload.tags, len(partners), sealing.TAG_SIZE, "the tags")
    return tags[int(np.searchsorted(partners, receiver))]
