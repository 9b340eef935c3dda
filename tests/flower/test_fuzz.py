"""Whatever nodes reply, the server goes on: odd replies are dropouts, and a later round of honest nodes succeeds."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from flower.enrolment import enrol_users
from flower.local_grid import LocalGrid, content_of, model, secagg, stage_of, training_app, travel
from sparsesecagg.flower import run
from sparsesecagg.flower.messages import in_one_line, read_packet

NODES, LIARS = 9, 4
START = np.zeros(30, np.float32)
STAGES = ["ADVERTISE_KEYS", "SHARE_KEYS", "UPLOAD", "UNMASK"]
FIELDS = ["version", "stage", "round", "payload", "packages", "refused", "held", "app", "last-round", "last-epoch",
          "user", "proof", "run-config", "new"]  # fmt: skip
ODD: list[Any] = [
    "x", "", "UPLOAD", "\x1b[31m\x07", b"", b"\xff" * 40, 0, 1, -1, (1 << 63) - 1, -(1 << 63), 0.5, float("nan"),
    float("inf"), True, ["x"], [1, 2], [b"x"], [b"x"] * 9, [0.5], [True],
]  # fmt: skip


def odd_reply(rng: random.Random, reply: Message) -> Message:
    """Return what a node could send in place of its reply."""
    kind = rng.choice(["field", "field", "field", "payload", "error", "records", "nothing", "bulk"])
    request = Message(RecordDict(), 100, "train")
    if kind == "error":
        code, reason = rng.choice([0, 2, 3, 6, 99, -5]), rng.choice(["", "sparsesecagg: \x1b[2J", "x" * 10_000, "\n\n"])
        return Message(Error(code, reason), reply_to=request)
    if not reply.has_content():
        return reply
    made = travel(reply)
    content = content_of(made)
    if kind == "field":
        for _ in range(rng.randint(1, 3)):
            content["secagg"] = ConfigRecord({**content["secagg"], rng.choice(FIELDS): rng.choice(ODD)})
    elif kind == "payload" and content["secagg"].get("payload"):
        data = bytearray(content["secagg"]["payload"])
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] ^= rng.randint(1, 255)
        content["secagg"] = ConfigRecord({**content["secagg"], "payload": bytes(data[: rng.randint(0, len(data))])})
    elif kind == "records":
        content["secagg"] = rng.choice([MetricRecord({"stage": 1}), ArrayRecord({}), ConfigRecord({})])
    elif kind == "nothing":
        return Message(RecordDict(), reply_to=request)
    elif kind == "bulk":
        content["secagg-bulk"] = rng.choice(
            [ConfigRecord({"0": 1}), ArrayRecord({"0": Array(START)}), ArrayRecord({"1": Array(START)})]
        )
    return made


def play(seed: int, replies: int, monkeypatch: pytest.MonkeyPatch, node_config: Any = None, roster: Any = None) -> int:
    """Play two rounds in which some nodes send odd replies, many each, at every stage; return how many there were."""
    rng, sent = random.Random(seed), 0
    app = training_app(lambda p, a, r: {"w": a["w"] + np.float32(0.01)})
    grid = LocalGrid(app, NODES, node_config=node_config)
    genuine: Any = run.SecureRun.take

    def flooded(self: Any, stage: Any, requests: Any, answers: Any) -> Any:
        nonlocal sent
        liars = [node for node in answers if node < 100 + LIARS]
        honest = {node: reply for node, reply in answers.items() if node >= 100 + LIARS}
        first = next(iter(honest))
        for _ in range(replies // (4 * LIARS) + 1):
            odd = {node: odd_reply(rng, answers[node]) for node in liars}
            genuine(self, stage, requests, {**odd, first: honest[first]})  # An honest one, again and again.
            sent += len(odd)
        return genuine(self, stage, requests, honest)

    strategy = secagg(max_weight=0, roster=roster, threshold=NODES // 2 + 1 if roster is None else None)
    with monkeypatch.context() as patch:
        patch.setattr(run.SecureRun, "take", flooded)
        strategy.start(grid=grid, initial_arrays=model(w=START), num_rounds=2, timeout=0.3)
    assert len(strategy.history) == 2
    assert strategy.history[0].rejected > 0
    result = strategy.start(grid=grid, initial_arrays=model(w=START), num_rounds=1, timeout=0.3)
    assert strategy.history[-1].failure is None
    np.testing.assert_allclose(result.arrays["w"].numpy(), 0.01, atol=1e-4)
    return sent


@pytest.mark.parametrize("seed", range(3))
def test_odd_replies_do_not_end_a_plain_run(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(seed, 600, monkeypatch) >= 300


def test_odd_replies_do_not_end_an_authenticated_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    users = enrol_users(tmp_path, NODES)
    assert play(7, 300, monkeypatch, users.node_config, users.roster) >= 150


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_twenty_thousand_odd_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert play(20_000, 26_000, monkeypatch) >= 20_000


@pytest.mark.parametrize("stage", STAGES)
def test_a_list_where_a_name_is_expected_is_one_dropout(stage: str) -> None:
    """The reply that ended version 2: a list can't be looked up."""
    grid = LocalGrid(training_app(lambda p, a, r: a), 5)

    def lie(node: int, reply: Message) -> list[Message]:
        if node == 101 and stage_of(reply) == stage:
            made = travel(reply)
            content_of(made)["secagg"] = ConfigRecord({**content_of(made)["secagg"], "stage": ["x"], "app": [1, 2]})
            vars(made.metadata)["_reply_to_message_id"] = reply.metadata.reply_to_message_id
            return [made]
        return [reply]

    grid.after = lie
    strategy = secagg(threshold=3)
    strategy.start(grid=grid, initial_arrays=model(w=START), num_rounds=1, timeout=0.3)
    assert strategy.history[0].rejected >= 1
    assert strategy.history[0].failure is None


def test_the_fuzz_would_find_a_reply_that_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the type check a list as a stage raises what nobody expects, and nobody catches it."""

    def naive(content: RecordDict) -> Any:
        control: Any = content["secagg"]
        _ = dict.fromkeys(STAGES, 1)[control["stage"]]
        return genuine(content)

    class Fatal(BaseException):
        """Passes everything that catches exceptions."""

    def fatal(content: RecordDict) -> Any:
        try:
            return naive(content)
        except TypeError:
            raise Fatal from None

    genuine = read_packet
    monkeypatch.setattr(run, "read_packet", fatal)
    with pytest.raises(Fatal):
        play(0, 300, monkeypatch)


def test_texts_of_nodes_reach_the_log_without_control_characters() -> None:
    assert in_one_line("a\x1b[31mred\x07\u202e\nb") == "a [31mred b"
    assert len(in_one_line("x" * 10_000)) == 400
