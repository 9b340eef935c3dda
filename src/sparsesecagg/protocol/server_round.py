"""The server's side of one round: that of its pods, side by side, and what they have opened added up."""

from __future__ import annotations

from collections.abc import Mapping

from sparsesecagg.errors import ThresholdNotMet, TooLittleOpened, WrongView
from sparsesecagg.protocol.messages import Confirm, Unmask, Upload
from sparsesecagg.protocol.pod import ServerPod
from sparsesecagg.protocol.pod_round import PodRound
from sparsesecagg.protocol.result import Result
from sparsesecagg.protocol.server_epoch import ServerEpoch
from sparsesecagg.protocol.stages import Stage
from sparsesecagg.protocol.threads import call_all
from sparsesecagg.protocol.work import Total

Sizes = dict[str, dict[int, int]]


class ServerRound:
    """One round of all pods. `min_updated` is the fraction of the coordinates that must be opened for it to count."""

    def __init__(self, epoch: ServerEpoch, number: int, terms: bytes, min_updated: float) -> None:
        self.params = epoch.params
        self.number = number
        self._epoch, self._demanded = epoch, min_updated
        self._pairs: list[tuple[ServerPod, PodRound]] = [
            (pod, PodRound(pod.epoch, number, pod.packages_of(number), terms, pod.chain))
            for pod in epoch.pods
            if pod is not None
        ]
        self.pods = [pod_round for _, pod_round in self._pairs]
        self._by_pod = {each.epoch.pod.index: each for each in self.pods}

    @property
    def absent(self) -> int:
        """How many of the epoch's users have no package in the round."""
        return sum(len(each.epoch.present) - len(each.packages) for each in self.pods)

    def orders(self) -> dict[int, bytes]:
        """Return the order for each member."""
        outbound: dict[int, bytes] = {}
        for pod, pod_round in self._pairs:
            orders = pod_round.orders({place: pod.unknown_to(place) for place in pod_round.packages})
            outbound |= _by_user(pod_round, orders)
        return outbound

    def take(self, message: Upload | Confirm | Unmask) -> None:
        """Hand a message to its pod."""
        pod, place = self._epoch.place_of(message.sender)
        pod_round = self._by_pod[pod.epoch.pod.index]
        if message.view != pod_round.order.view:
            raise WrongView(f"user {message.sender}")
        match message:
            case Upload():
                pod_round.take_upload(place, message)
                pod.last_upload[place] = self.number
            case Confirm():
                pod_round.take_confirm(place, message)
            case Unmask():
                pod_round.take_unmask(place, message)

    def close(self, stage: Stage, heard: int) -> None:
        """End UPLOAD or CONFIRM, in which so many were heard; raise if nothing can be opened any more."""
        for pod, pod_round in self._pairs:
            if stage is Stage.CONFIRM:
                pod_round.settle()
                continue
            survivors = pod_round.declare()
            if not pod_round.over:
                pod.declare(self.number, survivors)
        self._require_any(stage, heard)

    def requests(self, stage: Stage) -> dict[int, bytes]:
        """Return what is asked of each survivor at CONFIRM or UNMASK."""
        outbound: dict[int, bytes] = {}
        for pod_round in self.pods:
            if not pod_round.over:
                asked = pod_round.confirm_requests() if stage is Stage.CONFIRM else pod_round.unmask_requests()
                outbound |= _by_user(pod_round, asked)
        return outbound

    def open(
        self, heard: int, threads: int, dropped: Mapping[str, int], sent_bytes: Sizes, received_bytes: Sizes
    ) -> Result:
        """Open all pods, in as many threads, add them up, and return the result; raise if too little was opened."""
        total = Total(self.params)
        call_all([one for pod in self.pods if not pod.over for one in pod.openings(total)], threads)
        self._require_any(Stage.UNMASK, heard)
        lost = {number: reason for each in self.pods for number, reason in each.lost.items()}
        lost |= self._epoch.never_started()
        result = Result(
            params=self.params,
            round_number=self.number,
            values=total.values,
            counts=total.contributors,
            weight_per_slice=total.weights if self.params.max_weight else None,
            clipped=total.clipped if self.params.pattern != "pairwise" else None,
            survivors=tuple(sorted(int(user) for each in self.pods for user in each.epoch.pod.users[each.survivors])),
            lost=lost,
            committees_opened=sum(len(group.committees) for group in self._epoch.groups.pods) - len(lost),
            dropped=dict(dropped),
            sent_bytes={stage: tuple(sizes.values()) for stage, sizes in sent_bytes.items()},
            received_bytes={stage: tuple(sizes.values()) for stage, sizes in received_bytes.items()},
            false_shares={
                holder: tuple(sorted(owners)) for each in self.pods for holder, owners in each.false_shares.items()
            },
        )
        if result.coordinates_updated < self._demanded:
            reasons = list(result.lost.values())
            raise TooLittleOpened(result.coordinates_updated, self._demanded, reasons[0] if reasons else "nothing sent")
        return result

    def _require_any(self, stage: Stage, heard: int) -> None:
        """Raise if nothing can be opened any more."""
        if not all(pod_round.over for pod_round in self.pods):
            return
        needed = sum(pod_round.epoch.threshold for pod_round in self.pods)
        if heard < needed:
            raise ThresholdNotMet(stage.name, heard, needed)
        reasons = [reason for pod_round in self.pods for reason in pod_round.lost.values()]
        raise TooLittleOpened(0.0, self._demanded, f"{reasons[0]} at {stage.name}")


def _by_user(pod_round: PodRound, messages: dict[int, bytes]) -> dict[int, bytes]:
    users = pod_round.epoch.pod.users
    return {int(users[place]): data for place, data in messages.items()}
