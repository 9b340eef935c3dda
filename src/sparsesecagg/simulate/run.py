"""A whole run in one process: every client, the server, and the dropouts between them.

This is the protocol as one reads it, stage by stage. Deployments run the same `Client` and `Server` over a network.
What is measured and watched on the way is in `delivery`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.crypto.secrets import Entropy
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.protocol.client import Client
from sparsesecagg.protocol.epoch import NO_CONTEXT
from sparsesecagg.protocol.ledger import Entry, Ledger, MemoryLedger, restore_state
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.policy import Policy
from sparsesecagg.protocol.server import Server
from sparsesecagg.protocol.stages import Stage
from sparsesecagg.simulate.delivery import Delivery, Drops, Observer, Outcome, Updates
from sparsesecagg.simulate.memory import keep_freed_memory

EntropyOf = Callable[[int], Entropy]
MakeServer = Callable[[Parameters, Roster | None], Server]


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a simulated run, and with what. The defaults are users as they come."""

    policy: Policy | None = None
    entropy_of: EntropyOf | None = None
    """Each user's source of randomness; the system's by default."""
    identities: Sequence[Identity] | None = None
    """Those of an authenticated run."""
    ledger_of: Callable[[int], Ledger] = lambda _: MemoryLedger(keep_answers=False)
    """Each user's ledger; one in memory by default."""

    @property
    def roster(self) -> Roster | None:
        """The roster of an authenticated run."""
        return self.identities[0].roster if self.identities else None

    def entropy(self, user: int) -> Entropy:
        """Return a user's source of randomness."""
        return self.entropy_of(user) if self.entropy_of else os.urandom

    def identity(self, user: int) -> Identity | None:
        """Return a user's identity, if the run has any."""
        return self.identities[user] if self.identities else None

    def client(self, user: int, params: Parameters) -> Client:
        """Return a user as it comes."""
        return Client(user, params, self.policy, self.entropy(user), self.identity(user), self.ledger_of(user))

    def restored(self, user: int, data: bytes) -> Client:
        """Return a user as it was saved."""
        state = restore_state(data)
        ledger = MemoryLedger(keep_answers=False, last=Entry(state.version, state.round_number, state.progress))
        return Client.restore(data, self.policy, self.entropy(user), self.identity(user), ledger)


class _Saved(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A run between two rounds."""

    server: bytes
    clients: dict[int, bytes]
    members: list[int]


class InProcessRun:
    """A run among simulated users. Making one is the set-up; then call `round` as often as you like.

    Of `drops`, those at ADVERTISE_KEYS are out of the whole run, those at SHARE_KEYS have no key package in the first
    rounds. `make_server` puts another server in the place of the honest one, for those who study what a malicious
    server can do. With `groups`, only these are simulated: everybody advertises a key, and the users of all other
    groups then drop out.
    """

    def __init__(
        self,
        params: Parameters,
        cohort: Cohort | None = None,
        *,
        drops: Drops | None = None,
        groups: Collection[int] | None = None,
        observer: Observer | None = None,
        make_server: MakeServer = Server,
        saved: _Saved | None = None,
    ) -> None:
        keep_freed_memory()
        self.params, self.cohort, self.observer = params, cohort or Cohort(), observer or Observer()
        roster = self.cohort.roster
        self.server = make_server(params, roster) if saved is None else Server.restore(saved.server, roster)
        self.server.threads = 1
        self.setup = Delivery(self.server, self.observer, drops)
        if saved is None:
            self.clients = {user: self.cohort.client(user, params) for user in range(params.clients)}
            self.members = self._set_up(groups)
        else:
            self.clients = {user: self.cohort.restored(user, state) for user, state in saved.clients.items()}
            self.members = set(saved.members)
        self.setup_sent = {stage: dict(sizes) for stage, sizes in self.server.sent_bytes.items()}
        """By stage and user: bytes of the set-up."""
        self.setup_received = {stage: dict(sizes) for stage, sizes in self.server.received_bytes.items()}

    def _set_up(self, groups: Collection[int] | None) -> set[int]:
        """Agree on keys; return the users that are members of the epoch."""
        server, mail = self.server, self.setup
        # Users: advertise a sealing key.   Server: publish each group's keys.
        for user, client in self.clients.items():
            if mail.is_there(user, Stage.ADVERTISE_KEYS):
                mail.to_server(Stage.ADVERTISE_KEYS, user, mail.at_client(Stage.ADVERTISE_KEYS, client.advertise_keys))
        epoch_keys = mail.at_server(Stage.ADVERTISE_KEYS, server.close_stage)
        if groups is not None:
            simulated = {user for number in groups for user in server.groups.groups[number].users.tolist()}
            epoch_keys = {user: data for user, data in epoch_keys.items() if user in simulated}
            self.clients = {user: self.clients[user] for user in epoch_keys}
        # Users: agree on a secret with each partner in the group, and send the key packages of the first two rounds.
        for user, data in epoch_keys.items():
            mail.to_client(Stage.ADVERTISE_KEYS, user, data, self.clients[user].join)
        for user in sorted(epoch_keys):
            if mail.is_there(user, Stage.SHARE_KEYS):
                mail.share_keys(user, mail.packages(self.clients[user]))
        return set(epoch_keys)

    def share_keys(self, users: Collection[int]) -> None:
        """Let users that dropped out of the last round send their key packages of the next ones all the same."""
        for user in sorted(self.members.intersection(users)):
            self.setup.share_keys(user, self.setup.packages(self.clients[user]))

    def round(
        self,
        updates: Updates,
        *,
        weights: Sequence[int] | None = None,
        drops: Drops | None = None,
        context: bytes = NO_CONTEXT,
    ) -> Outcome:
        """Run the next round and return its outcome."""
        server, clients, mail = self.server, self.clients, Delivery(self.server, self.observer, drops)
        packages: dict[int, list[bytes]] = {}

        def upload(user: int, header: bytes) -> bytes:
            update, weight, trace = mail.update(updates, user), weights[user] if weights else 1, mail.trace(user)
            with clients[user].one_record():
                answer = clients[user].upload(header, update, weight, context=context, trace=trace)
                packages[user] = mail.packages(clients[user])
            return answer

        with mail.naming_refusals():
            # Server: say whose key packages are used, and for what.
            headers = mail.at_server(Stage.UPLOAD, server.begin_round, context=context)
            # Users: select, clip, round, mask, send, with a tag for each partner.   Server: add on arrival.
            mail.exchange(Stage.UPLOAD, headers, upload)
            # Users: send the key package of the round after the next, with or without a header.
            for user in sorted(self.members):
                if mail.is_there(user, Stage.UPLOAD):
                    mail.share_keys(user, packages[user] if user in packages else mail.packages(clients[user]))
            # Server: tell the survivors who they are.
            requests = mail.at_server(Stage.UPLOAD, server.close_stage)
            # Users: check tags and survivors, release one share per secret.   Server: restore secrets, remove masks.
            mail.exchange(Stage.UNMASK, requests, lambda user, request: clients[user].unmask(request))
            mail.at_server(Stage.UNMASK, server.close_stage)
        return mail.outcome(clients)

    # A run that is kept between two rounds

    def save(self) -> bytes:
        """Return the run as bytes, between two rounds. They hold every user's secrets, as only a simulation can."""
        clients = {user: client.save() for user, client in self.clients.items()}
        return msgspec.msgpack.encode(_Saved(self.server.save(), clients, sorted(self.members)))

    @staticmethod
    def restore(data: bytes, cohort: Cohort | None = None, *, observer: Observer | None = None) -> InProcessRun:
        """Return the run that `save` wrote down: its next round is the one that would have come."""
        try:
            saved = msgspec.msgpack.decode(data, type=_Saved)
        except msgspec.MsgspecError:
            raise MalformedMessage("the bytes are not a saved run") from None
        params = Server.restore(saved.server, cohort.roster if cohort else None).params
        return InProcessRun(params, cohort, observer=observer, saved=saved)


def run_round(
    params: Parameters,
    updates: Updates,
    cohort: Cohort | None = None,
    *,
    weights: Sequence[int] | None = None,
    drops: Drops | None = None,
    context: bytes = NO_CONTEXT,
    observer: Observer | None = None,
) -> Outcome:
    """Set up a run, run one round and return its outcome."""
    run = InProcessRun(params, cohort, drops=drops, observer=observer)
    return run.round(updates, weights=weights, drops=drops, context=context)
