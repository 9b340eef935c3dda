"""A server between the users: other sealing keys, groups of its own choice, packages of other rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from sparsesecagg.lab.attacks.base import Attack, Reading, Setting, refusal_of, replaced
from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import AgreedSecret, PrivateKey
from sparsesecagg.simulate.simulation import entropy_of_run, make_identities, seeded_entropy
from sparsesecagg.errors import ProtocolError
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Client, MemoryLedger, Parameters, Policy, Server, Stage, draws
from sparsesecagg.protocol.draws import GroupDraw, session_of
from sparsesecagg.protocol.messages import EpochKeys, decode_server_message, encode


@contextmanager
def without_identities() -> Iterator[None]:
    """Let pairs agree by their sealing keys alone, as in a plain run."""
    with replaced(Identity, "secret_with", lambda self, peer: AgreedSecret(b"")):
        yield


@contextmanager
def without_proof() -> Iterator[None]:
    """Let clients take the groups from whatever the server sends as a draw."""

    def believed(params: Parameters, roster: Any, draw: bytes, last_draw: int) -> GroupDraw:
        seed = digest("believed", draw)
        return GroupDraw(last_draw + 1, seed, params.groups(seed, params.structure), params.structure)

    with replaced(draws, "drawn_groups", believed):
        yield


class _Middle:
    """A server that stands between one user and all others: it plays the user to them, and them to the user."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.identities = (
            make_identities(setting.clients, "attack", seeded_entropy(setting.seed)) if setting.authenticated else None
        )
        seed = bytes(range(32))
        self.params = Parameters.create(
            clients=setting.clients,
            dim=20 * max(1, round(1 / setting.alpha)),
            alpha=setting.alpha,
            confirm=False,
            session=session_of(seed),
            roster_digest=self.identities[0].roster.digest if self.identities else b"",
        )
        self.victim = setting.seed % setting.clients
        self.server = Server(self.params, seed, self.identities[0].roster if self.identities else None)
        self.policy = Policy(patterns=frozenset(PATTERNS))

    def client(self, user: int, entropy: Any) -> Client:
        identity = self.identities[user] if self.identities else None
        return Client(user, self.params, self.policy, entropy, identity, MemoryLedger())

    def draw(self, clients: Mapping[int, Client]) -> dict[int, bytes]:
        """Take the clients' keys and draw the groups; return what each client is told."""
        for client in clients.values():
            self.server.receive(client.advertise_keys())
        requests = self.server.close_stage()
        while self.server.stage is Stage.DRAW:
            for user, data in requests.items():
                self.server.receive(clients[user].reveal(data))
            requests = self.server.close_stage()
        return requests


def man_in_the_middle(setting: Setting) -> Reading:
    """All other users of the victim's pod are played by the server, with sealing keys of its own."""
    middle = _Middle(setting)
    entropy = entropy_of_run(setting.seed)
    clients = {user: middle.client(user, entropy(user)) for user in range(setting.clients)}
    for user, identity in enumerate(middle.identities or []):
        if user != middle.victim:
            clients[user]._identity = _Impostor(identity)  # type: ignore[assignment]
    refusals: list[ProtocolError] = []
    server = middle.server
    requests = middle.draw(clients)
    for user, data in requests.items():
        clients[user].join(data)
        for package in clients[user].share_keys(0):
            server.receive(package)
    rng = np.random.default_rng(setting.seed)
    update = (rng.normal(size=middle.params.dim).clip(-4, 4) / 4).astype(np.float32)
    orders = server.begin_round()
    truth = np.zeros(middle.params.dim, np.int64)

    def trace(where: Any, values: Any) -> None:
        truth[where] = values

    for user, order in orders.items():
        own = user == middle.victim
        zero = np.zeros_like(update)
        server.receive(clients[user].upload(order, update if own else zero, trace=trace if own else None))
    # The server knows every impostor's zeros: whatever is opened is the victim's.
    for user, request in server.close_stage().items():
        try:
            server.receive(clients[user].unmask(request))
        except ProtocolError as refusal:
            refusals.append(refusal)
    try:
        server.close_stage()
    except ProtocolError as refusal:
        refusals.append(refusal)
    if server.result is None:
        return Reading(0, refusal_of(refusals))
    sent = np.flatnonzero(truth)
    return Reading(int(np.count_nonzero(server.result.total[sent] == truth[sent])), refusal_of(refusals))


class _Impostor:
    """What the server has in place of an identity: the roster, and a run key that is not the listed one."""

    def __init__(self, listed: Identity) -> None:
        self.user, self.roster = listed.user, listed.roster
        self._listed = listed
        self._agreement = KeyAgreement(PrivateKey(digest("impostor", str(listed.user).encode())))

    def secret_with(self, peer: int) -> AgreedSecret:
        """Agree with a key that nobody has signed; in the control pairs do not ask for more."""
        if Identity.secret_with is not _GENUINE:
            return AgreedSecret(b"")
        return self._agreement.with_peer(self.roster.entries[peer].run_key)

    def sign(self, statement: bytes) -> bytes:
        """Let the true juror sign: draws are not what this attack is about."""
        return self._listed.sign(statement)

    def reveal(self, draw: int) -> bytes:
        """Let the true juror reveal."""
        return self._listed.reveal(draw)


_GENUINE = Identity.secret_with


def chosen_groups(setting: Setting) -> Reading:
    """Attack 10: the server searches for groups that put colluders around the victim, and sends them as a draw."""
    middle = _Middle(setting)
    entropy, victim = entropy_of_run(setting.seed), middle.victim
    clients = {user: middle.client(user, entropy(user)) for user in range(setting.clients)}
    requests = middle.draw(clients)
    before = _colluders_around(middle.params, middle.params.groups(b"any", middle.params.structure), victim)
    # Colluders are the last tenth; a few hundred tries find a draw with more of them around the victim.
    best, chosen = before, b""
    for attempt in range(400):
        draw = attempt.to_bytes(4, "little")
        seed = digest("believed", draw)
        found = _colluders_around(middle.params, middle.params.groups(seed, middle.params.structure), victim)
        if found > best:
            best, chosen = found, draw
    message = decode_server_message(requests[victim])
    assert isinstance(message, EpochKeys)  # noqa: S101
    pod = middle.params.groups(digest("believed", chosen), middle.params.structure).pod_of(victim)
    assert pod is not None  # noqa: S101
    keys = b"".join(public_key(clients[int(user)]._state.sealing_private) for user in pod.users)
    present = bytes(np.packbits(np.ones(len(pod), np.uint8), bitorder="little"))
    forged = msgspec.structs.replace(message, draw=chosen, keys=keys, present=present)
    try:
        clients[victim].join(encode(forged))
    except ProtocolError as refusal:
        return Reading(0, type(refusal).__name__)
    return Reading(best - before)


def _colluders_around(params: Parameters, groups: Any, victim: int) -> int:
    """Count the colluders, the last tenth of the users, in the victim's committee."""
    pod = groups.pod_of(victim)
    members = pod.users[pod.committees[pod.committee_of[pod.place[victim]]]]
    return int(np.count_nonzero(members >= params.clients - params.clients // 10))


ATTACKS = [
    Attack(
        "man-in-the-middle",
        "The server plays all other users of a run to one of them, with sealing keys of its own.",
        "With a roster, whoever is not the listed user opens no share and makes no tag.",
        man_in_the_middle,
        without_identities,
        modes=("authenticated",),
        promised=("authenticated",),
    ),
    Attack(
        "chosen-groups",
        "The server searches for groups that put colluders around one user, and sends them as if they were drawn.",
        "With a roster, groups are what a jury's committed nonces draw, and every client checks it.",
        chosen_groups,
        without_proof,
        modes=("authenticated",),
        promised=("authenticated",),
    ),
]
