"""Where the time goes: a profile of each side's work, grouped by what the functions are for, beside the floor.

The profiler makes Python calls more expensive than they are, so what it gives are shares, not seconds. The floor is
what the protocol can't do without: an agreement (X25519) for each pair and the key stream (AES-256) of each mask,
at the rates that this machine reaches. Floor and measured times are processor seconds, the least of the repeats.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.setting import ANYBODY, Setting
from benchmarks.systems import parameters, start
from sparsesecagg.crypto.secrets import MaskSeed
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.field import Word
from sparsesecagg.simulate import InProcessRun

SETTING = Setting(clients=100, dim=1_663_370, alpha=0.1, dropout=0.3, modulus_bits=16)
SYSTEMS = ("secagg", "sliced")
GROUPS = {
    "key agreement (X25519)": ("exchange", "x25519", "keys.py"),
    "key derivation, hashing": ("hkdf", "kdf.py", "hashes", "sha256", "hmac", "_seeds"),
    "mask streams (AES-256)": (
        "update_into",
        "aesgcm",
        "ciphers",
        "stream.py",
        "modes.py",
        "algorithms.py",
        "instancecheck",
    ),
    "adding masks": ("masks.py", "'add' of 'numpy.ufunc'"),
    "tags, sealed shares": ("aead", "sealing.py"),
    "secret sharing": ("shamir.py", "opening.py", "decoding.py", "prime_field.py"),
    "slices, rounding, words": (
        *("sliced.py", "rounding.py", "words.py", "packing.py", "combine.py", "result.py", "base.py"),
        *("groups.py", "pairwise.py", "gaps.py", "locations.py"),
    ),
    "messages, bookkeeping": ("/protocol/", "checksum.py", "msgspec", "secrets.py"),
}
"""By what a profile's entry contains; the first that fits. NumPy and built-ins count to whoever called them."""
SIDES = ("client_upload", "server")
_STREAM_BYTES = 1 << 18
Entry = tuple[str, int, str]


def measure(setting: Setting = SETTING, systems: list[str] | None = None, clients: int = 10) -> dict[str, Any]:
    """Return, for each system and side, its time, its floor, and which part of a profile each group takes.

    `less` has how many times less the last system takes than the first, and would at the floors of both.

    The client's are those of UPLOAD, of the first `clients` survivors; the server's those of UPLOAD and UNMASK.
    """
    answer, rates = {}, _rates()
    for system in systems or SYSTEMS:
        run = start(system, setting)
        seconds = _play(run, setting, clients)[0]
        _, *profiles = _play(InProcessRun(run.params, ANYBODY), setting, clients, profiled=True)
        answer[system] = {
            **{side: shares(profile) for side, profile in zip(SIDES, profiles, strict=True)},
            "seconds": seconds,
            "floor": _floor(system, setting, rates),
        }
    found = list(answer.values())
    first, last = found[0], found[-1]
    less = {key: {side: first[key][side] / last[key][side] for side in SIDES} for key in ("seconds", "floor")}
    return {"systems": answer, "less": less, "rates": rates, "settings": setting.settings()}


def shares(profile: cProfile.Profile) -> dict[str, float]:
    """Return each group's share of the profiled time, the largest first."""
    times: dict[str, float] = defaultdict(float)
    stats: dict[Entry, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for entry, (_, _, own, _, callers) in stats.items():
        group = _group(entry)
        if group is not None:
            times[group] += own
            continue
        called = sum(caller[2] for caller in callers.values()) or 1.0
        for caller, numbers in callers.items():
            times[_group(caller) or "other"] += own * numbers[2] / called
    total = sum(times.values())
    return {group: seconds / total for group, seconds in sorted(times.items(), key=lambda item: -item[1])}


def _play(
    run: InProcessRun, setting: Setting, counted: int, profiled: bool = False
) -> tuple[dict[str, float], cProfile.Profile, cProfile.Profile]:
    """Run a round in this thread alone; return processor seconds of a client and the server, and a profile of each."""
    server, clients = run.server, run.clients
    of_client, of_server = cProfile.Profile(time.process_time), cProfile.Profile(time.process_time)
    spent: dict[cProfile.Profile, list[float]] = {of_client: [], of_server: []}

    def timed(profile: cProfile.Profile, act: Callable[..., Any], *arguments: Any) -> Any:
        begun = time.process_time()
        found = profile.runcall(act, *arguments) if profiled else act(*arguments)
        spent[profile].append(time.process_time() - begun)
        return found

    inbox = timed(of_server, server.begin_round)
    for number, user in enumerate(setting.survivors):
        update = setting.update(user)
        if number < counted:
            answer = timed(of_client, clients[user].upload, inbox[user], update)
        else:
            answer = clients[user].upload(inbox[user], update)
        timed(of_server, server.receive, user, answer)
    inbox = timed(of_server, server.close_stage)
    for user, request in inbox.items():
        timed(of_server, server.receive, user, clients[user].unmask(request))
    for each in server.rounds:  # As `close_stage` does, which has threads of its own that a profiler does not see.
        timed(of_server, each.open)
    return {"client_upload": min(spent[of_client]), "server": sum(spent[of_server])}, of_client, of_server


def _rates() -> dict[str, float]:
    """Return what an agreement takes, and the bytes of key stream per second, on this machine."""
    own, peer = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    stream, room = MaskStream(MaskSeed(os.urandom(32)), Word.of(16)), memoryview(bytearray(_STREAM_BYTES + 16))
    return {
        "agreement_seconds": _least(lambda: own.exchange(peer)),
        "stream_bytes_per_second": _STREAM_BYTES / _least(lambda: stream.fill_once(room, _STREAM_BYTES)),
    }


def _least(act: Callable[[], object], turns: int = 20, calls: int = 50) -> float:
    found = []
    for _ in range(turns):
        begun = time.process_time()
        for _ in range(calls):
            act()
        found.append((time.process_time() - begun) / calls)
    return min(found)


def _floor(system: str, setting: Setting, rates: dict[str, float]) -> dict[str, float]:
    """Return the least that both sides can take: agreements and key streams, nothing else."""
    params = parameters(system, setting)
    mask = params.shape.length * params.word.dtype.itemsize / rates["stream_bytes_per_second"]
    orphaned, pairs = len(setting.dropped) * len(setting.survivors), setting.clients - 1
    return {
        "client_upload": pairs * rates["agreement_seconds"] + (pairs + 1) * mask,
        "server": orphaned * rates["agreement_seconds"] + (orphaned + len(setting.survivors)) * mask,
    }


def _group(entry: Entry) -> str | None:
    text = " ".join(map(str, entry)).lower()
    for group, marks in GROUPS.items():
        if any(mark in text for mark in marks):
            return group
    return None
