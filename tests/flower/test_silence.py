"""A node says nothing about its data, and its app sees nothing that the context does not bind.

The same messages go to two nodes that differ only in their data, and everything that comes back is compared; and
whatever is changed in a message, an app that runs has seen the very same things.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, Metadata, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flower.local_grid import LocalGrid, content_of, model, secagg, stage_of, travel
from sparsesecagg.errors import InvalidInput
from sparsesecagg.flower import mod, secagg_mod
from sparsesecagg.flower.messages import Terms, read_packet
from sparsesecagg.protocol import Client
from sparsesecagg.protocol.messages import RoundHeader, Upload, decode_client_message, encode

USERS, NODE = 4, 100
START = {"w": np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6), "counter": np.array([3], np.int64)}

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))


class Data:
    """What a node holds, and how its app behaves on it: everything here is private."""

    def __init__(self, seed: int, fault: str = "") -> None:
        rng = np.random.default_rng(seed)
        self.shift = rng.normal(0, 10.0**seed, (4, 6)).astype(np.float32)
        self.weight: Any = int(rng.integers(1, 1000))
        self.loss: Any = float(rng.normal())
        self.fault = fault
        if fault == "nan":
            self.shift[:2], self.weight, self.loss = np.nan, -3, float("nan")
        if fault == "missing":
            self.weight = self.loss = None

    def train(self, message: Message, context: Context) -> Message:
        if self.fault == "raises":
            raise ValueError(f"my data are {self.shift}")
        arrays = {name: array.numpy() for name, array in content_of(message)["arrays"].items()}
        arrays["w"] = arrays["w"] + self.shift.reshape(arrays["w"].shape)
        if self.fault == "shape":
            arrays["w"] = arrays["w"][:1]
        metrics = {"num-examples": self.weight, "loss": self.loss, "secret": float(self.shift[0, 0])}
        record = MetricRecord({name: value for name, value in metrics.items() if value is not None})
        return Message(RecordDict({"arrays": model(**arrays), "metrics": record}), reply_to=message)


class World:
    """One node of an honest round, ready for its UPLOAD, and every message that it was sent in two rounds."""

    def __init__(self, folder: Path) -> None:
        self.data: Data | None = Data(0)
        self.seen: list[Any] = []
        app = ClientApp()

        @app.train("slowly", mods=[secagg_mod])
        @app.train(mods=[secagg_mod])
        def train(message: Message, context: Context) -> Message:
            if context.node_id == NODE:
                self.seen.append(shown(message, context))
            return (self.data if context.node_id == NODE and self.data else Data(0)).train(message, context)

        self.app, self.folder, self.before = app, folder / "node", folder / "before"
        self.grid = LocalGrid(
            app, USERS, node_config=lambda index: {"secagg-ledger": str(folder / ("node" if not index else str(index)))}
        )
        self.messages: list[Message] = []

        def keep(node: int, message: Message) -> None:
            if node == NODE:
                self.messages.append(travel(message))
                if stage_of(message) == "UPLOAD" and not self.before.exists():
                    shutil.copytree(self.folder, self.before)

        self.grid.before = keep
        strategy = secagg(metrics={"loss": 2.0}, downlink_bits=4)
        strategy.start(grid=self.grid, initial_arrays=model(**START), num_rounds=2, timeout=0.3)
        self.upload = next(each for each in self.messages if stage_of(each) == "UPLOAD")
        self.grid.before = None

    def ask(self, message: Message, data: Data | None = None, run_config: dict[str, Any] | None = None) -> Message:
        """Give the node a message, in the state of just before its first UPLOAD."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.before, self.folder)
        self.folder.chmod(0o700)
        return self.tell(message, data, run_config)

    def tell(self, message: Message, data: Data | None = None, run_config: dict[str, Any] | None = None) -> Message:
        """Give the node a message, in the state that it is in."""
        self.data, self.seen = data, []
        context = self.grid.contexts[NODE]
        own = Context(context.run_id, NODE, context.node_config, RecordDict(), run_config or context.run_config)
        return self.app(travel(message), own)


def shown(message: Message, context: Context) -> Any:
    """Return everything that an app can see of a message and its run, the node's own clock aside."""
    metadata = {name: value for name, value in vars(message.metadata).items() if name != "_created_at"}
    records: list[Any] = []
    for name, record in message.content.items():
        entries = [
            (key, (value.dtype, tuple(value.shape), value.stype, value.data) if isinstance(value, Array) else value)
            for key, value in record.items()
        ]
        records.append((name, type(record).__name__, repr(entries)))
    return repr(metadata), records, sorted(context.run_config.items()), context.run_id


def said(reply: Message) -> Any:
    """Return everything that a server sees of a reply, but for what masks hide: the words of an upload."""
    if reply.has_error():
        return "error", reply.error.code, reply.error.reason
    records: dict[str, Any] = {}
    for name, record in reply.content.items():
        records[name] = {key: value.data if isinstance(value, Array) else value for key, value in record.items()}
    payload = records["secagg"].get("payload", b"")
    if payload and isinstance(upload := decode_client_message(payload), Upload):
        blank = msgspec.structs.replace(upload, words=memoryview(bytes(len(upload.words))))
        records["secagg"]["payload"] = encode(blank)
    return repr(records)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    memory = Path("/dev/shm")  # noqa: S108  # Ledgers wait for the disk.
    folder = memory / f"silence-{id(tmp_path_factory)}" if memory.is_dir() else tmp_path_factory.mktemp("silence")
    try:
        yield World(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def same_randomness(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let both nodes draw the same secrets, so that their answers can be compared byte by byte."""
    count = 0

    def urandom(size: int) -> bytes:
        nonlocal count
        count += 1
        return np.random.default_rng(count).bytes(size)

    with monkeypatch.context() as patch:
        patch.setattr("sparsesecagg.protocol.client.os.urandom", urandom)
        patch.setattr(Client.restore, "__defaults__", (None, urandom, None, None, None))
        yield


# Messages that a server can make

values = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 5),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=40),
    st.lists(st.integers(-3, 5), max_size=3),
    st.lists(st.floats(), max_size=3),
    st.lists(st.text(max_size=3), max_size=3),
)
FIELDS = ["version", "stage", "round", "run", "user", "wanted", "scales", "metrics", "bounds", "payload", "model",
          "params", "epoch", "challenge", "packages", "refused", "new"]  # fmt: skip
SENSIBLE: dict[str, list[Any]] = {
    "stage": ["ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK", "DONE"],
    "scales": [[0.5], [1e-30], [1e30]],
    "metrics": [["loss"], ["secret"], ["no-such"]],
    "bounds": [[1e-30], [1.0]],
    "wanted": [[2], [1, 2, 3]],
}


@st.composite
def changes(draw: Any) -> list[tuple[str, Any]]:
    """Return some changes of a message: control fields, the model, the strategy's records, the metadata."""
    made: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["field", "config", "array", "bytes", "metadata", "record", "payload"]))
        if kind == "field":
            name = draw(st.sampled_from(FIELDS))
            known = st.sampled_from(SENSIBLE[name]) if name in SENSIBLE else values
            made.append((kind, (name, draw(st.one_of(known, values)))))
        elif kind == "config":
            made.append((kind, (draw(st.sampled_from(["server-round", "lr"])), draw(values))))
        elif kind == "array":
            shape = draw(st.sampled_from([(4, 6), (6, 4), (24,), (1, 24)]))
            dtype = draw(st.sampled_from(["float32", "float64", "int32"]))
            order = draw(st.sampled_from("CF"))
            made.append((kind, np.full(shape, draw(st.floats(-2, 2)), dtype, order=order)))
        elif kind == "metadata":
            name = draw(st.sampled_from(["group_id", "message_id", "message_type", "src_node_id", "ttl", "run_id"]))
            made.append((kind, (name, draw(st.integers(1, 1 << 40)))))
        elif kind == "record":
            made.append((kind, draw(st.sampled_from([ConfigRecord({"x": 1}), MetricRecord({"x": 1.0})]))))
        else:
            made.append((kind, (draw(st.integers(0, 1 << 20)), draw(st.integers(1, 255)))))
    return made


def changed(message: Message, some: list[tuple[str, Any]]) -> Message | None:
    """Return the message with the changes; None if Flower itself would not carry it."""
    made = travel(message)
    content = content_of(made)
    try:
        for kind, what in some:
            if kind == "field":
                content["secagg"] = ConfigRecord({**content["secagg"], what[0]: what[1]})
            elif kind == "config":
                content["config"] = ConfigRecord({**content.get("config", {}), what[0]: what[1]})
            elif kind == "array":
                content["arrays"] = ArrayRecord({**content.get("arrays", {}), "w": Array(what)})
            elif kind == "bytes" and "arrays" in content:
                content["arrays"] = ArrayRecord({**content["arrays"], "w": flipped(content["arrays"], *what)})
            elif kind == "payload" and "payload" in content["secagg"]:
                data = bytearray(content["secagg"]["payload"])
                data[what[0] % len(data)] ^= what[1]
                content["secagg"] = ConfigRecord({**content["secagg"], "payload": bytes(data)})
            elif kind == "metadata":
                name, value = what
                texts = {"message_type": "train.slowly", "group_id": str(value), "message_id": str(value)}
                vars(made.metadata)[f"_{name}"] = texts.get(name, value)
            elif kind == "record":
                content["extra"] = what
        return travel(made)
    except Exception:
        return None


def flipped(record: ArrayRecord, place: int, bits: int) -> Array:
    """Return an array with a byte changed: in its values, its frame, or what is said of it."""
    array = record["w"] if "w" in record else next(iter(record.values()))
    if place % 7 == 0:
        return Array(array.dtype, tuple(reversed(array.shape)), array.stype, array.data)
    data = bytearray(array.data)
    data[place % len(data)] ^= bits
    return Array(array.dtype, array.shape, array.stype, bytes(data))


FAULTS = ["", "nan", "missing"]


def compare(world: World, monkeypatch: pytest.MonkeyPatch, which: int, some: list[Any], one: Data, two: Data) -> None:
    """Assert that two nodes with different data answer a message alike, in the state before UPLOAD and once more."""
    message = changed(world.messages[which % len(world.messages)], some)
    if message is None:
        return
    answers = []
    for data in (one, two):
        with same_randomness(monkeypatch):
            answers.append([said(world.ask(message, data)), said(world.tell(message, data)),
                            said(world.tell(world.upload, data))])  # fmt: skip
    assert answers[0] == answers[1]


class TestTwoNodes:
    """What comes back does not depend on the data."""

    @given(st.integers(0, 20), changes(), st.integers(1, 9), st.sampled_from(FAULTS), st.sampled_from(FAULTS))
    @QUICK
    def test_answers_are_the_same(
        self, world: World, monkeypatch: pytest.MonkeyPatch, which: int, some: Any, seed: int, one: str, two: str
    ) -> None:
        compare(world, monkeypatch, which, some, Data(0, one), Data(seed, two))

    @pytest.mark.soak
    @given(st.integers(0, 20), changes(), st.integers(1, 9), st.sampled_from(FAULTS), st.sampled_from(FAULTS))
    @MANY
    def test_answers_to_five_thousand_messages_are_the_same(
        self, world: World, monkeypatch: pytest.MonkeyPatch, which: int, some: Any, seed: int, one: str, two: str
    ) -> None:
        compare(world, monkeypatch, which, some, Data(0, one), Data(seed, two))

    def test_an_app_that_fails_says_one_thing_however_it_fails(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compare(world, monkeypatch, world.messages.index(world.upload), [], Data(0, "raises"), Data(3, "shape"))
        assert "AppFailed" in said(world.ask(world.upload, Data(0, "raises")))

    def test_the_comparison_fails_if_a_metric_that_is_missing_is_refused(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The control: the oracle of version 2, which named the metric."""

        def named(metrics: MetricRecord, name: str) -> float:
            if name not in metrics:
                raise InvalidInput(name, "must be in the metrics")
            return float(metrics[name])  # type: ignore[arg-type]

        monkeypatch.setattr(mod, "_metric", named)
        which = world.messages.index(world.upload)
        with pytest.raises(AssertionError):
            compare(world, monkeypatch, which, [], Data(0), Data(1, "missing"))


class TestOneByte:
    """An app that runs has seen what the honest server showed to all, whatever was changed on the way."""

    def require_same_view(self, world: World, some: list[Any], run_config: dict[str, Any] | None = None) -> None:
        message = changed(world.upload, some)
        if message is None:
            return
        world.ask(world.upload, Data(0))
        (honest,) = world.seen
        reply = world.ask(message, Data(0), run_config)
        for view in world.seen:
            assert view == honest
        assert world.seen or "payload" not in (reply.content["secagg"] if reply.has_content() else {})

    @given(changes())
    @QUICK
    def test_whatever_is_changed(self, world: World, some: list[Any]) -> None:
        self.require_same_view(world, some)

    @pytest.mark.soak
    @given(changes())
    @MANY
    def test_whatever_is_changed_five_thousand_times(self, world: World, some: list[Any]) -> None:
        self.require_same_view(world, some)

    def test_every_byte_of_the_model_and_its_frame(self, world: World) -> None:
        size = len(content_of(world.upload)["arrays"]["w"].data)
        for place in range(0, size, 3):
            self.require_same_view(world, [("bytes", (place, 1 << place % 8))])

    def test_the_configuration_of_the_run(self, world: World) -> None:
        self.require_same_view(world, [], run_config={"lr": 0.0})

    def test_metadata_do_not_reach_the_app(self, world: World) -> None:
        """Changed alone they change nothing: the round goes on."""
        for name in ("group_id", "message_id", "src_node_id", "ttl"):
            message = changed(world.upload, [("metadata", (name, 77))])
            assert message is not None
            reply = world.ask(message, Data(0))
            assert len(world.seen) == 1
            assert "payload" in reply.content["secagg"]

    @pytest.mark.parametrize(
        "some",
        [
            [("config", ("lr", 0.0))],
            [("array", np.full((6, 4), 0.5, np.float32))],
            [("bytes", (200, 1))],
            [("metadata", ("message_type", 5))],
            [("field", ("scales", [0.25]))],
        ],
        ids=str,
    )
    def test_without_the_context_an_app_would_see_something_else(
        self, world: World, monkeypatch: pytest.MonkeyPatch, some: list[Any]
    ) -> None:
        """The control: nothing is bound, as far as this node can tell."""
        genuine: Any = Client.accept

        def accept(self: Any, data: bytes, *, context: bytes) -> Any:
            del context
            return genuine(self, data, context=Client._read(data, RoundHeader).context)

        monkeypatch.setattr(Client, "accept", accept)
        message = changed(world.upload, some)
        assert message is not None
        world.ask(message, Data(0))
        assert world.seen, "the app has run"


def test_terms_and_metadata_of_the_world_are_what_the_tests_think(world: World) -> None:
    assert {stage_of(each) for each in world.messages} == {"ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"}
    assert isinstance(world.upload.metadata, Metadata)
    assert Terms.read(read_packet(world.upload.content)).metrics == {"loss": 2.0}
