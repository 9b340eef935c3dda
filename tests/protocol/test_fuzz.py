"""Mutated messages: only typed errors, whatever the bytes, and no memory to speak of.

The checksum would catch nearly all of them, so it is made to fit again: what is tested is everything behind it.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator

import numpy as np
import pytest

from protocol.rounds import Round, identities, small
from sparsesecagg.errors import MalformedMessage, SparseSecAggError
from sparsesecagg.protocol import Client, Stage
from sparsesecagg.protocol.locations import decode_locations, encode_locations
from sparsesecagg.protocol.messages import CHECKSUM_SIZE, checksum, decode_client_message, decode_server_message

PER_TYPE = 100_000
DEEP = 1_500


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
    people = identities(5)
    game = Round(small(pattern="pairwise", roster_digest=people[0].roster.digest), identities=people)
    found: dict[str, tuple[bytes, bool]] = {}
    while game.server.stage is not Stage.DONE:
        if game.inbox[0]:
            found[type(decode_server_message(game.inbox[0])).__name__] = game.inbox[0], False
        for user in game.inbox:
            answer = game.answer(user)
            game.server.receive(answer)
        found[type(decode_client_message(answer)).__name__] = answer, True
        game.inbox = game.server.close_stage()
    return found


MESSAGES = transcript()


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_a_hundred_thousand_mutants_of_each_type_decode_or_raise_a_typed_error(name: str) -> None:
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


@pytest.mark.parametrize("pattern", ["full", "pairwise", "committee"])
@pytest.mark.parametrize("stage", [Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS, Stage.UPLOAD, Stage.UNMASK])
def test_the_server_meets_mutants_with_typed_errors(stage: Stage, pattern: str) -> None:
    game = Round(small(pattern=pattern, alpha=0.7)).run_to(stage)
    answer = game.answer(0)
    taken = 0
    for mutant in resealed(answer, DEEP // 5, seed=1):
        try:
            game.server.receive(mutant)
        except SparseSecAggError:
            continue
        taken += 1
        game = Round(small(pattern=pattern, alpha=0.7), seed=taken).run_to(stage)
        if taken == 20:
            break


@pytest.mark.parametrize("stage", [Stage.SHARE_KEYS, Stage.UPLOAD, Stage.CONFIRM, Stage.UNMASK])
def test_clients_meet_mutants_with_typed_errors(stage: Stage) -> None:
    people = identities(5)
    params = small(pattern="committee", alpha=0.7, roster_digest=people[0].roster.digest)
    game = Round(params, identities=people).run_to(stage)
    saved, request = game.clients[0].save(), game.inbox[0]
    for mutant in resealed(request, DEEP, seed=2):
        game.clients[0] = Client.restore(saved, game.policy, identity=people[0])
        game.inbox[0] = mutant
        try:
            game.answer(0)
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
