"""The server's side of a run: the protocol's `Server`, fed through Flower, and kept in a folder.

A run begins with an exchange of keys among the nodes that were chosen then, or the users of a roster. After that every
round has two exchanges, UPLOAD and UNMASK, and CONFIRM between them where it is asked for: keys of later rounds ride on
UPLOAD's replies.

A server that was ended in the middle goes on from two files, each replaced as a whole. `model.state` is written after
every round: the model, the steps that led to it, what the wrapped strategy remembers, and how many rounds are done.
`run.state` is written as a round begins and again when its survivors are declared, before any node opens anything:
nodes that have helped to open a round demand to see it declared. A round that was under way is lost, and its number
with it. Nothing in either file is a secret of a node. A run that is over leaves neither.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result as FlowerResult
from flwr.serverapp.strategy import Strategy

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.flower.courier import Courier, by_request
from sparsesecagg.flower.exchanges import Exchanges
from sparsesecagg.flower.figures import RoundRecord
from sparsesecagg.flower.records import Invitation, Packet, Value
from sparsesecagg.errors import InvalidInput, ProtocolError
from sparsesecagg.files import write_atomically
from sparsesecagg.protocol import Parameters, Result, Server, Stage

_LOG = logging.getLogger("flwr")
VIABLE = 0.5
"""A run goes on as long as this part of its committees can be opened, and this part of the chosen nodes are in it."""
_LARGEST_CLAIM = 1 << 40
_VERSION = 1
_MODEL, _RUN = "model.state", "run.state"
_MEMORY = ("m_t", "v_t", "momentum_vector")
"""What Flower's strategies keep from round to round: FedAdam's kind two moments by name, FedAvgM a list."""
SavedArrays = list[tuple[str, str, list[int], str, bytes]]


class SecureRun(Exchanges):
    """One run of the protocol among nodes of Flower. `last_round` is the last one before it: no number comes twice."""

    def __init__(
        self,
        params: Parameters,
        courier: Courier,
        timeouts: Mapping[Stage, float | None],
        *,
        seed: bytes = bytes(32),
        roster: Roster | None = None,
        epoch_number: int = 1,
        last_round: int = 0,
    ) -> None:
        super().__init__(Server(params, seed, roster), courier, timeouts, roster)
        if roster is not None:
            self.server.begin_epoch(epoch_number)
        self.server.catch_up(last_round)
        self.run_config = b""
        """What most nodes say the run's configuration is, as a digest: the order is bound to it."""
        self.save: Callable[[], None] = lambda: None
        """Called when the survivors of a round are declared and nothing is opened yet."""
        self._uploading = 0.0

    @classmethod
    def restored(
        cls, state: RunState, courier: Courier, timeouts: Mapping[Stage, float | None], roster: Roster | None
    ) -> SecureRun:
        """Return the run that was written down, at the round after the last one that was begun."""
        server = Server.restore(state.server, roster)
        server.catch_up(state.begun)
        run = cls.__new__(cls)
        Exchanges.__init__(run, server, courier, timeouts, roster)
        for user, node in state.seats:
            run.seats.take(user, node, ())
        run.run_config, run.save, run._uploading = state.run_config, lambda: None, 0.0
        return run

    # Before the first round

    def set_up(self, grid: Grid, invitations: Sequence[Invitation], record: RoundRecord) -> None:
        """Exchange keys, draw the groups, and take the packages of the first rounds."""
        self._look_at(invitations, record)
        with self._failures_at(Stage.ADVERTISE_KEYS):
            self._advertise_keys(grid)
            outbound = self._close()
        while self.server.stage is Stage.DRAW:
            with self._failures_at(Stage.DRAW):
                self._talk(grid, Stage.DRAW, outbound)
                outbound = self._close()
        with self._failures_at(Stage.SHARE_KEYS):
            self._talk(grid, Stage.SHARE_KEYS, outbound, self._wanted)

    def _advertise_keys(self, grid: Grid) -> None:
        fields: dict[str, Value] = {"params": self.params.encode(), "epoch": self.server.epoch_number}
        if self.roster is None:
            # Without a roster a node is told its number; with one, it says and proves it.
            for user, node in enumerate(self._invited):
                self.seats.take(user, node, ())
        else:
            fields["challenge"] = self._challenge.public
        answers: list[Packet] = []
        messages = {
            node: self._message(Stage.ADVERTISE_KEYS, node, b"", {**fields, **self._number_of(node)})
            for node in self._invited
        }
        self._exchange(grid, Stage.ADVERTISE_KEYS, messages, answers.append)
        told = Counter(packet.fields.get("run-config") for packet in answers)
        usual = told.most_common(1)[0][0] if told else b""
        self.run_config = usual if isinstance(usual, bytes) else b""
        if self.roster is not None:
            # Beyond what colluding users could make up: somebody honest has seen at least that much.
            rounds, draws = (
                sorted((_number(packet, name) for packet in answers), reverse=True)[self.params.colluders :][:1] or [0]
                for name in ("last-round", "last-draw")
            )
            self.server.catch_up(rounds[0], draws[0])

    # Who is in it

    def ready(self, grid: Grid, invitations: Sequence[Invitation], record: RoundRecord) -> bool:
        """Return whether the next round can be played by these nodes; ask for packages that are missing, if need be."""
        self._look_at(invitations, record)
        if not self._pays(self._holding()):
            asked: dict[int, Message] = {}
            for node in self._invited:
                user = self.seats.user(node)
                if self._may_deal(user):
                    asked[node] = self._asking_for_packages(node)
            self._exchange(grid, Stage.SHARE_KEYS, asked)
        return self._pays(self._holding())

    def _holding(self) -> set[int]:
        """Return the invited users whose packages of the next round are here."""
        return self.server.dealt(self.server.round_number + 1).intersection(self.seats.among(self._invited))

    def _may_deal(self, user: int | None) -> bool:
        """Return whether a node should be asked for packages: a user that owes some, or one that is not known yet."""
        return self.roster is not None if user is None else bool(self.server.lacking(user))

    def _pays(self, users: set[int]) -> bool:
        """Return whether these users are enough, for the groups and among the nodes that were chosen."""
        return len(users) >= VIABLE * len(self._invited) and self._openable(users) >= VIABLE

    def _openable(self, users: set[int]) -> float:
        """Return the fraction of the committees that these users could open."""
        opened = 0
        for pod in self.server.groups.pods:
            places = {place for user, place in pod.place.items() if user in users}
            if len(places) >= self.params.threshold_of(len(pod)):
                opened += sum(
                    len(places.intersection(members.tolist())) >= self.params.survivors_of(len(members))
                    for members in pod.committees
                )
        return opened / self.params.committees

    # A round

    def begin_round(self, terms: bytes, min_updated: float, fields: Mapping[str, Value]) -> list[Message]:
        """Return the UPLOAD messages; nodes that have no package for this round are asked for those of later ones."""
        self._abandon()
        record = self.record
        with self._failures_at(Stage.UPLOAD):
            orders = self.server.begin_round(terms=terms, min_updated=min_updated)
            record.protocol_round = self.server.round_number
            self._sent = {}
            for node, invitation in self._invited.items():
                user = self.seats.user(node)
                if user is not None and user in orders:
                    content, more, size = self.way_down.parcel(node, invitation.content)
                    told: dict[str, Value] = {**fields, **more, **self._number_of(node), **self._wanted(user)}
                    self._sent[node] = self._message(Stage.UPLOAD, node, orders[user], told, content)
                    record.model_bytes.append(size)
                elif self._may_deal(user):
                    self._sent[node] = self._asking_for_packages(node)
        self._uploading = time.perf_counter()
        return list(self._sent.values())

    def finish_round(self, grid: Grid, replies: Iterable[Message]) -> Result:
        """Add the uploads that arrived, run CONFIRM where it is asked for, then UNMASK; return the outcome."""
        with self._failures_at(Stage.UPLOAD):
            self.record.exchanges += 1
            self.record.at(Stage.UPLOAD).seconds = time.perf_counter() - self._uploading
            sorted_replies, strangers = by_request(self._sent, replies)
            self.record.rejected += strangers
            self._take(Stage.UPLOAD, sorted_replies)
            requests = self._close()
        self.save()
        if self.params.confirm:
            with self._failures_at(Stage.CONFIRM):
                self._talk(grid, Stage.CONFIRM, requests)
                requests = self._close()
        with self._failures_at(Stage.UNMASK):
            self._talk(grid, Stage.UNMASK, requests)
            self._close()
        result = self.server.result
        assert result is not None  # noqa: S101  # UNMASK was closed without an error.
        self.record.complete(result)
        for holder in result.false_shares:
            _LOG.warning("SecAgg: user %d sent or was dealt shares that are false", holder)
        return result

    def _abandon(self) -> None:
        """End a round that nobody has finished, as when another strategy around this one has failed."""
        while self.server.stage is not Stage.DONE:
            with suppress(ProtocolError):
                self.server.close_stage()


def _number(packet: Packet, name: str) -> int:
    value = packet.fields.get(name)
    return value if isinstance(value, int) and 0 <= value <= _LARGEST_CLAIM else 0


# A run in a folder


class ModelState(msgspec.Struct, frozen=True, array_like=True):
    """The model between two rounds."""

    version: int
    round_number: int
    """Flower's number of the last round that is done."""
    arrays: SavedArrays
    clips: tuple[list[float], list[int], list[float]]
    way_down: bytes = b""
    memory: dict[str, SavedArrays] = {}
    """Of the wrapped strategy."""

    @property
    def record(self) -> ArrayRecord:
        """The model."""
        return ArrayRecord(_read(self.arrays))

    def remind(self, strategy: Strategy) -> None:
        """Give a strategy back what it remembered."""
        for name, arrays in self.memory.items():
            found = {key: each.numpy() for key, each in _read(arrays).items()}
            setattr(strategy, name, list(found.values()) if name == "momentum_vector" else found)


def _memory(strategy: Strategy) -> dict[str, SavedArrays]:
    kept = {name: value for name in _MEMORY if (value := getattr(strategy, name, None)) is not None}
    named = {name: value if isinstance(value, dict) else dict(enumerate(value)) for name, value in kept.items()}
    return {name: _written({str(key): Array(each) for key, each in value.items()}) for name, value in named.items()}


def _written(arrays: Mapping[str, Array]) -> SavedArrays:
    return [(name, each.dtype, list(each.shape), each.stype, each.data) for name, each in arrays.items()]


def _read(saved: SavedArrays) -> dict[str, Array]:
    return {name: Array(dtype, tuple(shape), stype, data) for name, dtype, shape, stype, data in saved}


class RunState(msgspec.Struct, frozen=True, array_like=True):
    """One run of the protocol."""

    version: int
    server: bytes
    """The protocol's `Server`, as it saves itself."""
    begun: int
    """The protocol's number of the last round that was begun."""
    epoch_number: int
    seats: list[tuple[int, int]]
    """Users and their nodes."""
    run_config: bytes


@dataclass(frozen=True)
class SavedRun:
    """The files of a run in its folder."""

    folder: Path

    def write_model(
        self,
        round_number: int,
        model: ArrayRecord,
        clips: tuple[list[float], list[int], list[float]],
        way_down: bytes,
        strategy: Strategy,
    ) -> None:
        """Write the model down after a round, and what the wrapped strategy remembers."""
        state = ModelState(_VERSION, round_number, _written(model), clips, way_down, _memory(strategy))
        self._write(_MODEL, msgspec.msgpack.encode(state))

    def write_run(
        self, server: bytes, begun: int, epoch_number: int, seats: list[tuple[int, int]], run_config: bytes
    ) -> None:
        """Write the protocol's run down."""
        state = RunState(_VERSION, server, begun, epoch_number, seats, run_config)
        self._write(_RUN, msgspec.msgpack.encode(state))

    def model(self) -> ModelState | None:
        """Return the model of a run that is not over; None if there is none. A damaged file is an error."""
        try:
            data = (self.folder / _MODEL).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise InvalidInput("run_dir", f"holds a run that can't be read: {problem.strerror}") from None
        try:
            state = msgspec.msgpack.decode(data, type=ModelState)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            state = None
        if state is None or state.version != _VERSION:
            raise InvalidInput("run_dir", f"holds a damaged {_MODEL}: remove it to begin anew, or name another folder")
        return state

    def run(self) -> RunState | None:
        """Return the protocol's run; None if there is none that can be read."""
        try:
            state = msgspec.msgpack.decode((self.folder / _RUN).read_bytes(), type=RunState)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return state if state.version == _VERSION else None

    def remove(self) -> None:
        """Forget the run: it is over."""
        for name in (_MODEL, _RUN):
            (self.folder / name).unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        """Write a file as a whole or not at all, on disk when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / name, data, private=True)


def number_rounds(result: FlowerResult, before: int) -> None:
    """Give a result the numbers of the whole run, where earlier rounds were another process's."""
    for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
        setattr(result, name, {number + before: metrics for number, metrics in getattr(result, name).items()})
