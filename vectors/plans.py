"""The runs that are recorded: their parameters, and who drops out or lies where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec

from sparsesecagg.crypto.identity import Identity, IdentityKey, Roster, RunSecret, enrol
from sparsesecagg.field import pack, unpack
from sparsesecagg.protocol import Parameters, RoundOptions
from sparsesecagg.protocol.messages import ShareKeys, Unmask, Upload, decode_client_message, encode
from vectors.form import Vector, named_bytes
from vectors.runs import Forge, Recorder

Kind = TypeVar("Kind", ShareKeys, Unmask, Upload)
MODEL = named_bytes("context: the model and what else matters", 32)


def make_runs() -> dict[str, Vector]:
    """Return all runs by the name of their file."""
    runs = [_sliced, _groups, _full, _full_neighbours, _circle, _pairwise, _pairwise_neighbours, _weights, _rounds]
    runs += [_noise, _authenticated, _lost_group, _false_shares, _false_package, _bad_tags]
    return {f"run{run.__name__}": run(f"run{run.__name__}").vector() for run in runs}


def _sliced(name: str) -> Recorder:
    about = (
        "The default pattern, one group: three coordinates of every ten, the last block is cut. One user advertises no "
        "key, one drops out at UPLOAD, one at UNMASK."
    )
    run = _run(name, about, 8, 33, RoundOptions(alpha=0.3, modulus_bits=16), 10)
    run.set_up(absent={6})
    run.round(context=MODEL, missing={2}, silent={5})
    return run


def _groups(name: str) -> Recorder:
    about = (
        "Three groups of unequal size, each with another slice; words of 6 bits. The first has too few keys and takes "
        "no part, one user of the second has no key package for the first round, one of the third drops out."
    )
    run = _run(name, about, 13, 22, RoundOptions(alpha=0.25, group_size=5, threshold=3, modulus_bits=6), 2)
    run.set_up(absent={_of(run, 0), _of(run, 0, 1)}, late={_of(run, 1)})
    run.round(missing={_of(run, 2)})
    run.round()
    return run


def _full(name: str) -> Recorder:
    about = "SecAgg: everybody sends everything. One user drops out at UPLOAD."
    run = _run(name, about, 5, 24, RoundOptions("full"), 28)
    run.set_up()
    run.round(missing={4})
    return run


def _full_neighbours(name: str) -> Recorder:
    about = "SecAgg+: shares, tags and masks along a graph of degree 4. One user has no key package, one drops out."
    run = _run(name, about, 7, 20, RoundOptions("full", neighbours=4, modulus_bits=24), 20)
    run.set_up(late={2})
    run.round(missing={5})
    return run


def _circle(name: str) -> Recorder:
    about = "A circle: everybody masks with two others."
    run = _run(name, about, 6, 4, RoundOptions("full", neighbours=2, modulus_bits=8), 4)
    run.set_up()
    run.round()
    return run


def _pairwise(name: str) -> Recorder:
    about = "SparseSecAgg as published; locations travel as coded gaps. One user drops out at UPLOAD."
    run = _run(name, about, 5, 250, RoundOptions("pairwise", alpha=0.1), 28)
    run.set_up()
    run.round(missing={3})
    return run


def _pairwise_neighbours(name: str) -> Recorder:
    about = "The published pattern on a graph of degree 4; locations travel as bitmaps; words of 12 bits."
    run = _run(name, about, 7, 40, RoundOptions("pairwise", alpha=0.8, neighbours=4, modulus_bits=12), 8)
    run.set_up()
    run.round(missing={0}, silent={6})
    return run


def _weights(name: str) -> Recorder:
    about = (
        "Private weights in digits beside the values; some values are clipped. In the second round a user claims a "
        "weight that none may have, and its group is lost."
    )
    options = RoundOptions(alpha=0.5, group_size=5, modulus_bits=7, max_weight=64)
    run = _run(name, about, 9, 26, options, 2, weights=[64, 32, 16, 48, 0, 16, 32, 64, 48])
    run.set_up()
    run.round(missing={_of(run, 1)})
    liar, word, digits = _of(run, 1), run.params.word, run.params.shape.digits

    def claim(message: Upload) -> Upload:
        words = unpack(message.words, 13 + digits.total, word)
        words[-2] = (words[-2] + 20) % word.modulus  # The higher digit of its weight; behind it, what it clipped.
        return msgspec.structs.replace(message, words=pack(words, word))

    run.round(forge=_by(liar, Upload, claim))
    return run


def _noise(name: str) -> Recorder:
    about = (
        "Differential privacy: slices are clipped in their norm, rounded, and get Skellam noise, of which every user "
        "adds a fourth, since four of five are in every sum. No count of clipped values. One user drops out."
    )
    options = RoundOptions(alpha=0.5, modulus_bits=8, clip_norm=64.0, noise_multiplier=0.75)
    run = _run(name, about, 5, 12, options)
    run.set_up()
    run.round(missing={2})
    return run


def _rounds(name: str) -> Recorder:
    about = (
        "Four rounds: slices rotate; one user misses the second and is back in the third; another misses the first "
        "two, so that it has no key package for the third, sends two there and is back in the fourth."
    )
    run = _run(name, about, 6, 15, RoundOptions(alpha=0.25, modulus_bits=12), 6)
    run.set_up()
    for context, missing in ((MODEL, {1}), (bytes(32), {0, 1}), (MODEL, set[int]()), (bytes(32), set[int]())):
        run.round(context=context, missing=missing)
    return run


def _authenticated(name: str) -> Recorder:
    about = (
        "With a roster, whose seed draws two groups. After a round the fourth epoch begins: other groups, other keys, "
        "and the rounds go on."
    )
    identities, secrets = _enrolled(12, 6)
    options = RoundOptions(alpha=0.5, modulus_bits=10)
    run = _run(name, about, 12, 16, options, 5, identities=identities, secrets=secrets)
    run.set_up()
    run.round(context=MODEL, missing={_of(run, 0)}, silent={_of(run, 1)})
    run.next_epoch(4)
    run.round(context=MODEL)
    return run


def _lost_group(name: str) -> Recorder:
    about = (
        "Two groups that send the same slice. One falls below its threshold and loses the round; then the whole round "
        "fails; then both are opened, with the secrets of other rounds."
    )
    options = RoundOptions(alpha=0.5, group_size=4, modulus_bits=5, same_slices=True)
    run = _run(name, about, 8, 14, options, 1)
    run.set_up()
    run.round(missing={_of(run, 1), _of(run, 1, 1)})
    run.round(missing={0, 1, 2, 3, 4, 5})
    for user in run.members:
        run.share_keys(user)
    run.round()
    return run


def _false_shares(name: str) -> Recorder:
    about = (
        "Of nine holders one sends false shares of everything, one of two secrets: they are corrected and named. The "
        "first gets no more rounds."
    )
    run = _run(name, about, 9, 15, RoundOptions("full", threshold=5, modulus_bits=20), 12)
    run.set_up()

    def falsify(places: range | tuple[int, ...]) -> Callable[[Unmask], Unmask]:
        def change(message: Unmask) -> Unmask:
            shares = bytearray(message.shares)
            for place in places:
                shares[place] ^= 1  # The lowest bit of a byte: elements stay in the field, but for one value in 2^31.
            return msgspec.structs.replace(message, shares=bytes(shares))

        return change

    one, other = _by(2, Unmask, falsify(range(0, 180, 20))), _by(7, Unmask, falsify((61, 102)))
    run.round(forge=lambda user, answer: other(user, one(user, answer)))
    run.round()
    return run


def _false_package(name: str) -> Recorder:
    about = (
        "A user commits to another private seed than it shares: the first round can't be opened, it is named, and "
        "the second round succeeds without it."
    )
    run = _run(name, about, 6, 8, RoundOptions(alpha=0.5, modulus_bits=8), 3)

    def another(message: ShareKeys) -> ShareKeys:
        return msgspec.structs.replace(message, commitment=named_bytes("another commitment", 32))

    run.set_up(forge=_by(3, ShareKeys, another))
    run.round()
    run.round()
    return run


def _bad_tags(name: str) -> Recorder:
    about = (
        "A user whose tags are all false is left out of the sum and gets no more rounds. Then another has valid tags "
        "for some holders only: neither of its secrets can be restored, the round is lost, and it is named. The third "
        "round succeeds with the others."
    )
    run = _run(name, about, 7, 10, RoundOptions(alpha=0.5, threshold=5, modulus_bits=9), 3)
    run.set_up()

    def tagged(good: int) -> Callable[[Upload], Upload]:
        def change(message: Upload) -> Upload:
            size = len(message.tags)
            return msgspec.structs.replace(message, tags=message.tags[: 8 * good] + bytes(size - 8 * good))

        return change

    run.round(forge=_by(4, Upload, tagged(0)))
    run.round(forge=_by(0, Upload, tagged(3)))
    run.round()
    return run


def _by(liar: int, kind: type[Kind], change: Callable[[Kind], Kind]) -> Forge:
    """Return a lie: one user's messages of a kind, changed."""

    def forge(user: int, answer: bytes) -> bytes:
        message = decode_client_message(answer)
        return encode(change(message)) if user == liar and isinstance(message, kind) else answer

    return forge


def _of(run: Recorder, group: int, member: int = 0) -> int:
    """Return a member of a group."""
    return int(run.server.groups.groups[group].users[member])


def _run(
    name: str,
    about: str,
    clients: int,
    dim: int,
    options: RoundOptions,
    scale_bits: int = 0,
    *,
    identities: list[Identity] | None = None,
    secrets: Vector | None = None,
    weights: list[int] | None = None,
) -> Recorder:
    """Return a recorder whose scale is 2^scale_bits, so that dyadic updates need no rounding; noise rounds anyway."""
    roster, session = identities[0].roster if identities else None, named_bytes(f"{name}/session", 32)
    limit = Parameters.create(clients, dim, options, session=session, roster=roster).quantizer.limit
    options = replace(options, clip=limit / 2**scale_bits)
    params = Parameters.create(clients, dim, options, session=session, roster=roster)
    return Recorder(name, about, params, identities=identities or (), secrets=secrets, weights=weights or ())


def _enrolled(clients: int, group_size: int) -> tuple[list[Identity], Vector]:
    run = "vectors"
    identities = [named_bytes(f"vectors/identity/{user}", 32) for user in range(clients)]
    run_secrets = [named_bytes(f"vectors/run secret/{user}", 32) for user in range(clients)]
    entries = [enrol(IdentityKey(i), run, RunSecret(s)) for i, s in zip(identities, run_secrets, strict=True)]
    roster = Roster(run, tuple(entries), named_bytes("vectors/seed", 32), group_size, 0.1)
    secrets = {
        "run": run,
        "group_size": group_size,
        "colluding": roster.colluding,
        "beacon": roster.beacon,
        "seed": (roster.seed or b"").hex(),
        "users": [
            {"identity_private": identity.hex(), "run_secret": run_secret.hex(), **entry.as_json()}
            for identity, run_secret, entry in zip(identities, run_secrets, entries, strict=True)
        ],
    }
    return [Identity(user, RunSecret(secret), roster) for user, secret in enumerate(run_secrets)], secrets
