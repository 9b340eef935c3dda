"""The stage on which attacks are played: real clients, a real set-up, and the adversary in the server's place.

Words have 32 bits, so that a value is right by chance once in 2^32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.errors import PolicyViolation, SparseSecAggError
from sparsesecagg.lab.attacks.base import Control, Play, Setting, without
from sparsesecagg.lab.audit.adversary import Adversary
from sparsesecagg.protocol import Client, Parameters, Policy, RoundOptions, checks
from sparsesecagg.protocol.epoch import Header, Tags
from sparsesecagg.protocol.ledger import Journal, restore_state
from sparsesecagg.protocol.messages import Unmask, Upload, decode_client_message, decode_users, encode, pieces
from sparsesecagg.protocol.policy import kept_by
from sparsesecagg.protocol.server_group import GroupRound
from sparsesecagg.simulate.run import Cohort, InProcessRun
from sparsesecagg.simulate.simulation import entropy_of_run, make_identities, seeded_entropy

TOLERANCE = 1e-3
"""In units of the clip: how near a value must be that was read through rounding. Guessing right has chance 1/1000."""


class World(Adversary):
    """The victim's group in the first round, its honest users' updates, and the adversary. Users go by index."""

    def __init__(
        self,
        play: Play,
        *,
        colluding: float = 0.0,
        identities: Callable[[Setting], list[Identity]] | None = None,
        default_threshold: bool = False,
        odd: bool = False,
        **changes: Any,
    ) -> None:
        """`colluding` is the fraction of the group that helps the server; `changes` are of the round's options.

        Among them, `values` is about how many values a user sends. `odd` leaves one user out of an even number: among
        an even one every majority withstands a single colluder, so that there would be nothing to show.
        """
        self.play, setting = play, play.setting
        if odd and setting.clients % 2 == 0:
            setting = replace(setting, clients=setting.clients - 1)
        people = (identities or people_of)(setting) if setting.authenticated else None
        params = accepted_parameters(setting, None if default_threshold else Policy(), people, **changes)
        cohort = Cohort(None, entropy_of_run(setting.seed), people)
        number = setting.seed % setting.clients
        drawn = params.draw(params.epoch_seed(1, cohort.roster)).of(number)
        self.run = InProcessRun(params, cohort, groups=[drawn.number])
        group, self.victim = self.run.server._epoch.group_of(number)
        self.everyone = sorted(group.packages[1])
        self.others = [index for index in self.everyone if index != self.victim]
        helpers = self.others[: round(colluding * len(drawn))]
        states = {index: restore_state(self.run.clients[int(drawn.users[index])].save()) for index in helpers}
        super().__init__(group.epoch, 1, dict(group.packages[1]), states)
        self.params = params
        self.spare = len(self.everyone) - params.threshold
        """How many of the group a holder can be told have dropped out."""
        rng = np.random.default_rng([setting.seed, setting.clients])
        self.updates = {
            index: rng.normal(size=params.dim).clip(-4, 4).astype(np.float32) / 4 for index in self.everyone
        }
        self.truth: dict[int, NDArray[np.int64]] = {}  # By user: the integers of its last upload, zero elsewhere.
        self._headers: dict[GroupRound, dict[int, bytes]] = {}

    @cached_property
    def shown(self) -> GroupRound:
        """The round as an honest server shows it."""
        return self.show()

    @property
    def liar(self) -> int:
        """The user that lies, where one other than the victim does."""
        return self.epoch.user(self.others[0])

    def client(self, index: int) -> Client:
        """Return a user."""
        return self.run.clients[self.epoch.user(index)]

    def saved(self) -> dict[int, bytes]:
        """Return a copy of everybody's state."""
        return {index: self.client(index).save() for index in self.everyone}

    def put_back(self, states: Mapping[int, bytes]) -> None:
        """Restore everybody from a copy of its state, on the same node and so with the same ledger."""
        for index, state in states.items():
            kept, identity = self.client(index), self.run.cohort.identity(self.epoch.user(index))
            restored = Client.restore(state, kept.policy, identity=identity, ledger=kept._journal.ledger)
            self.run.clients[kept.user] = restored

    def header_for(self, index: int, shown: GroupRound) -> bytes:
        """Return the header that a user is shown."""
        if shown not in self._headers:
            self._headers[shown] = shown.headers()
        return self._headers[shown][index]

    def upload(self, index: int, shown: GroupRound | None = None, weight: int = 1, **options: Any) -> bool:
        """Let a user upload under a header; tell whether it does."""
        integers = np.zeros(self.params.dim, np.int64)
        shown, refusals = shown or self.shown, len(self.play.refusals)

        def trace(where: Any, values: Any) -> None:
            integers[where] = values

        with self.play.noting():
            header = self.header_for(index, shown)
            answer = self.client(index).upload(header, self.updates[index], weight, trace=trace, **options)
            message = decode_client_message(answer)
            assert isinstance(message, Upload)  # noqa: S101
            self.truth[index] = integers
            self.take_upload(index, shown.header, message)
        return len(self.play.refusals) == refusals

    def upload_all(self, shown: GroupRound | None = None) -> list[int]:
        """Let all members upload; return those who do."""
        return [index for index in (shown or self.shown).header.members.tolist() if self.upload(index, shown)]

    def unmask(
        self,
        holder: int,
        survivors: Collection[int],
        header: Header | None = None,
        tags: Mapping[int, bytes] | None = None,
    ) -> None:
        """Ask a holder for shares, and keep them if it answers."""
        request = encode(self.request(header or self.shown.header, holder, survivors, tags))
        with self.play.noting():
            message = decode_client_message(self.client(holder).unmask(request))
            assert isinstance(message, Unmask)  # noqa: S101
            self.take_shares(holder, message)

    def unmask_all(self, survivors: Collection[int], header: Header | None = None) -> None:
        """Ask all survivors for their shares, and tell them the truth."""
        for holder in survivors:
            self.unmask(holder, survivors, header)

    def right(self, users: Collection[int], header: Header | None = None) -> int:
        """Count the values in the sum of some users that come out right, once all known masks are removed."""
        self.restore()
        opened = self.read(users, header)
        if opened is None:
            return 0
        truth = np.sum([self.truth[index] for index in users], axis=0)
        return sum(
            int(np.count_nonzero((values == truth[where]) & (truth[where] != 0)))
            for where, values, _ in opened.pieces()
        )


def people_of(setting: Setting, **options: Any) -> list[Identity]:
    """Return identities for everybody."""
    return make_identities(setting.clients, "attack", seeded_entropy(setting.seed), **options)


def accepted_parameters(
    setting: Setting, policy: Policy | None, identities: list[Identity] | None, values: int = 20, **changes: Any
) -> Parameters:
    """Return a run's parameters, with the smallest threshold that users with this policy accept if one is given."""
    roster = identities[0].roster if identities else None
    options = RoundOptions(**{"alpha": setting.alpha, **changes})
    dim = values * max(1, round(1 / options.alpha))
    params = Parameters.create(
        setting.clients, dim, options, session=seeded_entropy(setting.seed, 1)(32), roster=roster
    )
    if policy is None or params.neighbours:
        return params
    for threshold in range(params.holders // 2 + 1, params.holders + 1):
        tried = params.replace(threshold=threshold)
        with suppress(PolicyViolation):
            policy.check(tried, roster)
            return tried
    return params


# Checks taken out, for more than one attack


def _uncounted(header: Header, index: int, message: Any, tags: Tags) -> set[int]:
    declared = set(decode_users(message.survivors, len(header.epoch.group)).tolist())
    partners = [each for each in header.partners(index).tolist() if each in declared]
    made = pieces(message.tags, len(partners), TAG_SIZE, "the tags")
    return declared - {each for each, tag in zip(partners, made, strict=True) if not tags.valid(each, tag)}


def _unrecorded(self: Journal, state: Any, *written: Any) -> None:
    self.state = state


without_tags = without(Tags, valid=lambda self, sender, tag: True)  # Every tag counts.
without_counting = without(checks, own_survivors=_uncounted)  # Holders release shares however few survivors there are.
without_policy = without(Policy, check=lambda self, params, roster=None: kept_by(params, "semi-honest", 0.0))
"""Clients take part in anything."""
without_ledger = without(Journal, answered=lambda self, *asked: None, record=_unrecorded)
"""Clients answer without looking at what they have answered before."""


def without_refusal(text: str) -> Control:
    """Return what lets clients accept a header that they refuse with this text."""
    kept = checks.check_header

    def check(*known: Any) -> None:
        try:
            kept(*known)
        except SparseSecAggError as refusal:
            if text not in str(refusal):
                raise

    return without(checks, check_header=check)
