"""Mutated messages: only typed errors, whatever the bytes, and no memory to speak of.

The checksum would catch nearly all of them, so it is made to fit again: what is tested is everything behind it.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from protocol.rounds import LENIENT, Run, grouped, small
from sparsesecagg.crypto.kdf import CHECKSUM_SIZE, checksum
from sparsesecagg.errors import MalformedMessage, SparseSecAggError
from sparsesecagg.patterns.gaps import decode_locations, encode_locations
from sparsesecagg.protocol import Client, Server, Stage
from sparsesecagg.protocol.messages import decode_client_message, decode_server_message
from sparsesecagg.simulate import Cohort, InProcessRun

PER_TYPE = 50_000
DEEP = 600


def mutants(data: bytes, count: int, seed: int, skip: int = 1) -> Iterator[bytes]:
    """Yield changed, cut and extended copies of `data`; the first `skip` bytes stay."""
    rng = np.random.default_rng(seed)
    kinds, places = rng.integers(0, 8, count), rng.integers(skip, max(skip + 1, len(data)), (count, 3))
    values = rng.integers(0, 256, (count, 3), np.uint8)
    for kind, place, value in zip(kinds.tolist(), places.tolist(), values.tolist(), strict=True):
        mutant = bytearray(data)
        if kind == 0:
            del mutant[place[0] :]
        elif kind == 1:
            mutant[place[0] : place[0]] = bytes(value)
        elif kind == 2:
            mutant[place[0] : place[0] + 5] = b"\xc6\xff\xff\xff\xff"  # A claim of 4 GB.
        else:
            for at, new in zip(place[: 1 + kind % 3], value, strict=False):
                if at < len(mutant):
                    mutant[at] = new
        yield bytes(mutant)


def resealed(message: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Yield mutants of a message whose checksum fits."""
    for body in mutants(message[:-CHECKSUM_SIZE], count, seed):
        yield body + checksum(body)


def transcript() -> dict[str, tuple[bytes, bool]]:
    """Return one genuine message of each type, and whether it is a client's."""
    run = Run(small(pattern="pairwise"), set_up=False)
    found: dict[str, tuple[bytes, bool]] = {}

    def note(data: bytes, from_client: bool) -> None:
        message = decode_client_message(data) if from_client else decode_server_message(data)
        found[type(message).__name__] = data, from_client

    note(run.answer(0), True)
    run.step()
    note(run.inbox[0], False)
    run.join()
    note(run.clients[0].share_keys(0, again=True)[0], True)
    run.begin()
    while run.server.stage is not Stage.SHARE_KEYS:
        note(run.inbox[0], False)
        note(run.answer(0), True)
        run.step()
    assert len(found) == 7
    return found


MESSAGES = transcript()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_fifty_thousand_mutants_of_each_type_decode_or_raise_a_typed_error(name: str) -> None:
    data, from_client = MESSAGES[name]
    decode = decode_client_message if from_client else decode_server_message
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for mutant in resealed(data, PER_TYPE, seed=len(name)):
        try:
            decode(mutant)
        except MalformedMessage:
            refused += 1
    assert PER_TYPE // 10 < refused < PER_TYPE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "kilobytes"


@pytest.mark.parametrize("pattern", ["full", "pairwise", "sliced"])
@pytest.mark.parametrize("stage", [Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK])
def test_the_server_meets_mutants_with_typed_errors(stage: Stage, pattern: str) -> None:
    params = small(clients=6, pattern=pattern, alpha=1.0 if pattern == "full" else 0.5)

    def start(seed: int) -> tuple[Run, bytes]:
        if stage is Stage.ADVERTISE_KEYS:
            run = Run(params, seed=seed, set_up=False)
            return run, run.answer(0)
        if stage is Stage.SHARE_KEYS:
            run = Run(params, seed=seed, late=[0])
            return run, run.clients[0].share_keys(0)[0]
        run = Run(params, seed=seed).run_to(stage)
        return run, run.answer(0)

    run, answer = start(0)
    taken = 0
    for mutant in resealed(answer, DEEP // 5, seed=1):
        try:
            run.server.receive(None, mutant)
        except SparseSecAggError:
            continue
        taken += 1
        run, _ = start(taken)
        if taken == 10:
            break


@pytest.mark.slow
@pytest.mark.parametrize("stage", [Stage.ADVERTISE_KEYS, Stage.UPLOAD, Stage.UNMASK])
def test_clients_meet_mutants_with_typed_errors(stage: Stage) -> None:
    """Whatever the server sends: the epoch's keys, headers and requests."""
    run = Run(grouped(roster=True), set_up=stage is not Stage.ADVERTISE_KEYS)
    if stage is Stage.ADVERTISE_KEYS:
        run.step()
    else:
        run.run_to(stage)
    user = next(iter(run.inbox))
    request = run.inbox[user]
    actions: dict[Stage, Callable[[Client, bytes], object]] = {
        Stage.ADVERTISE_KEYS: lambda client, data: client.join(data),
        Stage.UPLOAD: lambda client, data: client.upload(data, run.updates[user]),
        Stage.UNMASK: lambda client, data: client.unmask(data),
    }
    for mutant in resealed(request, DEEP, seed=2):
        try:
            actions[stage](run.copied(user), mutant)
        except SparseSecAggError:
            continue


@pytest.mark.parametrize("who", ["client", "server", "run"])
def test_mutated_states_are_restored_or_refused(who: str) -> None:
    """And one that is restored fails, if at all, with a typed error."""
    run = Run(small()).begin()
    header = run.inbox[0]
    whole = InProcessRun(small(), Cohort(LENIENT))
    saved = {"client": run.clients[0].save(), "server": whole.server.save(), "run": whole.save()}[who]
    for mutant in mutants(saved, DEEP // 3, seed=4, skip=0):
        try:
            if who == "client":
                run.restored(0, mutant).upload(header, run.updates[0])
            elif who == "server":
                Server.restore(mutant).begin_round()
            else:
                InProcessRun.restore(mutant, Cohort(LENIENT))
        except SparseSecAggError:
            continue


def test_mutated_locations_are_strictly_increasing_or_refused() -> None:
    positions = np.flatnonzero(np.random.default_rng(0).random(3000) < 0.1)
    for mutant in mutants(encode_locations(positions, 3000), 5000, seed=3, skip=0):
        try:
            found = decode_locations(mutant, 3000)
        except MalformedMessage:
            continue
        assert (np.diff(found) > 0).all()
        assert not len(found) or (found[0] >= 0 and found[-1] < 3000)


def test_a_claim_of_many_locations_is_refused_before_anything_is_allocated() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    claim = b"\x01\x20" + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff"
    with pytest.raises(MalformedMessage):
        decode_locations(claim, 1 << 40)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000
