"""A server that decides who is who: impostors, groups of its choice, other rosters, no roster, new epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import SECRET_SIZE, AgreedSecret, PrivateKey
from sparsesecagg.lab.attacks.base import Play, Setting, attack, without
from sparsesecagg.lab.attacks.world import World, accepted_parameters, people_of
from sparsesecagg.patterns.groups import SMALLEST_GROUP
from sparsesecagg.protocol import (
    Client,
    MemoryLedger,
    Parameters,
    Policy,
    RoundOptions,
    SqliteLedger,
    checks,
    parameters,
)
from sparsesecagg.simulate.run import Cohort, InProcessRun
from sparsesecagg.simulate.simulation import entropy_of_run, make_identities, seeded_entropy

ANYTHING = Policy(min_anonymity=0, server="semi-honest", colluding=0.0)


def _impostors(setting: Setting) -> list[Identity]:
    """Return identities of which all but the victim's lack the private keys that the roster lists."""
    people = people_of(setting)
    for user, identity in enumerate(people):
        if user != setting.seed % setting.clients:
            identity._agreement = KeyAgreement(PrivateKey(seeded_entropy(setting.seed, user)(SECRET_SIZE)))
    return people


@attack(
    without(Identity, secret_with=lambda self, peer: AgreedSecret(b"")),
    World,
    promised=("authenticated",),
    colluding=1.0,
    identities=_impostors,
)
def man_in_the_middle(world: World) -> None:
    """The server plays all other users of a run to one of them, with sealing keys of its own.

    With a roster, only the listed user can open its shares and make its tags.
    """
    world.unmask(world.victim, world.upload_all())
    world.play.values += world.right([world.victim])


def _from_session(self: Parameters, number: int, roster: Any, kept: Any = Parameters.epoch_seed) -> Any:
    """Draw groups from the session, which the server chooses, as in a plain run."""
    return kept(self, number, None)


@attack(without(Parameters, epoch_seed=_from_session), promised=("authenticated",))
def chosen_groups(play: Play) -> None:
    """The server tries session after session until the draw puts the users that it likes into the victim's group.

    With a roster, its seed and the epoch number determine the groups; the server cannot change them.
    """
    setting, found, size = play.setting, set(), max(SMALLEST_GROUP, play.setting.clients // 3)
    people = people_of(setting, group_size=size) if setting.authenticated else None
    roster, victim = (people[0].roster if people else None), setting.seed % setting.clients
    for number in range(20):
        options = RoundOptions(alpha=setting.alpha, group_size=size)
        params = Parameters.create(setting.clients, 1000, options, session=bytes([number]) * 32, roster=roster)
        user = Client(victim, params, ANYTHING, identity=people[victim] if people else None, ledger=MemoryLedger())
        drawn = user.params.draw(user.params.epoch_seed(1, roster)).of(victim)
        found.add(tuple(drawn.users.tolist()))
    play.values += len(found) - 1


@attack(without(Policy, _check_roster=lambda self, params, roster: None), modes=("authenticated",))
def other_cut(play: Play) -> None:
    """The server cuts the same draw into another number of groups than the roster says.

    The roster fixes the group size, so the server cannot cut the users into other groups.
    """
    people, clients = people_of(play.setting), play.setting.clients
    params = accepted_parameters(play.setting, Policy(), people)
    for groups in range(2, clients // SMALLEST_GROUP + 1):
        if groups != params.groups:
            cut = params.replace(groups=groups, slices=groups, threshold=clients // groups)
            _take_part(people[0], cut, play)


def _take_part(identity: Identity, params: Parameters, play: Play) -> None:
    with play.noting():
        Client(identity.user, params, identity=identity, ledger=MemoryLedger())
        play.values += 1


def _dropped(identity: Identity | None, user: int, params: Parameters) -> Identity | None:
    return identity if params.authenticated else None


@attack(without(checks, checked_identity=_dropped), modes=("authenticated",))
def downgrade(play: Play) -> None:
    """A server leaves the roster out and runs without it among users who have one.

    A user that has an identity takes part in nothing that is not bound to its roster.
    """
    params = Parameters.create(play.setting.clients, 1000, RoundOptions(alpha=play.setting.alpha))
    for each in people_of(play.setting):
        _take_part(each, params, play)


@attack(without(SqliteLedger, _bind=lambda self, roster: None), modes=("authenticated",))
def second_roster(play: Play) -> None:
    """The server hands out a second roster under the same run name, with another seed and so with other groups.

    A user's ledger accepts one roster per run name.
    """
    identity, folder = people_of(play.setting)[0], play.folder()
    for number in range(5):
        roster = identity.roster.with_seed(bytes([number]) * 32)
        with play.noting():
            SqliteLedger(folder, roster.digest, 0, roster).close()
            play.values += int(number > 0)


# New epochs

USERS, COORDINATES, NOISE = 15, 30, 0.1


@attack(without(parameters, MAX_EPOCHS=1 << 30))
def many_rounds(play: Play) -> None:
    """After the last epoch the server asks for another one, and so for other groups, in every round, keeps all sums,
    and solves for the part of each user's updates that stays the same.

    Groups stay for an epoch and there are at most sixteen: while nobody drops out, no number of rounds tells the
    members of a group apart.
    """
    setting = play.setting
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
        with play.noting():
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
        play.values += int(np.count_nonzero(np.sum(ours * theirs, axis=1) > 0.5 * np.maximum(size_of, 1e-9)))


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
        run.server.receive(user, data)
    for user, data in run.server.close_stage().items():
        run.clients[user].join(data)
    run.share_keys(run.clients)


_ASK = SqliteLedger._ask


def _without_erasure(self: SqliteLedger, question: str, *values: Any) -> list[tuple[Any, ...]]:
    """Let a ledger's log keep what later states no longer have."""
    return [(0,)] if "checkpoint" in question else _ASK(self, question, *values)


@attack(without(SqliteLedger, _ask=_without_erasure))
def left_on_disk(play: Play) -> None:
    """The server leaves a user out of round after round; then somebody takes its disk.

    A user's ledger and its log hold no secrets of finished rounds.
    """
    setting, folder = play.setting, play.folder()
    clients, entropy = min(setting.clients, 12), seeded_entropy(setting.seed)
    people = make_identities(clients, "attack", entropy) if setting.authenticated else None
    roster = people[0].roster if people else None
    params = Parameters.create(clients, 60, RoundOptions(), session=entropy(32), roster=roster)
    ledger = SqliteLedger(folder, params.run, 0, roster)
    play.cleanup.callback(ledger.close)

    def ledger_of(user: int) -> SqliteLedger | MemoryLedger:
        return MemoryLedger(keep_answers=False) if user else ledger

    user = InProcessRun(params, Cohort(ANYTHING, entropy_of_run(setting.seed), people, ledger_of)).clients[0]
    secrets = []
    for number in (2, 4, 6):
        secrets += _secrets_of(user)
        user.share_keys(number)
    files, left = b"".join(path.read_bytes() for path in folder.iterdir()), _secrets_of(user)
    play.values += sum(secret in files for secret in secrets if secret not in left)


def _secrets_of(user: Client) -> list[bytes]:
    packages = [each.for_upload() for each in user._state.packages.values()]
    return [secret.reveal() for each in packages for secret in (each.mask_secret, each.private_seed)]
