"""The node's side: it follows bit for bit, and whatever does not fit changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference import steps as twin
from sparsesecagg.downlink import STEP_BITS, ModelStep, Replica, StepLog, Steps, WholeModel, decode_catchup
from sparsesecagg.errors import InvalidInput, MalformedMessage, ProtocolError, WrongStep
from strategies import models, mutated

DIM = 3000


def moved(model: NDArray[np.float32], seed: int, size: float = 0.01) -> NDArray[np.float32]:
    return model + np.random.default_rng(seed).normal(0, size, len(model)).astype(np.float32)


@pytest.fixture
def log() -> StepLog:
    return StepLog(moved(np.zeros(DIM, np.float32), 0))


def held(replica: Replica) -> tuple[bytes, bytes, int]:
    return replica.model.tobytes(), replica.digest, replica.sequence


def alone(step: ModelStep) -> bytes:
    """Return the message that brings this step."""
    return Steps(step.after, step.dim, step.digest_after, (step,)).encode()


@settings(max_examples=30)
@given(models(), st.sampled_from(STEP_BITS), st.integers(0, 2**32))
def test_a_replica_holds_the_very_bits_of_the_server(model: NDArray[np.float32], bits: int, seed: int) -> None:
    log = StepLog(model, bits)
    replica = Replica(log.model)
    for number in range(4):
        log.advance(moved(log.model, seed + number, float(np.abs(model).max()) / 8))
        replica.catch_up(log.for_node(replica.sequence))
        assert replica.model.tobytes() == log.model.tobytes()
        assert replica.digest == log.digest == twin.digest(replica.model.tolist())
        assert replica.sequence == log.sequence == number + 1


def test_a_first_contact_brings_the_whole_model(log: StepLog) -> None:
    replica = Replica.from_model(log.for_node(None))
    assert held(replica) == (log.model.tobytes(), log.digest, 0)


def test_a_lost_step_is_named_and_the_whole_model_mends_it(log: StepLog) -> None:
    replica = Replica.from_model(log.for_node(None))
    before = held(replica)
    log.advance(moved(log.model, 1))
    log.advance(moved(log.model, 2))
    last = decode_catchup(log.for_node(1))
    with pytest.raises(WrongStep, match="it starts from model 1, and this is model 0"):
        replica.catch_up(last.encode())
    assert held(replica) == before
    with pytest.raises(WrongStep, match="the steps lead to model 2"):
        replica.catch_up(log.for_node(2))  # No steps at all, as for a node that is up to date.
    assert held(replica) == before
    replica.catch_up(log.for_node(None))
    assert held(replica) == (log.model.tobytes(), log.digest, 2)


def test_a_step_for_another_model_is_rejected(log: StepLog) -> None:
    """Same number, same length, one bit of difference."""
    other = log.model.copy()
    other[17] = np.nextafter(other[17], np.float32(1))
    replica = Replica(other)
    before = held(replica)
    log.advance(moved(log.model, 1))
    with pytest.raises(WrongStep, match="it was made for another model 0"):
        replica.catch_up(log.for_node(0))
    assert held(replica) == before
    replica.catch_up(log.for_node(None))
    assert replica.digest == log.digest


def test_an_up_to_date_node_with_another_model_notices(log: StepLog) -> None:
    replica = Replica(moved(log.model, 9))
    with pytest.raises(WrongStep, match="the steps lead to model 0, and this is another one"):
        replica.catch_up(log.for_node(0))


def test_a_step_that_leads_elsewhere_is_rejected(log: StepLog) -> None:
    replica = Replica(log.model)
    before = held(replica)
    step = log.step(moved(log.model, 1))
    levels = bytearray(step.levels)
    levels[5] ^= 1
    for wrong in (replace(step, digest_after=bytes(32)), replace(step, levels=bytes(levels))):
        with pytest.raises(WrongStep, match="it leads to another model 1 than it says"):
            replica.catch_up(alone(wrong))
        assert held(replica) == before
    replica.catch_up(alone(step))
    assert replica.digest == log.digest


def test_a_step_from_an_earlier_model_is_rejected(log: StepLog) -> None:
    replica = Replica(log.model, 1)
    before = held(replica)
    with pytest.raises(WrongStep, match="it starts from model 0, and this is model 1"):
        replica.catch_up(alone(log.step(moved(log.model, 1), 2)))
    assert held(replica) == before


def test_the_same_catch_up_twice_changes_nothing(log: StepLog) -> None:
    """A message may be delivered again."""
    replica = Replica.from_model(log.for_node(None))
    for seed in (1, 2):
        log.advance(moved(log.model, seed))
    blob = log.for_node(0)
    replica.catch_up(blob)
    after = held(replica)
    replica.catch_up(blob)
    assert held(replica) == after
    log.advance(moved(log.model, 3))
    replica.catch_up(log.for_node(0))  # Starts earlier than needed: what the node has is passed over.
    assert replica.digest == log.digest
    with pytest.raises(WrongStep, match="the steps lead to model 2"):
        replica.catch_up(blob)


def test_a_catch_up_is_taken_whole_or_not_at_all(log: StepLog) -> None:
    replica = Replica.from_model(log.for_node(None))
    before = held(replica)
    for seed in (1, 2, 3):
        log.advance(moved(log.model, seed))
    steps = decode_catchup(log.for_node(0))
    assert not isinstance(steps, WholeModel)
    second = replace(steps.steps[1], digest_after=bytes(32))
    broken = replace(steps, steps=(steps.steps[0], second, steps.steps[2]))
    with pytest.raises(WrongStep, match="another model 2 than it says"):
        replica.catch_up(broken.encode())
    assert held(replica) == before


@pytest.mark.parametrize("whole", [True, False])
def test_a_model_of_another_length_is_rejected(log: StepLog, whole: bool) -> None:
    replica = Replica(np.zeros(DIM + 1, np.float32))
    log.advance(moved(log.model, 1))
    with pytest.raises(WrongStep, match="3000"):
        replica.catch_up(log.for_node(None if whole else 0))


@pytest.mark.parametrize("whole", [True, False])
@given(st.data())
@settings(max_examples=60)
def test_whatever_is_done_to_the_bytes_the_model_is_right_or_as_before(whole: bool, data: st.DataObject) -> None:
    log = StepLog(moved(np.zeros(700, np.float32), 0))
    replica = Replica.from_model(log.for_node(None))
    before = held(replica)
    log.advance(moved(log.model, 1))
    log.advance(moved(log.model, 2))
    changed = data.draw(mutated(log.for_node(None if whole else 0)))
    try:
        replica.catch_up(changed)
    except ProtocolError:
        assert held(replica) == before
    else:
        assert replica.digest == log.digest == twin.digest(replica.model.tolist())


@given(st.binary(max_size=300))
def test_random_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        Replica.from_model(data)


def test_steps_do_not_make_a_first_model(log: StepLog) -> None:
    with pytest.raises(MalformedMessage, match="needs a whole one, got steps"):
        Replica.from_model(log.for_node(0))


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**101, 2.0**-104, -(2.0**-140)])
def test_a_whole_model_out_of_range_is_rejected(value: float) -> None:
    model = np.ones(10, np.float32)
    model[3] = value
    message = WholeModel(0, model, StepLog(np.ones(1, np.float32)).digest).encode()
    with pytest.raises(MalformedMessage, match="a value of the model is not finite"):
        Replica.from_model(message)
    with pytest.raises(InvalidInput, match="model must be"):
        Replica(model)


def test_a_saved_replica_continues_where_it_was(log: StepLog) -> None:
    replica = Replica.from_model(log.for_node(None))
    log.advance(moved(log.model, 1))
    replica.catch_up(log.for_node(0))
    again = Replica.restore(replica.save())
    assert held(again) == held(replica)
    log.advance(moved(log.model, 2))
    again.catch_up(log.for_node(again.sequence))
    assert again.digest == log.digest
    with pytest.raises(MalformedMessage):
        Replica.restore(replica.save()[:-1])


def test_the_model_can_not_be_written_to(log: StepLog) -> None:
    """Otherwise the digest would be that of another model."""
    replica = Replica.from_model(log.for_node(None))
    for _ in range(2):
        with pytest.raises(ValueError, match="read-only"):
            replica.model[0] = 1
        log.advance(moved(log.model, 1))
        replica.catch_up(log.for_node(replica.sequence))
