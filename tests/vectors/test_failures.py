"""What the vectors say must be refused is refused, with the error they name, and costs the round nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from vector_replay import ReplayedRound, load, names, read_roster

from sparsesecagg import errors
from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import PrivateKey, SealingKey
from sparsesecagg.field import Word, unpack
from sparsesecagg.protocol import RoundParameters
from sparsesecagg.protocol.locations import decode_locations
from sparsesecagg.protocol.messages import decode_users

Case = dict[str, Any]
CASES = [
    pytest.param(case, id=f"{name}: {case['about']}")
    for name in names()
    for case in load(name).get("cases", [])
    if "error" in case
]
raw = bytes.fromhex


def attempt(case: Case) -> None:
    """Do what the case says."""
    match case["operation"]:
        case "unpack_words":
            unpack(raw(case["bytes"]), case["count"], Word.of(case["bits"]))
        case "decode_users":
            decode_users(raw(case["bytes"]), case["clients"])
        case "decode_locations":
            decode_locations(raw(case["bytes"]), case["dim"])
        case "decode_parameters":
            RoundParameters.decode(raw(case["bytes"]))
        case "x25519":
            KeyAgreement(PrivateKey(raw(case["private"]))).with_peer(raw(case["peer_public"]))
        case "unseal":
            head = int(case["round_number"]), case["sender"], case["receiver"]
            sealing.unseal(SealingKey(raw(case["sealing_key"])), raw(case["sealed"]), *head)
        case "combine_shares":
            _combine(case)
        case "check_roster":
            read_roster(case["run"], case["users"])
        case "server_receives":
            _server_receives(case)
        case "server_closes":
            _server_closes(case)
        case "client_receives":
            _client_receives(case)
        case unknown:
            pytest.fail(f"no such operation: {unknown}")


def _combine(case: Case) -> None:
    elements = [shamir.decode_shares(raw(share)) for share in case["shares"]]
    (secret,) = shamir.combine(np.stack([row for row in elements if row is not None])[None], tuple(case["holders"]))
    if secret is None:  # The server turns this into the error.
        raise errors.InvalidShare("the shares do not fit together")


def _server_receives(case: Case) -> None:
    """A refused message leaves the server as it was: the round then goes on to its recorded end."""
    replayed = ReplayedRound(case["round"])
    replayed.play(0, case["after"])
    try:
        replayed.server.receive(raw(case["bytes"]), case.get("transport_sender"))
    finally:
        replayed.play(case["after"])
        assert replayed.finish().total.tolist() == replayed.vector["aggregate"]["total"]


def _server_closes(case: Case) -> None:
    replayed = ReplayedRound(case["round"])
    replayed.play(0, case["after"])
    for data in case["messages"]:
        replayed.server.receive(raw(data))
    try:
        replayed.server.close_stage()
    finally:
        assert replayed.server.result is None


def _client_receives(case: Case) -> None:
    """A refused message leaves the client at its stage."""
    replayed = ReplayedRound(case["round"])
    replayed.play(0, case["after"])
    client = replayed.clients[case["user"]]
    stage = client.stage
    try:
        replayed.answer(case["user"], raw(case["bytes"]))
    finally:
        assert client.stage is stage


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_with_the_error_that_the_vector_names(case: Case) -> None:
    with pytest.raises(errors.SparseSecAggError) as caught:
        attempt(case)
    assert type(caught.value).__name__ == case["error"]
    if "option" in case:
        assert getattr(caught.value, "option", None) == case["option"]


def test_every_protocol_error_of_a_round_has_a_vector() -> None:
    """RoundRefused sums up clients' refusals in one process, no answer to a message; draws belong to no round."""
    named = {case.values[0]["error"] for case in CASES}
    # Engines and benchmarks have errors of their own, which may be loaded in this process too.
    kinds = [kind for kind in errors.ProtocolError.__subclasses__() if kind.__module__ == errors.__name__]
    typed = {kind.__name__ for kind in kinds}
    assert named == (typed | {"InvalidInput"}) - {"RoundRefused", "DrawError"}
