"""What the vectors say must be refused is refused, with the error they name, and costs the run nothing more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparsesecagg import errors
from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import PrivateKey, RoundSecrets
from sparsesecagg.field import Word, unpack
from sparsesecagg.patterns.gaps import decode_locations
from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.messages import UnmaskRequest, decode_server_message, decode_users
from vector_replay import ReplayedRun, load, names, read_roster

Case = dict[str, Any]
REFUSED = [
    (f"{name}: {case['about']}", case) for name in names() for case in load(name).get("cases", []) if "error" in case
]
CASES = [pytest.param(case, id=name) for name, case in REFUSED]
raw = bytes.fromhex


def attempt(case: Case) -> None:
    """Do what the case says."""
    match case["operation"]:
        case "unpack_words":
            unpack(raw(case["bytes"]), case["count"], Word.of(case["bits"]))
        case "decode_users":
            decode_users(raw(case["bytes"]), case["count"])
        case "decode_locations":
            decode_locations(raw(case["bytes"]), case["dim"])
        case "decode_parameters":
            Parameters.decode(raw(case["bytes"]))
        case "x25519":
            KeyAgreement(PrivateKey(raw(case["private"]))).with_peer(raw(case["peer_public"]))
        case "unseal":
            [cipher] = sealing.ciphers(RoundSecrets(raw(case["round_secret"])))
            if sealing.unseal(cipher, case["sender"], case["receiver"], raw(case["sealed"])) is None:
                raise errors.InvalidShare("does not open")  # A client leaves it out.
        case "combine_shares":
            _combine(case)
        case "check_roster":
            _check_roster(case)
        case "epoch_seed":
            Parameters.decode(raw(case["parameters"])).epoch_seed(case["epoch"], None)
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


def _check_roster(case: Case) -> None:
    roster = read_roster(case)
    if "value" in case:
        roster.with_beacon(raw(case["value"]))
    roster.epoch_seed(case.get("epoch", 1))


def _server_receives(case: Case) -> None:
    """A refused message leaves the server as it was: the run then goes on to its recorded end."""
    replayed = ReplayedRun(case["run"])
    replayed.play(0, case["after"])
    try:
        replayed.server.receive(case.get("transport_sender"), raw(case["bytes"]))
    finally:
        replayed.play(case["after"])


def _server_closes(case: Case) -> None:
    replayed = ReplayedRun(case["run"])
    replayed.play(0, case["after"])
    for data in case["messages"]:
        replayed.server.receive(None, raw(data))
    try:
        replayed.server.close_stage()
    finally:
        assert replayed.server.result is None


def _client_receives(case: Case) -> None:
    """A refused message leaves the client as it was, unless the round is used up."""
    replayed, user = ReplayedRun(case["run"]), case["user"]
    replayed.play(0, case["after"])
    before = replayed.clients[user].save()
    try:
        replayed.receive(user, raw(case["bytes"]))
    finally:
        if _uses_up(case):
            with pytest.raises(errors.AlreadyAnswered):
                replayed.play(case["after"])
        else:
            assert replayed.clients[user].save() == before
            replayed.play(case["after"])


def _uses_up(case: Case) -> bool:
    """Tell whether the refusal uses the round up: an UNMASK that breaks the rule of release."""
    if case["error"] != "PolicyViolation":
        return False
    return isinstance(decode_server_message(raw(case["bytes"])), UnmaskRequest)


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_with_the_error_that_the_vector_names(case: Case) -> None:
    with pytest.raises(errors.SparseSecAggError) as caught:
        attempt(case)
    assert case["error"] in {kind.__name__ for kind in type(caught.value).__mro__ if kind is not Exception}
    if "option" in case:
        assert getattr(caught.value, "option", None) == case["option"]


def test_every_protocol_error_has_a_vector() -> None:
    """RoundRefused sums up refusals in one process, and steps on the way down are apart."""
    named = {case["error"] for _, case in REFUSED}
    # Engines and benchmarks have errors of their own, which may be loaded in this process too.
    kinds = [*errors.ProtocolError.__subclasses__(), *errors.RoundFailed.__subclasses__()]
    typed = {kind.__name__ for kind in kinds if kind.__module__ == errors.__name__}
    assert named == (typed | {"InvalidInput"}) - {"RoundFailed", "RoundRefused", "WrongStep"}
