"""The server's side of an epoch: keys come in, groups are drawn, and whatever users send later finds its pod."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.crypto.keys import require_usable
from sparsesecagg.errors import (
    DuplicateMessage,
    InvalidKey,
    MalformedMessage,
    ThresholdNotMet,
    TooFewJurors,
    UnknownSender,
    WrongRound,
    WrongView,
)
from sparsesecagg.patterns import Groups
from sparsesecagg.protocol.draw import is_large_enough
from sparsesecagg.protocol.draw_messages import encode_draw
from sparsesecagg.protocol.draw_server import DrawServer
from sparsesecagg.protocol.draws import GroupDraw, checked_groups, drawn_groups, plain_draw
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import (
    SEALED_SIZE,
    VIEW_SIZE,
    AdvertiseKeys,
    EpochKeys,
    ShareKeys,
    encode,
    encode_users,
    require_pieces,
)
from sparsesecagg.protocol.order import mask_key_of
from sparsesecagg.protocol.package import AHEAD
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.pod import ServerPod
from sparsesecagg.protocol.server_state import PodState, ServerState
from sparsesecagg.protocol.stages import Stage


class ServerEpoch:
    """The keys and the groups of one epoch. With a roster a jury draws the groups, else the server's seed does."""

    def __init__(
        self, params: Parameters, seed: bytes, roster: Roster | None, last_draw: int = 0, silent: Collection[int] = ()
    ) -> None:
        self.params = params
        self.roster = roster
        self.jury = None if roster is None else DrawServer(roster, params, last_draw=last_draw, silent=silent)
        self._seed = seed
        self._adverts: dict[int, AdvertiseKeys] = {}
        self._keys: set[bytes] = set()
        self._proof = b""
        """What shows users how the groups were drawn."""
        self.groups = Groups((), np.empty(0, np.int64))
        self.pods: list[ServerPod | None] = []
        """None for a pod too few of whose members advertised keys; empty before the draw."""

    def save(self, epoch_number: int, round_number: int) -> ServerState:
        """Return what is kept between rounds."""
        return ServerState(
            params=self.params.encode(),
            seed=self._seed,
            epoch_number=epoch_number,
            round_number=round_number,
            pods=[PodState(b"") if pod is None else pod.save() for pod in self.pods],
            draw=self._proof,
            last_draw=self.jury.last_draw if self.jury else 0,
            silent=sorted(self.jury.silent) if self.jury else [],
        )

    @staticmethod
    def restore(state: ServerState, params: Parameters, roster: Roster | None) -> ServerEpoch:
        """Return the epoch that `save` wrote down."""
        epoch = ServerEpoch(params, state.seed, roster, state.last_draw, state.silent)
        draw = (
            checked_groups(params, state.draw, 0, None, None, 0)
            if roster is None
            else drawn_groups(params, roster, state.draw, 0)
        )
        if len(state.pods) != len(draw.groups.pods):
            raise MalformedMessage("the saved pods are not those of the draw")
        epoch._proof, epoch.groups = state.draw, draw.groups
        epoch.pods = [
            ServerPod.restore(saved, params, draw.seed, pod) if saved.keys else None
            for saved, pod in zip(state.pods, draw.groups.pods, strict=True)
        ]
        return epoch

    # Keys and groups

    def take_keys(self, message: AdvertiseKeys) -> None:
        """Keep what a user advertises."""
        if message.view != self.params.digest[:VIEW_SIZE]:
            raise WrongView(f"user {message.sender}")
        if message.sealing_key in self._keys:
            raise InvalidKey(f"user {message.sender} advertises a sealing key that occurs twice")
        require_usable(message.sealing_key)  # Otherwise its whole pod would refuse the epoch.
        self._adverts[message.sender] = message
        self._keys.add(message.sealing_key)

    def name_jurors(self, jury: DrawServer) -> dict[int, bytes]:
        """Ask a jury to draw; those that stayed silent before are asked no more.

        A number whose jurors are away is passed over if nearly everybody else is here. Otherwise the server should wait
        for more users: there are few numbers.
        """
        while True:
            try:
                request = jury.name(self._adverts)
            except TooFewJurors:
                if not is_large_enough(len(self._adverts), self.params.clients):
                    raise
                jury.skip()
            else:
                return dict.fromkeys(jury.missing, encode_draw(request))

    def draw(self, epoch_number: int, first_round: int) -> dict[int, bytes]:
        """Draw the groups, and give everybody the sealing keys of its pod."""
        self._proof, draw = self._drawn()
        self.groups, self.pods = draw.groups, []
        outbound: dict[int, bytes] = {}
        for pod in draw.groups.pods:
            users = pod.users.tolist()
            present = np.array([place for place, user in enumerate(users) if user in self._adverts], np.int64)
            message = EpochKeys(
                epoch_number,
                self.params.digest[:VIEW_SIZE],
                first_round,
                self._proof,
                encode_users(present, len(pod)),
                b"".join(self._adverts[user].sealing_key for user in pod.users[present].tolist()),
            )
            epoch = Epoch(self.params, message, draw.seed, pod)
            if len(present) < epoch.threshold:
                self.pods.append(None)
                continue
            encoded = encode(message)
            self.pods.append(ServerPod(epoch, encoded))
            outbound |= dict.fromkeys(pod.users[present].tolist(), encoded)
        if not outbound:
            raise ThresholdNotMet(Stage.ADVERTISE_KEYS.name, len(self._adverts), self.params.threshold)
        return outbound

    def _drawn(self) -> tuple[bytes, GroupDraw]:
        """Return the groups, and what shows that they were drawn fairly."""
        if self.jury is None:
            return plain_draw(
                self.params, self._seed, {user: self._adverts[user].nonce for user in sorted(self._adverts)}
            )
        proof = encode_draw(self.jury.proof())
        return proof, drawn_groups(self.params, self.jury.roster, proof, 0)

    def never_started(self) -> dict[int, str]:
        """Return the committees of pods too few of whose members advertised keys."""
        return {
            group.first + number: "too few of its pod advertised keys"
            for group, pod in zip(self.groups.pods, self.pods, strict=True)
            if pod is None
            for number in range(len(group.committees))
        }

    # Packages

    def place_of(self, user: int) -> tuple[ServerPod, int]:
        """Return the pod and the place of a user that takes part in the epoch."""
        group = self.groups.pod_of(user) if self.pods else None
        pod = None if group is None else self.pods[group.index]
        if group is None or pod is None or group.place[user] not in pod.epoch:
            raise UnknownSender(user)
        return pod, group.place[user]

    def take_package(self, message: ShareKeys, round_number: int) -> None:
        """Keep a package that travels ahead, for one of the rounds after `round_number`."""
        pod, place = self.place_of(message.sender)
        if message.view != pod.epoch.view:
            raise WrongView(f"user {message.sender}")
        if not round_number < message.round_number <= round_number + AHEAD:
            raise WrongRound(message.round_number, round_number + 1)
        if place in pod.packages[message.round_number]:
            raise DuplicateMessage(message.sender, Stage.SHARE_KEYS.name)
        require_pieces(message.shares, len(pod.epoch.partners(place)), SEALED_SIZE, "the shares")
        require_usable(mask_key_of(message.head))
        pod.take_package(place, message)
