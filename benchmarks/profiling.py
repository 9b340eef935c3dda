"""Where the time still goes: a profile of each side's work, grouped by what the functions are for.

    python -m benchmarks.profiling [--json]

The profiler makes Python calls dearer than they are, so what it gives are shares, not seconds.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections import defaultdict
from typing import Annotated, Any

import typer
from rich.table import Table

from benchmarks import command, results
from benchmarks.cohort import ANY_RUN, Cohort
from benchmarks.systems import parameters
from sparsesecagg.simulate import InProcessRun

RESULT = "profile"
DEFAULT = Cohort(clients=100, dim=1_663_370, alpha=0.1, dropout=0.3, modulus_bits=16)

GROUPS = {
    "key agreement (X25519)": ("exchange", "x25519", "keys.py"),
    "key derivation, hashing": ("hkdf", "kdf.py", "hashes", "sha256", "hmac"),
    "mask streams (AES-256-CTR)": ("update_into", "ciphers", "stream.py", "modes.py", "algorithms.py", "instancecheck"),
    "adding masks": ("masking.py", "sliced.py", "drawn.py", "work.py", "'add' of 'numpy.ufunc'"),
    "tags, sealed shares": ("aead", "sealing.py", "tags.py"),
    "secret sharing": ("shamir.py", "opening.py", "decoding.py", "prime_field.py", "package.py"),
    "pattern": ("gaps.py", "pairwise.py", "graphs.py", "groups.py", "slices.py"),
    "quantising, words": ("rounding.py", "words.py", "packing.py", "digits.py", "result.py"),
    "locations": ("locations.py",),
    "messages, bookkeeping": (
        *("messages.py", "client.py", "client_state.py", "server.py", "pod_round.py", "order.py", "epoch.py"),
        *("acceptance.py", "history.py", "ledger.py", "policy.py", "release.py", "checksum.py", "msgspec"),
    ),
}
"""By what a profile's entry contains; the first that fits. NumPy and built-ins count to whoever called them."""

Entry = tuple[str, int, str]


def main(
    systems: Annotated[str, typer.Option(help="Comma-separated, of our systems.")] = "secagg,pairwise,committee",
    save: Annotated[bool, typer.Option("--save", help="Write benchmarks/results/profile.json.")] = False,
    json: command.JsonOption = False,
) -> None:
    """Profile UPLOAD and UNMASK of both sides."""
    begun = results.begin(publish=save)
    answer = measure(DEFAULT, systems.split(","))
    if save:
        results.write(RESULT, answer, begun)
    if json:
        command.print_json(answer)
    else:
        command.out.print(_table(answer))


def measure(cohort: Cohort, systems: list[str], clients: int = 10) -> dict[str, Any]:
    """Return, for each system and side, which part of its time each group takes.

    The client's share is that of UPLOAD, over the first `clients` survivors; the server's that of UPLOAD and UNMASK.
    """
    answer: dict[str, Any] = {}
    with command.progress() as bar:
        for system in bar.track(systems, description="profiling"):
            client, server = _profiles(system, cohort, clients)
            answer[system] = {"client_upload": shares(client), "server": shares(server)}
    return {"systems": answer, "settings": cohort.settings()}


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


def _profiles(system: str, cohort: Cohort, profiled: int) -> tuple[cProfile.Profile, cProfile.Profile]:
    """Run a round with one profiler on some clients' UPLOAD and one on the server's UPLOAD and UNMASK."""
    run = InProcessRun(parameters(system, cohort), policy=ANY_RUN)
    server, clients = run.server, run.clients
    of_client, of_server = cProfile.Profile(time.process_time), cProfile.Profile(time.process_time)
    inbox = of_server.runcall(server.begin_round)
    for number, user in enumerate(cohort.survivors):
        update = cohort.update(user)
        if number < profiled:
            answer = of_client.runcall(clients[user].upload, inbox[user], update)
        else:
            answer = clients[user].upload(inbox[user], update)
        of_server.runcall(server.receive, answer)
    inbox = of_server.runcall(server.close_stage)
    for user, request in inbox.items():
        of_server.runcall(server.receive, clients[user].unmask(request))
    of_server.runcall(server.close_stage)
    return of_client, of_server


def _group(entry: Entry) -> str | None:
    text = " ".join(map(str, entry)).lower()
    for group, marks in GROUPS.items():
        if any(mark in text for mark in marks):
            return group
    return None


def _table(answer: dict[str, Any]) -> Table:
    table = Table(title="Where the time goes, percent")
    table.add_column("")
    columns = [(system, side) for system in answer["systems"] for side in ("client_upload", "server")]
    for system, side in columns:
        table.add_column(f"{system}\n{side.split('_')[0]}", justify="right")
    for group in (*GROUPS, "other"):
        cells = [100 * answer["systems"][system][side].get(group, 0.0) for system, side in columns]
        table.add_row(group, *(f"{cell:.0f}" if cell >= 0.5 else "" for cell in cells))
    return table


if __name__ == "__main__":
    command.run(main)
