"""The runs that are recorded: their parameters, and who drops out where."""

from __future__ import annotations

from typing import Any

import msgspec

from sparsesecagg.crypto.identity import Identity, IdentityKey, Roster, RunSecret, enrol
from sparsesecagg.protocol import Parameters, session_of
from sparsesecagg.protocol.draw import jury
from sparsesecagg.protocol.messages import Unmask, Upload, decode_client_message, encode
from vectors.form import Vector, named_bytes
from vectors.runs import Recorder, server_seed

MODEL = named_bytes("terms: the model and what else matters", 32)


def make_runs() -> dict[str, Vector]:
    """Return all runs by the name of their file."""
    runs = [_full, _full_neighbours, _sparse, _pairwise, _pairwise_neighbours]
    runs += [_committee, _pods, _weights, _rounds, _thin, _lost, _confirm, _authenticated, _false_shares]
    return {f"run{run.__name__}": run(f"run{run.__name__}").vector() for run in runs}


def _full(name: str) -> Recorder:
    about = "SecAgg: everybody sends everything. One user drops out at UPLOAD, one at UNMASK."
    run = Recorder(name, about, _params(name, clients=5, dim=24, pattern="full", modulus_bits=32, scale_bits=28))
    run.set_up()
    run.round(missing={4}, silent={1})
    return run


def _full_neighbours(name: str) -> Recorder:
    about = "SecAgg+: shares, tags and masks along a graph of degree 4. One user deals no package, one drops out."
    params = _params(name, clients=7, dim=20, pattern="full", modulus_bits=24, neighbours=4, scale_bits=20)
    run = Recorder(name, about, params)
    run.set_up(late={2})
    run.round(missing={5})
    return run


def _sparse(name: str) -> Recorder:
    about = "A circle: everybody masks with two others."
    params = _params(
        name, clients=6, dim=4, pattern="full", modulus_bits=8, neighbours=2, min_survivors=2, scale_bits=4
    )
    run = Recorder(name, about, params)
    run.set_up()
    run.round()
    return run


def _pairwise(name: str) -> Recorder:
    about = "SparseSecAgg as published; locations travel as coded gaps. One user drops out at UPLOAD."
    params = _params(name, clients=5, dim=250, pattern="pairwise", alpha=0.1, modulus_bits=32, scale_bits=28)
    run = Recorder(name, about, params)
    run.set_up()
    run.round(missing={3})
    return run


def _pairwise_neighbours(name: str) -> Recorder:
    about = "The published pattern on a graph of degree 4; locations travel as bitmaps; words of 12 bits."
    settings: dict[str, Any] = {"clients": 7, "dim": 40, "pattern": "pairwise", "alpha": 0.8, "neighbours": 4}
    run = Recorder(name, about, _params(name, **settings, modulus_bits=12, scale_bits=8))
    run.set_up()
    run.round(missing={0}, silent={6})
    return run


def _committee(name: str) -> Recorder:
    about = "One pod with three committees, each sending one slice; the last slice is padded. Dropouts everywhere."
    params = _params(name, clients=11, dim=31, committees=3, alpha=1 / 3, modulus_bits=16, scale_bits=10)
    run = Recorder(name, about, params)
    run.set_up(absent={6})
    run.round(terms=MODEL, missing={_of(run, 0)}, silent={_of(run, 2, 1)})
    return run


def _pods(name: str) -> Recorder:
    about = "Two pods of unequal size; every committee sends two of the four slices; words of 6 bits."
    params = _params(name, clients=13, dim=22, committees=4, pods=2, served=2, alpha=0.5, modulus_bits=6, scale_bits=4)
    run = Recorder(name, about, params)
    run.set_up(late={7})
    run.round(missing={_of(run, 1)})
    return run


def _weights(name: str) -> Recorder:
    about = (
        "Private weights in two digits beside the values of each slice; some values are clipped. In the second round a "
        "user claims a weight that none may have, and its committee is lost."
    )
    params = _params(name, clients=7, dim=26, committees=2, alpha=0.5, modulus_bits=8, max_weight=64, scale_bits=4)
    run = Recorder(name, about, params, weights=[64, 32, 16, 48, 0, 8, 56])
    run.set_up()
    run.round(missing={_of(run, 0)})
    liar, digit = _of(run, 1), params.slices.length + 1

    def forge(user: int, answer: bytes) -> bytes:
        message = decode_client_message(answer)
        if user != liar or not isinstance(message, Upload):
            return answer
        words = bytearray(message.words)
        words[digit] = (words[digit] + 20) % 256  # The higher digit of its weight.
        return encode(msgspec.structs.replace(message, words=memoryview(bytes(words))))

    run.round(forge=forge)
    return run


def _rounds(name: str) -> Recorder:
    about = (
        "Four rounds: slices rotate; one user misses the second and is back in the third, with its history; another "
        "misses the first two, so that it has no package for the third, deals again there and is back in the fourth."
    )
    params = _params(name, clients=6, dim=15, committees=2, alpha=0.5, modulus_bits=12, dropout=0.1, scale_bits=6)
    run = Recorder(name, about, params)
    run.set_up()
    away, longer = _of(run, 0), _of(run, 1)
    for terms, missing in ((MODEL, {longer}), (bytes(32), {away, longer}), (MODEL, set()), (bytes(32), set())):
        run.round(terms=terms, missing=missing)
    return run


def _thin(name: str) -> Recorder:
    about = (
        "A committee with one survivor loses its slices; then a whole round fails; then somebody's tag for one holder "
        "is false, so that this holder releases nothing of that committee, and all is opened nevertheless."
    )
    params = _params(name, clients=9, dim=14, committees=3, alpha=1 / 3, modulus_bits=5, dropout=0.3, scale_bits=2)
    run = Recorder(name, about, params)
    run.set_up()
    run.round(missing={_of(run, 1), _of(run, 1, 1)})
    run.round(missing={0, 1, 2, 3, 4})
    liar = _of(run, 0)

    def forge(user: int, answer: bytes) -> bytes:
        message = decode_client_message(answer)
        if user != liar or not isinstance(message, Upload):
            return answer
        return encode(msgspec.structs.replace(message, tags=bytes(8) + message.tags[8:]))

    run.round(forge=forge)
    return run


def _lost(name: str) -> Recorder:
    about = "No dropouts are expected, and three uploads of user 3 never arrive: it takes no part in the fourth round."
    params = _params(name, clients=4, dim=4, pattern="full", modulus_bits=8, scale_bits=4)
    run = Recorder(name, about, params)
    run.set_up()
    for _ in range(3):
        run.round(lost={3})
    run.round(missing={3})
    return run


def _confirm(name: str) -> Recorder:
    about = "A plain run with CONFIRM: users drop out at UPLOAD, CONFIRM and UNMASK."
    params = _params(name, clients=9, dim=19, committees=2, alpha=0.5, modulus_bits=16, confirm=True, scale_bits=9)
    run = Recorder(name, about, params)
    run.set_up()
    run.round(terms=MODEL, missing={_of(run, 0)}, unconfirmed={_of(run, 1)}, silent={_of(run, 0, 1)})
    return run


def _authenticated(name: str) -> Recorder:
    about = (
        "With a roster: a jury of three draws; a juror of the first draw stays silent, so there is a second one. After "
        "a round another epoch begins, with other groups, and the rounds go on."
    )
    identities, secrets = _enrolled(8)
    settings: dict[str, Any] = {"clients": 8, "dim": 16, "committees": 2, "alpha": 0.5, "colluders": 1}
    settings |= {"roster_digest": identities[0].roster.digest, "session": named_bytes("session", 32)}
    run = Recorder(
        name,
        about,
        _params(name, **settings, modulus_bits=10, scale_bits=5),
        identities=identities,
        secrets=secrets,
    )
    run.set_up(silent={jury(identities[0].roster.digest, 1, 8, 1)[0]})
    run.round(terms=MODEL, missing={_of(run, 0)}, unconfirmed={_of(run, 1)})
    run.next_epoch()
    run.round()
    return run


def _false_shares(name: str) -> Recorder:
    about = "Two of nine holders send false shares of several secrets: they are corrected and named."
    params = _params(name, clients=9, dim=15, pattern="full", modulus_bits=20, scale_bits=14)
    run = Recorder(name, about, params)
    run.set_up()

    def forge(user: int, answer: bytes) -> bytes:
        message = decode_client_message(answer)
        if not isinstance(message, Unmask):
            return answer
        shares = bytearray(message.shares)
        for place in {2: (0, 45), 7: (3, 61, 102)}.get(user, ()):
            shares[place] ^= 1  # The lowest bit of a byte: elements stay in the field, but for one value in 2^31.
        return encode(msgspec.structs.replace(message, shares=bytes(shares)))

    run.round(forge=forge)
    return run


def _of(run: Recorder, committee: int, member: int = 0) -> int:
    """Return a member of a committee that advertised a key."""
    pod = next(pod for pod in reversed(run.server.groups.pods) if pod.first <= committee)
    members = [int(user) for user in pod.users[pod.committees[committee - pod.first]]]
    return [user for user in members if user in run.members][member]


def _params(name: str, *, scale_bits: int, **settings: Any) -> Parameters:
    """Return parameters whose scale is 2^scale_bits, so that dyadic updates need no rounding."""
    settings = {"session": session_of(server_seed(name)), **settings}
    limit = Parameters.create(**settings).quantizer.limit
    return Parameters.create(**settings, clip=limit / 2**scale_bits)


def _enrolled(clients: int) -> tuple[list[Identity], Vector]:
    run = "vectors"
    identities = [named_bytes(f"vectors/identity/{user}", 32) for user in range(clients)]
    run_secrets = [named_bytes(f"vectors/run secret/{user}", 32) for user in range(clients)]
    entries = [enrol(IdentityKey(i), run, RunSecret(s)) for i, s in zip(identities, run_secrets, strict=True)]
    roster = Roster(run, tuple(entries))
    secrets = {
        "run": run,
        "users": [
            {"identity_private": identity.hex(), "run_secret": run_secret.hex(), **entry.as_json()}
            for identity, run_secret, entry in zip(identities, run_secrets, entries, strict=True)
        ],
    }
    return [Identity(user, RunSecret(secret), roster) for user, secret in enumerate(run_secrets)], secrets
