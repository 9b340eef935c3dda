"""A server that decides who is who: impostors, groups of its choice, other rosters, no roster, new epochs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import SECRET_SIZE, AgreedSecret, PrivateKey
from sparsesecagg.lab.attacks.base import Loot, Setting, attack, without
from sparsesecagg.lab.attacks.world import World, accepted_parameters, without_policy
from sparsesecagg.patterns.groups import SMALLEST_GROUP
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, RoundOptions, SqliteLedger, parameters
from sparsesecagg.simulate.run import Cohort, InProcessRun
from sparsesecagg.simulate.simulation import entropy_of_run, make_identities, seeded_entropy


@attack(
    "The server plays all other users of a run to one of them, with sealing keys of its own.",
    "With a roster, only the listed user can open its shares and make its tags.",
    without(Identity, "secret_with", lambda self, peer: AgreedSecret(b"")),
    promised=("authenticated",),
)
def man_in_the_middle(setting: Setting, loot: Loot) -> None:
    """All but the victim are the server's; in an authenticated run without the private keys that the roster lists."""
    identities = None
    if setting.authenticated:
        identities = make_identities(setting.clients, "attack", seeded_entropy(setting.seed))
        for user, identity in enumerate(identities):
            if user != setting.seed % setting.clients:
                identity._agreement = KeyAgreement(PrivateKey(seeded_entropy(setting.seed, user)(SECRET_SIZE)))
    world = World(setting, loot, colluding=1.0, identities=identities)
    shown = world.show()
    survivors = world.upload_all(shown)
    world.unmask(world.victim, shown.header, survivors)
    loot.values += world.right([world.victim])


def _from_session(self: Parameters, number: int, roster: Any, kept: Any = Parameters.epoch_seed) -> Any:
    """Draw groups from the session, which the server chooses, as in a plain run."""
    return kept(self, number, None)


@attack(
    "The server tries session after session until the draw puts the users that it likes into the victim's group.",
    "With a roster, its seed and the epoch number determine the groups; the server cannot change them.",
    without(Parameters, "epoch_seed", _from_session),
    promised=("authenticated",),
)
def chosen_groups(setting: Setting, loot: Loot) -> None:
    """Count the different groups, beyond the first, that the victim can be put into."""
    found, size = set(), max(SMALLEST_GROUP, setting.clients // 3)
    entropy = seeded_entropy(setting.seed)
    identities = make_identities(setting.clients, "attack", entropy, group_size=size) if setting.authenticated else None
    roster, victim = (identities[0].roster if identities else None), setting.seed % setting.clients
    for number in range(20):
        options = RoundOptions(alpha=setting.alpha, group_size=size)
        params = Parameters.create(setting.clients, 1000, options, session=bytes([number]) * 32, roster=roster)
        identity = identities[victim] if identities else None
        user = Client(victim, params, ANYTHING, identity=identity, ledger=MemoryLedger())
        drawn = user.params.draw(user.params.epoch_seed(1, roster)).of(victim)
        found.add(tuple(drawn.users.tolist()))
    loot.values += len(found) - 1


ANYTHING = Policy(min_anonymity=0, server="semi-honest", colluding=0.0)


@attack(
    "The server cuts the same draw into another number of groups than the roster says.",
    "The roster fixes the group size, so the server cannot cut the users into other groups.",
    without(Policy, "_check_roster", lambda self, params, roster: None),
    modes=("authenticated",),
    promised=("authenticated",),
)
def other_cut(setting: Setting, loot: Loot) -> None:
    """Count the cuts that a user accepts."""
    identities = make_identities(setting.clients, "attack", seeded_entropy(setting.seed))
    params = accepted_parameters(setting, Policy(), identities, {})
    for groups in range(1, setting.clients // SMALLEST_GROUP + 1):
        if groups in (1, params.groups):
            continue
        size = setting.clients // groups
        cut = params.replace(groups=groups, slices=groups, threshold=size)
        _take_part(identities[0], cut, loot)


def _take_part(identity: Identity, params: Parameters, loot: Loot, policy: Policy | None = None) -> None:
    with loot.noting():
        Client(identity.user, params, policy, identity=identity, ledger=MemoryLedger())
        loot.values += 1


@attack(
    "A server leaves the roster out and runs without it among users who have one.",
    "A user whose owner demands a roster takes part in nothing that is not bound to it.",
    without_policy,
    modes=("authenticated",),
    promised=("authenticated",),
)
def downgrade(setting: Setting, loot: Loot) -> None:
    """Count who takes part."""
    identities = make_identities(setting.clients, "attack", seeded_entropy(setting.seed))
    params = Parameters.create(setting.clients, 1000, RoundOptions(alpha=setting.alpha))
    for each in identities:
        _take_part(each, params, loot, Policy(authenticated=True))


@attack(
    "The server hands out a second roster under the same run name, with another seed and so with other groups.",
    "A user's ledger accepts one roster per run name.",
    without(SqliteLedger, "_bind", lambda self, roster: None),
    modes=("authenticated",),
    promised=("authenticated",),
)
def second_roster(setting: Setting, loot: Loot) -> None:
    """Count the rosters beyond the first that a ledger takes."""
    identity = make_identities(setting.clients, "attack", seeded_entropy(setting.seed))[0]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(5):
            roster = identity.roster.with_seed(bytes([number]) * 32)
            with loot.noting():
                SqliteLedger(Path(folder), roster.digest, 0, roster).close()
                loot.values += int(number > 0)


# New epochs

USERS, COORDINATES, NOISE = 15, 30, 0.1


@attack(
    "After the last epoch the server asks for another one, and so for other groups, in every round, keeps all sums, "
    "and solves for the part of each user's updates that stays the same.",
    "Groups stay for an epoch and there are at most sixteen: while nobody drops out, no number of rounds tells the "
    "members of a group apart.",
    without(parameters, "MAX_EPOCHS", 1 << 30),
)
def many_rounds(setting: Setting, loot: Loot) -> None:
    """Attack 11 of version 1, with real users: counts those who are told apart from their group."""
    clients, size = min(setting.clients, USERS), 5
    entropy = seeded_entropy(setting.seed)
    identities = make_identities(clients, "attack", entropy, group_size=size) if setting.authenticated else None
    cohort = Cohort(ANYTHING, entropy_of_run(setting.seed), identities)
    options = RoundOptions(group_size=size, threshold=size - 1 if clients % size else size)
    params = Parameters.create(clients, COORDINATES, options, session=entropy(32), roster=cohort.roster)
    run = InProcessRun(params, cohort)
    _new_epoch(run, 16)
    rng = np.random.default_rng([setting.seed, 11])
    truth = rng.normal(0, 0.2, (clients, COORDINATES))
    rows, sums, first = [], [], run.server.groups
    for _ in range(clients // 2 + 3):
        with loot.noting():
            _new_epoch(run, run.server.epoch_number + 1)
        run.round(list(truth + rng.normal(0, 0.2 * NOISE, truth.shape)))
        for each in run.server.rounds:
            found = each._sum.result()
            rows.append(np.isin(np.arange(clients), found.users))
            sums.append(params.quantizer.dequantize(found.values))
    guess = estimate(np.array(rows, np.float64), np.array(sums), 1 / (1 + NOISE**2))
    for group in first.groups:
        ours, theirs = (each[group.users] - each[group.users].mean(axis=0) for each in (guess, truth))
        size_of = np.sqrt(np.sum(ours**2, axis=1) * np.sum(theirs**2, axis=1))
        loot.values += int(np.count_nonzero(np.sum(ours * theirs, axis=1) > 0.5 * np.maximum(size_of, 1e-9)))


def estimate(members: NDArray[np.float64], sums: NDArray[np.float64], persistent: float) -> NDArray[np.float64]:
    """Return the best estimate of every user's persistent part, given who is in which sum, and the sums.

    `members` has shape (sums, users), `sums` (sums, coordinates); the answer (users, coordinates). The noise of a sum
    has the variance of one user's noise times its members, so each sum counts by the inverse of that.
    """
    used = members.sum(axis=1) > 0
    members, sums = members[used], sums[used]
    weights = 1 / members.sum(axis=1)
    penalty = (1 - persistent) / persistent
    normal = (members.T * weights) @ members + penalty * np.eye(members.shape[1])
    right = (members.T * weights) @ sums
    # Without noise nothing is penalised, and what no sum tells apart stays apart by the pseudo-inverse.
    solved = np.linalg.solve(normal, right) if penalty else np.linalg.lstsq(normal, right, rcond=None)[0]
    return np.asarray(solved, np.float64)


def _new_epoch(run: InProcessRun, number: int) -> None:
    """Let everybody join another epoch; raise if the users refuse."""
    adverts = {user: each.advertise_keys(number) for user, each in run.clients.items()}
    run.server.begin_epoch(number)
    for user, data in adverts.items():
        run.server.receive(data, user)
    for user, data in run.server.close_stage().items():
        run.clients[user].join(data)
    run.share_keys(run.clients)


_ASK = SqliteLedger._ask


def _without_erasure(self: SqliteLedger, question: str, *values: Any) -> list[tuple[Any, ...]]:
    """Let a ledger's log keep what later states no longer have."""
    return [(0,)] if "checkpoint" in question else _ASK(self, question, *values)


@attack(
    "The server leaves a user out of round after round; then somebody takes its disk.",
    "A user's ledger and its log hold no secrets of finished rounds.",
    without(SqliteLedger, "_ask", _without_erasure),
)
def left_on_disk(setting: Setting, loot: Loot) -> None:
    """S14: search the files for secrets that the user has dropped."""
    with tempfile.TemporaryDirectory() as folder:
        ledgers: list[SqliteLedger] = []

        def ledger_of(user: int) -> SqliteLedger | MemoryLedger:
            if user:
                return MemoryLedger(keep_answers=False)
            ledgers.append(SqliteLedger(Path(folder), params.run, user, cohort.roster))
            return ledgers[0]

        clients, entropy = min(setting.clients, 12), seeded_entropy(setting.seed)
        identities = make_identities(clients, "attack", entropy) if setting.authenticated else None
        roster = identities[0].roster if identities else None
        params = Parameters.create(clients, 60, RoundOptions(), session=entropy(32), roster=roster)
        cohort = Cohort(ANYTHING, entropy_of_run(setting.seed), identities, ledger_of)
        user = InProcessRun(params, cohort).clients[0]
        secrets = []
        for number in (2, 4, 6):
            secrets += _secrets_of(user)
            user.share_keys(number)
        left = _secrets_of(user)
        files = b"".join(Path(entry.path).read_bytes() for entry in os.scandir(folder))
        loot.values += sum(secret in files for secret in secrets if secret not in left)
        ledgers[0].close()


def _secrets_of(user: Client) -> list[bytes]:
    packages = [each.for_upload() for each in user._state.packages.values()]
    return [secret.reveal() for each in packages for secret in (each.mask_secret, each.private_seed)]
