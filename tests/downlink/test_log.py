"""The server's side: every node gets the smaller of what would do, and memory stays bounded."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsesecagg.downlink import STEP_BITS, Replica, StepLog, Steps, WholeModel, decode_catchup
from sparsesecagg.downlink.replica import whole_model_size
from sparsesecagg.errors import InvalidInput, MalformedMessage, SparseSecAggError
from strategies import mutated

DIM = 5000


def start(dim: int = DIM) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(0, 0.1, dim).astype(np.float32)


def advanced(log: StepLog, rounds: int, seed: int = 0, changed: slice = slice(None)) -> StepLog:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        target = log.model.copy()
        target[changed] += rng.normal(0, 0.01, len(target)).astype(np.float32)[changed]
        log.advance(target)
    return log


def test_the_rounded_model_is_what_advance_returns() -> None:
    log = StepLog(start())
    target = start() + np.float32(0.001)
    model = log.advance(target)
    assert np.array_equal(model, log.model)
    assert not np.array_equal(model, target)
    assert np.abs(model - target).max() < 0.001
    assert log.sequence == 1


@pytest.mark.parametrize("bits", STEP_BITS)
def test_a_node_one_round_behind_gets_one_step(bits: int) -> None:
    log = advanced(StepLog(start(), bits), 3)
    blob = log.for_node(2)
    assert len(blob) < 50 + 8 + 66 + 10 + DIM * bits // 8  # Catch-up, length, step, exponents, levels.
    message = decode_catchup(blob)
    assert isinstance(message, Steps)
    assert [(step.before, step.after) for step in message.steps] == [(2, 3)]


@settings(max_examples=30)
@given(st.sampled_from(STEP_BITS), st.integers(1, 6000), st.integers(0, 25), st.integers(0, 2**32))
def test_every_node_ends_at_the_same_model_by_the_smaller_message(bits: int, dim: int, rounds: int, seed: int) -> None:
    """Nodes join and drop out at any time."""
    rng = np.random.default_rng(seed)
    log = StepLog(start(dim), bits)
    nodes: list[Replica] = []
    for _ in range(rounds):
        if rng.random() < 0.4:
            nodes.append(Replica.from_model(log.for_node(None)))
        advanced(log, 1, int(rng.integers(1000)), slice(0, int(rng.integers(dim + 1))))
        for node in nodes:
            if rng.random() < 0.4:
                node.catch_up(log.for_node(node.sequence, node.digest))
                assert node.digest == log.digest
    for node in nodes:
        blob = log.for_node(node.sequence)
        assert len(blob) <= whole_model_size(dim)
        node.catch_up(blob)
        assert node.model.tobytes() == log.model.tobytes()


@pytest.mark.parametrize(("bits", "steps"), [(2, 21), (4, 9), (8, 4)])
def test_who_is_too_far_behind_gets_the_whole_model(bits: int, steps: int) -> None:
    """As many steps as are together smaller than the model."""
    log = advanced(StepLog(start(100_000), bits), 30)
    assert log.oldest == 30 - steps
    assert isinstance(decode_catchup(log.for_node(30 - steps)), Steps)
    assert isinstance(decode_catchup(log.for_node(30 - steps - 1)), WholeModel)
    assert len(log.for_node(30 - steps)) < len(log.for_node(30 - steps - 1)) == whole_model_size(100_000)


def test_sparse_rounds_are_small_and_many_of_them_are_kept() -> None:
    log = advanced(StepLog(start(100_000)), 50, changed=slice(512, 1024))
    assert len(log.for_node(49)) < 700
    assert log.oldest == 0


def test_a_round_that_changed_nothing_costs_a_byte_per_block() -> None:
    log = StepLog(start(100_000))
    log.advance(log.model)
    assert len(log.for_node(0)) < 400
    assert log.sequence == 1


def test_memory_is_bounded_by_the_model() -> None:
    """Model, kept error, and steps that are together smaller than the model."""
    log = StepLog(start())
    for _ in range(40):
        advanced(log, 1)
        for sequence in range(log.sequence):
            log.for_node(sequence)
        assert len(log.save()) < 3 * whole_model_size(DIM)


def test_nodes_that_ask_for_the_same_share_the_bytes() -> None:
    log = advanced(StepLog(start()), 2)
    assert log.for_node(1) is log.for_node(1)
    assert log.for_node(None) is log.for_node(None)
    before = log.for_node(1)
    advanced(log, 1)
    assert log.for_node(1) != before


def test_a_node_that_is_up_to_date_gets_next_to_nothing() -> None:
    log = advanced(StepLog(start()), 2)
    replica = Replica.from_model(log.for_node(None))
    assert len(log.for_node(2)) == 50
    replica.catch_up(log.for_node(2))
    assert replica.digest == log.digest


@pytest.mark.parametrize("sequence", [3, 10**9, -1])
def test_a_number_that_the_log_does_not_know_brings_the_whole_model(sequence: int) -> None:
    """A node of an earlier run, or one whose server was restored from an older copy."""
    log = advanced(StepLog(start()), 2)
    assert isinstance(decode_catchup(log.for_node(sequence)), WholeModel)


def test_a_digest_spares_the_node_a_step_that_does_not_fit() -> None:
    log = advanced(StepLog(start()), 2)
    right, wrong = StepLog(start()).digest, bytes(32)
    assert isinstance(decode_catchup(log.for_node(0, right)), Steps)
    assert isinstance(decode_catchup(log.for_node(0, right[:8])), Steps)
    assert isinstance(decode_catchup(log.for_node(2, log.digest)), Steps)
    for sequence in (0, 1, 2):
        assert isinstance(decode_catchup(log.for_node(sequence, wrong)), WholeModel)
    assert isinstance(decode_catchup(log.for_node(0, b"")), WholeModel)


def test_round_numbers_may_number_the_models() -> None:
    log = StepLog(start(), sequence=10)
    replica = Replica.from_model(log.for_node(None))
    log.advance(start() + np.float32(0.1), sequence=12)
    log.advance(log.model + np.float32(0.1), sequence=17)
    replica.catch_up(log.for_node(10))
    assert (replica.sequence, replica.digest) == (17, log.digest)
    assert isinstance(decode_catchup(log.for_node(11)), WholeModel)


def test_a_failed_advance_changes_nothing() -> None:
    log = advanced(StepLog(start()), 1)
    before = log.save()
    bad = log.model.copy()
    bad[0] = np.nan
    with pytest.raises(InvalidInput, match="target must be finite"):
        log.advance(bad)
    assert log.save() == before


@pytest.mark.parametrize("bits", STEP_BITS)
def test_a_restored_log_continues_with_the_very_same_bytes(bits: int) -> None:
    """Kept error and old steps included."""
    log = advanced(StepLog(start(), bits), 5)
    again = StepLog.restore(log.save())
    for one in (log, again):
        advanced(one, 3, seed=7)
    assert again.save() == log.save()
    assert (again.bits, again.sequence, again.oldest, again.digest) == (log.bits, log.sequence, log.oldest, log.digest)
    for sequence in range(9):
        assert again.for_node(sequence) == log.for_node(sequence)


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_log_is_restored_never_or_with_the_same_model(data: st.DataObject) -> None:
    log = advanced(StepLog(start(600)), 2)
    changed = data.draw(mutated(log.save()))
    try:
        again = StepLog.restore(changed)
    except SparseSecAggError as problem:
        assert isinstance(problem, MalformedMessage)
    else:
        assert again.digest == log.digest


def test_a_catch_up_as_large_as_the_model_is_rejected() -> None:
    """It bounds the work that a message can make: a small step may ask for much."""
    log = StepLog(start())
    log.advance(log.model)
    message = decode_catchup(log.for_node(0))
    assert isinstance(message, Steps)
    steps = tuple(replace(message.steps[0], before=number, after=number + 1) for number in range(300))
    blob = Steps(300, DIM, log.digest, steps).encode()
    assert len(blob) >= whole_model_size(DIM)
    with pytest.raises(MalformedMessage, match="are no fewer than the model of 5000 coordinates takes"):
        decode_catchup(blob)


def test_steps_with_a_gap_are_rejected() -> None:
    log = advanced(StepLog(start()), 3)
    message = decode_catchup(log.for_node(0))
    assert isinstance(message, Steps)
    first, _, third = message.steps
    with pytest.raises(MalformedMessage, match="a step from model 2 follows one to model 1"):
        decode_catchup(
            Steps(
                3,
                DIM,
                log.digest,
                (
                    first,
                    third,
                ),
            ).encode()
        )
    with pytest.raises(MalformedMessage, match="do not lead to the model 3"):
        decode_catchup(Steps(3, DIM, log.digest, (first,)).encode())
    with pytest.raises(MalformedMessage, match="a step for 5000 coordinates among those of a model of 6000"):
        decode_catchup(Steps(1, 6000, log.digest, (first,)).encode())


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (0, 9, "version 2, got 9"),
        (1, 3, "kind 1 or 2, got 3"),
        (10, 0, "take"),
        (20, 1, "the one that its digest names"),
    ],
)
def test_each_check_of_a_catch_up_names_what_is_wrong(place: int, value: int, problem: str) -> None:
    blob = bytearray(StepLog(start()).for_node(None))
    blob[place] = value
    with pytest.raises(MalformedMessage, match=problem):
        decode_catchup(bytes(blob))


def test_a_catch_up_that_ends_early_is_rejected_wherever_it_ends() -> None:
    log = advanced(StepLog(start(2000)), 2)
    blob = log.for_node(0)
    # No step, or one of the two, which then does not lead to model 2.
    whole = {50, len(blob) - (len(log.for_node(1)) - 50)}
    for length in range(len(blob)):
        if length == 50:
            assert isinstance(decode_catchup(blob[:length]), Steps)
            continue
        problem = "do not lead" if length in whole else "cut off|50 bytes or more"
        with pytest.raises(MalformedMessage, match=problem):
            decode_catchup(blob[:length])


@pytest.mark.parametrize("sequence", [None, 0])
def test_a_model_without_coordinates_is_rejected(sequence: int | None) -> None:
    blob = bytearray(StepLog(start()).for_node(sequence)[:50])
    blob[10:18] = bytes(8)
    with pytest.raises(MalformedMessage, match="a model has at least one coordinate"):
        decode_catchup(bytes(blob))


def test_the_parts_of_a_saved_log_must_belong_together() -> None:
    log, other = advanced(StepLog(start(600)), 1), advanced(StepLog(start(600)), 1, seed=1)
    saved, model = log.save(), log.for_node(None)
    bits, model_size, steps_size = struct.unpack_from("<BQQ", saved)
    assert model_size == len(model)
    steps, error = saved[17 + model_size :][:steps_size], saved[-4 * 600 :]

    def joined(model: bytes, steps: bytes, error: bytes) -> bytes:
        return struct.pack("<BQQ", bits, len(model), len(steps)) + model + steps + error

    assert joined(model, steps, error) == saved
    not_finite = error[:-4] + struct.pack("<f", float("nan"))
    for parts, problem in (
        ((other.for_node(None), steps, error), "do not lead to its model"),
        ((steps, model, error), "not a saved log"),
        ((model, model, error), "not a saved log"),
        ((model, steps, error[:-4]), "are not those of its model"),
        ((model, steps, not_finite), "not finite"),
    ):
        with pytest.raises(MalformedMessage, match=problem):
            StepLog.restore(joined(*parts))
