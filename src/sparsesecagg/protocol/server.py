"""The server's side of a run: a state machine without I/O.

`receive` takes one client message at a time, `close_stage` ends a stage and returns the next message for each client,
`begin_round` starts a round. A message that does not fit raises a typed error and changes nothing. All that happens
here is above the pods: groups are drawn, messages find their pod, and what the pods have opened is added up.
"""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec
import numpy as np

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.crypto.keys import require_usable
from sparsesecagg.errors import (
    DuplicateMessage,
    InvalidInput,
    InvalidKey,
    MalformedMessage,
    ThresholdNotMet,
    TooFewJurors,
    TooLittleOpened,
    UnknownSender,
    WrongRound,
    WrongSender,
    WrongStage,
    WrongView,
)
from sparsesecagg.patterns import Groups
from sparsesecagg.protocol.client import AHEAD
from sparsesecagg.protocol.draw import is_large_enough
from sparsesecagg.protocol.draw_messages import encode_draw
from sparsesecagg.protocol.draw_server import DrawServer
from sparsesecagg.protocol.draws import GroupDraw, checked_groups, drawn_groups, plain_draw, session_of
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import (
    SEALED_SIZE,
    VIEW_SIZE,
    AdvertiseKeys,
    Confirm,
    EpochKeys,
    Message,
    ShareKeys,
    Unmask,
    Upload,
    decode_client_message,
    encode,
    encode_users,
    require_pieces,
)
from sparsesecagg.protocol.order import NO_TERMS, mask_key_of
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.pod import ServerPod
from sparsesecagg.protocol.pod_round import PodRound
from sparsesecagg.protocol.result import Result
from sparsesecagg.protocol.server_state import PodState, ServerState, restore_server_state
from sparsesecagg.protocol.stages import Stage, next_stage, round_stages
from sparsesecagg.protocol.threads import call_all
from sparsesecagg.protocol.work import Total

_MESSAGE_OF: dict[Stage, type[Message]] = {
    Stage.ADVERTISE_KEYS: AdvertiseKeys,
    Stage.UPLOAD: Upload,
    Stage.CONFIRM: Confirm,
    Stage.UNMASK: Unmask,
}
Sizes = dict[str, dict[int, int]]
Kept = TypeVar("Kept")


class Server:
    """A run. Feed it with `receive`, end each stage with `close_stage`, start rounds with `begin_round`, read `result`.

    In a plain run `seed` is the server's part of the draw, to which `params.session` commits it (`session_of`).
    Committees are opened in as many `threads`, by default one for each processor.
    """

    def __init__(
        self,
        params: Parameters,
        seed: bytes = bytes(32),
        roster: Roster | None = None,
        threads: int | None = None,
    ) -> None:
        params.check()
        if threads is not None and threads < 1:
            raise InvalidInput("threads", f"must be at least 1, got {threads}")
        self.threads = threads or os.cpu_count() or 1
        if not params.authenticated and params.session != session_of(seed):
            raise InvalidInput("session", "must commit to the server's seed: session_of(seed)")
        self.params = params
        if params.authenticated and (roster is None or roster.digest != params.roster_digest):
            raise InvalidInput("roster", "must be given in an authenticated run, the one that the parameters name")
        self.roster = roster
        self._draw = DrawServer(roster, params) if roster is not None else None
        self._stage = Stage.ADVERTISE_KEYS
        self._result: Result | None = None
        self.epoch_number = 1
        self.round_number = 0
        self._seed = seed
        self._present: set[int] = set(range(params.clients))
        """Who may send in this stage."""
        self._heard: set[int] = set()
        """Who has sent in this stage."""
        self._adverts: dict[int, AdvertiseKeys] = {}
        self._keys: set[bytes] = set()
        self._proof = b""
        """What shows users how the groups were drawn."""
        self.groups = Groups((), np.empty(0, np.int64))
        self._pods: list[ServerPod | None] = []
        """None for a pod too few of whose members advertised keys."""
        self._rounds: list[PodRound] = []
        self._round_of: dict[int, PodRound] = {}
        """The same by the pod's number."""
        self._demanded = 0.0
        self.dropped: dict[str, int] = {Stage.ADVERTISE_KEYS.name: 0}
        self._forget_sizes()

    def receive(self, data: bytes, sender: int | None = None) -> int:
        """Take one message; return its sender.

        `sender` is who the transport says it came from, if it knows. Raises a typed error, and changes nothing, for
        a message that is malformed, late, early, of another round, a second one, or from somebody unknown.
        """
        if self.stage is Stage.DRAW:
            return self._take_reveal(data, sender)
        message = decode_client_message(data)
        if sender not in (None, message.sender):
            raise WrongSender(message.sender, sender)
        if message.sender >= self.params.clients:
            raise UnknownSender(message.sender)
        if isinstance(message, ShareKeys):
            self._take_package(message)
            sizes = self.sent_bytes[Stage.SHARE_KEYS.name]
            sizes[message.sender] = sizes.get(message.sender, 0) + len(data)
            return message.sender
        if not isinstance(message, _MESSAGE_OF.get(self.stage, ())):
            raise WrongStage(type(message).__name__, self.stage.name)
        expected = self.epoch_number if self.stage is Stage.ADVERTISE_KEYS else self.round_number
        if message.round_number != expected:
            raise WrongRound(message.round_number, expected)
        if message.sender not in self._present:
            raise UnknownSender(message.sender)
        if message.sender in self._heard:
            raise DuplicateMessage(message.sender, self.stage.name)
        if isinstance(message, AdvertiseKeys):
            self._take_keys(message)
        else:
            self._take(message)
        self._heard.add(message.sender)
        self.sent_bytes[self.stage.name][message.sender] = len(data)
        return message.sender

    @property
    def stage(self) -> Stage:
        """The stage whose messages `receive` takes; `Stage.DONE` between two rounds."""
        return self._stage

    @property
    def result(self) -> Result | None:
        """The outcome of the last round; None before the first, during a round, and after one that failed."""
        return self._result

    @property
    def waiting_for(self) -> set[int]:
        """The users that may still send in this stage."""
        return self._present - self._heard

    def save(self) -> bytes:
        """Return the run as bytes, for a server that is to be started again; at any time once the groups are drawn.

        A round that is under way is over for the restored server, and the next one follows. So save before the orders
        of a round leave, since its number must not be used twice, and before the requests for UNMASK leave, since users
        refuse rounds after one that they helped to open and that is not declared.
        """
        if not self._pods:
            raise WrongStage("save", self.stage.name)
        state = ServerState(
            params=self.params.encode(),
            seed=self._seed,
            epoch_number=self.epoch_number,
            round_number=self.round_number,
            pods=[PodState(b"") if pod is None else pod.save() for pod in self._pods],
            draw=self._proof,
            last_draw=self._draw.last_draw if self._draw else 0,
            silent=sorted(self._draw.silent) if self._draw else [],
        )
        return msgspec.msgpack.encode(state)

    @staticmethod
    def restore(data: bytes, roster: Roster | None = None, threads: int | None = None) -> Server:
        """Return the server that `save` wrote down; the roster of an authenticated run is given again."""
        state = restore_server_state(data)
        server = Server(Parameters.decode(state.params), state.seed, roster, threads)
        draw = (
            checked_groups(server.params, state.draw, 0, None, None, 0)
            if roster is None
            else drawn_groups(server.params, roster, state.draw, 0)
        )
        if len(state.pods) != len(draw.groups.pods):
            raise MalformedMessage("the saved pods are not those of the draw")
        server._proof, server.groups = state.draw, draw.groups
        server._pods = [
            ServerPod.restore(saved, server.params, draw.seed, pod) if saved.keys else None
            for saved, pod in zip(state.pods, draw.groups.pods, strict=True)
        ]
        if roster is not None:
            server._draw = DrawServer(roster, server.params, last_draw=state.last_draw, silent=state.silent)
        server.epoch_number, server.round_number = state.epoch_number, state.round_number
        server._stage = Stage.DONE
        server._forget_sizes()
        return server

    # The epoch

    def begin_epoch(self, epoch_number: int | None = None) -> None:
        """Ask for new keys, for groups that a jury draws anew: when those of the last epoch are no longer viable.

        Only with a roster: in a plain run the server's seed is known by then, so a new run takes its place. The number
        is the next one by default. Rounds and draws go on where they were.
        """
        number = self.epoch_number + 1 if epoch_number is None else epoch_number
        if self._draw is None:
            raise InvalidInput("roster", "must be given: a plain run has one epoch, so start a new run")
        if number < self.epoch_number or (number == self.epoch_number and self._pods):
            raise WrongRound(number, self.epoch_number + 1)
        last = self._draw
        self._draw = DrawServer(last.roster, self.params, last_draw=last.last_draw, silent=last.silent)
        self._stage, self.epoch_number = Stage.ADVERTISE_KEYS, number
        self._present, self._heard = set(range(self.params.clients)), set()
        self._adverts, self._keys = {}, set()
        self.groups, self._pods, self._rounds = Groups((), np.empty(0, np.int64)), [], []
        self._round_of = {}
        self.dropped = {Stage.ADVERTISE_KEYS.name: 0}
        self._forget_sizes()

    def catch_up(self, round_number: int, draw: int = 0) -> None:
        """Pass over rounds and draws that users know of and this server does not, as after a restart."""
        if self.stage not in (Stage.ADVERTISE_KEYS, Stage.DONE):
            raise WrongStage("catch_up", self.stage.name)
        self.round_number = max(self.round_number, round_number)
        if self._draw is not None:
            self._draw.last_draw = max(self._draw.last_draw, draw)

    def _take_keys(self, message: AdvertiseKeys) -> None:
        if message.view != self.params.digest[:VIEW_SIZE]:
            raise WrongView(f"user {message.sender}")
        if message.sealing_key in self._keys:
            raise InvalidKey(f"user {message.sender} advertises a sealing key that occurs twice")
        require_usable(message.sealing_key)  # Otherwise its whole pod would refuse the epoch.
        self._adverts[message.sender] = message
        self._keys.add(message.sealing_key)

    def _name_jurors(self) -> dict[int, bytes]:
        """Ask a jury to draw; those that stayed silent before are asked no more.

        A number whose jurors are away is passed over if nearly everybody else is here. Otherwise the server should wait
        for more users: there are few numbers.
        """
        draw = _kept(self._draw)
        while True:
            try:
                request = draw.name(self._adverts)
            except TooFewJurors:
                if not is_large_enough(len(self._adverts), self.params.clients):
                    raise
                draw.skip()
            else:
                return self._go_to(Stage.DRAW, dict.fromkeys(draw.missing, encode_draw(request)))

    def _take_reveal(self, data: bytes, sender: int | None) -> int:
        draw = _kept(self._draw)
        user = draw.receive(data, sender)
        self._heard.add(user)
        self.sent_bytes[Stage.DRAW.name][user] = len(data)
        return user

    def _drawn(self) -> tuple[bytes, GroupDraw]:
        """Return the groups, and what shows that they were drawn fairly."""
        if self.roster is None:
            return plain_draw(
                self.params, self._seed, {user: self._adverts[user].nonce for user in sorted(self._adverts)}
            )
        proof = encode_draw(_kept(self._draw).proof())
        return proof, drawn_groups(self.params, self.roster, proof, 0)

    def _make_epoch(self) -> dict[int, bytes]:
        """Draw the groups, and give everybody the sealing keys of its pod."""
        nonces = self._adverts
        proof, draw = self._drawn()
        self.groups, self._pods, self._proof = draw.groups, [], proof
        outbound: dict[int, bytes] = {}
        for pod in draw.groups.pods:
            present = np.array([place for place, user in enumerate(pod.users.tolist()) if user in nonces], np.int64)
            keys = b"".join(self._adverts[user].sealing_key for user in pod.users[present].tolist())
            message = EpochKeys(
                self.epoch_number,
                self.params.digest[:VIEW_SIZE],
                self.round_number + 1,
                proof,
                encode_users(present, len(pod)),
                keys,
            )
            epoch = Epoch(self.params, message, draw.seed, pod)
            viable = len(present) >= epoch.threshold
            encoded = encode(message) if viable else b""
            self._pods.append(ServerPod(epoch, encoded) if viable else None)
            if viable:
                outbound |= dict.fromkeys(pod.users[present].tolist(), encoded)
        if not outbound:
            raise ThresholdNotMet(Stage.ADVERTISE_KEYS.name, len(nonces), self.params.threshold)
        return outbound

    # Packages

    def lacking(self, user: int) -> list[int]:
        """Return the rounds ahead for which a user could have sent its package and has not."""
        try:
            pod, place = self._place_of(user)
        except UnknownSender:
            return []
        ahead = range(self.round_number + 1, self.round_number + 1 + AHEAD)
        return [number for number in ahead if place not in pod.packages.get(number, {})]

    def _take_package(self, message: ShareKeys) -> None:
        pod, place = self._place_of(message.sender)
        if message.view != pod.epoch.view:
            raise WrongView(f"user {message.sender}")
        if not self.round_number < message.round_number <= self.round_number + AHEAD:
            raise WrongRound(message.round_number, self.round_number + 1)
        if place in pod.packages[message.round_number]:
            raise DuplicateMessage(message.sender, Stage.SHARE_KEYS.name)
        require_pieces(message.shares, len(pod.epoch.partners(place)), SEALED_SIZE, "the shares")
        require_usable(mask_key_of(message.head))
        pod.take_package(place, message)

    def _place_of(self, user: int) -> tuple[ServerPod, int]:
        """Return the pod and the place of a user that takes part in the epoch."""
        group = self.groups.pod_of(user) if self._pods else None
        pod = None if group is None else self._pods[group.index]
        if group is None or pod is None or group.place[user] not in pod.epoch:
            raise UnknownSender(user)
        return pod, group.place[user]

    def dealt(self, round_number: int) -> set[int]:
        """Return the users whose package for a round has arrived: only they can take part in it."""
        return {
            int(pod.epoch.pod.users[place])
            for pod in self._pods
            if pod is not None
            for place in pod.packages.get(round_number, {})
        }

    # A round

    def begin_round(
        self, round_number: int | None = None, *, terms: bytes = NO_TERMS, min_updated: float = 0.0
    ) -> dict[int, bytes]:
        """Start a round, the next one by default; return the order for each member.

        `terms` is a digest of everything else that decides what users contribute, the model for one. `min_updated` is
        the fraction of the coordinates that must be opened for the round to count.
        """
        if self.stage is not Stage.DONE or not any(self._pods):
            raise WrongStage("begin_round", self.stage.name)
        if len(terms) != DIGEST_SIZE:
            raise InvalidInput("terms", f"must have {DIGEST_SIZE} bytes, got {len(terms)}")
        if not 0 <= min_updated <= 1:
            raise InvalidInput("min_updated", f"must be in [0, 1], got {min_updated}")
        number = self.round_number + 1 if round_number is None else round_number
        if number <= self.round_number:
            raise WrongRound(number, self.round_number + 1)
        self.round_number, self._result, self._demanded = number, None, min_updated
        self._forget_sizes()
        self._rounds, self._round_of, absent = [], {}, 0
        outbound: dict[int, bytes] = {}
        for pod in self._pods:
            if pod is None:
                continue
            packages = pod.packages_of(number)
            absent += len(pod.epoch.present) - len(packages)
            pod_round = PodRound(pod.epoch, number, packages, terms, pod.chain)
            self._rounds.append(pod_round)
            self._round_of[pod.epoch.pod.index] = pod_round
            orders = pod_round.orders({place: pod.unknown_to(place) for place in packages})
            outbound |= self._by_user(pod_round, orders)
        self.dropped = {Stage.SHARE_KEYS.name: absent}
        return self._go_to(Stage.UPLOAD, outbound)

    def _take(self, message: Upload | Confirm | Unmask) -> None:
        pod, place = self._place_of(message.sender)
        pod_round = self._round_of[pod.epoch.pod.index]
        if message.view != pod_round.order.view:
            raise WrongView(f"user {message.sender}")
        match message:
            case Upload():
                pod_round.take_upload(place, message)
                pod.last_upload[place] = self.round_number
            case Confirm():
                pod_round.take_confirm(place, message)
            case Unmask():
                pod_round.take_unmask(place, message)

    def close_stage(self) -> dict[int, bytes]:
        """End the stage: count who dropped out, and return the next message for each who did not.

        Raises `ThresholdNotMet` or `TooLittleOpened` when too little is left; then the round is over. After UNMASK the
        answer is empty and `result` is set.
        """
        if self.stage is Stage.DONE:
            raise WrongStage("close_stage", self.stage.name)
        stage, heard = self.stage, len(self._heard)
        if stage is Stage.ADVERTISE_KEYS and self._draw is not None:
            self.dropped[stage.name] = len(self._present) - heard
            return self._name_jurors()
        if stage is Stage.DRAW and _kept(self._draw).missing:
            _kept(self._draw).give_up()
            return self._name_jurors()
        self.dropped[stage.name] = len(self._present) - heard
        self._stage = Stage.DONE  # A round that fails below is over.
        if stage in (Stage.ADVERTISE_KEYS, Stage.DRAW):
            outbound = self._make_epoch()
            self.received_bytes[Stage.ADVERTISE_KEYS.name] = {user: len(data) for user, data in outbound.items()}
            return outbound
        if stage is Stage.UPLOAD:
            for pod_round in self._rounds:
                pod, _ = self._place_of(int(pod_round.epoch.pod.users[int(pod_round.epoch.present[0])]))
                survivors = pod_round.declare()
                if not pod_round.over:
                    pod.declare(self.round_number, survivors)
        if stage is Stage.CONFIRM:
            for pod_round in self._rounds:
                pod_round.settle()
        if stage is Stage.UNMASK:
            self._open()
            return {}
        self._require_any(stage, heard)
        following = next_stage(stage, self.params.confirm)
        outbound = {}
        for pod_round in self._rounds:
            if not pod_round.over:
                asked = pod_round.confirm_requests() if following is Stage.CONFIRM else pod_round.unmask_requests()
                outbound |= self._by_user(pod_round, asked)
        return self._go_to(following, outbound)

    def _go_to(self, stage: Stage, outbound: dict[int, bytes]) -> dict[int, bytes]:
        self._stage = stage
        self._present, self._heard = set(outbound), set()
        self.received_bytes[stage.name] = {user: len(data) for user, data in outbound.items()}
        return outbound

    @staticmethod
    def _by_user(pod_round: PodRound, messages: dict[int, bytes]) -> dict[int, bytes]:
        users = pod_round.epoch.pod.users
        return {int(users[place]): data for place, data in messages.items()}

    def _require_any(self, stage: Stage, heard: int) -> None:
        """Raise if nothing can be opened any more."""
        if not all(pod_round.over for pod_round in self._rounds):
            return
        needed = sum(pod_round.epoch.threshold for pod_round in self._rounds)
        if heard < needed:
            raise ThresholdNotMet(stage.name, heard, needed)
        reasons = [reason for pod_round in self._rounds for reason in pod_round.lost.values()]
        raise TooLittleOpened(0.0, self._demanded, f"{reasons[0]} at {stage.name}")

    def _open(self) -> None:
        """Open all pods, add them up, and write the result."""
        total = Total(self.params)
        openings = [
            opening for pod_round in self._rounds if not pod_round.over for opening in pod_round.openings(total)
        ]
        call_all(openings, self.threads)
        self._require_any(Stage.UNMASK, len(self._heard))
        public = self.params.pattern != "pairwise"
        lost = {number: reason for each in self._rounds for number, reason in each.lost.items()}
        lost |= self._never_started()
        result = Result(
            params=self.params,
            round_number=self.round_number,
            values=total.values,
            counts=total.contributors,
            weight_per_slice=total.weights if self.params.max_weight else None,
            clipped=total.clipped if public else None,
            survivors=tuple(
                sorted(int(user) for each in self._rounds for user in each.epoch.pod.users[each.survivors])
            ),
            lost=lost,
            committees_opened=sum(len(group.committees) for group in self.groups.pods) - len(lost),
            dropped=dict(self.dropped),
            sent_bytes={stage: tuple(sizes.values()) for stage, sizes in self.sent_bytes.items()},
            received_bytes={stage: tuple(sizes.values()) for stage, sizes in self.received_bytes.items()},
            false_shares={
                holder: tuple(sorted(owners)) for each in self._rounds for holder, owners in each.false_shares.items()
            },
        )
        if result.coordinates_updated < self._demanded:
            reasons = list(result.lost.values())
            raise TooLittleOpened(result.coordinates_updated, self._demanded, reasons[0] if reasons else "nothing sent")
        self._result = result

    def _never_started(self) -> dict[int, str]:
        """Return the committees of pods too few of whose members advertised keys."""
        return {
            group.first + number: "too few of its pod advertised keys"
            for group, pod in zip(self.groups.pods, self._pods, strict=True)
            if pod is None
            for number in range(len(group.committees))
        }

    def _forget_sizes(self) -> None:
        stages = (
            (Stage.ADVERTISE_KEYS, Stage.DRAW, Stage.SHARE_KEYS)
            if self.stage is Stage.ADVERTISE_KEYS
            else (Stage.SHARE_KEYS, *round_stages(self.params.confirm))
        )
        self.sent_bytes: Sizes = {stage.name: {} for stage in stages}
        """By stage and user: bytes of this round; before the first round, of the set-up."""
        self.received_bytes: Sizes = {stage.name: {} for stage in stages}


def _kept(value: Kept | None) -> Kept:
    """Return what an earlier stage has set."""
    assert value is not None  # noqa: S101  # The stages run in order.
    return value
