"""The stage on which attacks are played: real clients, a real set-up, and the adversary in the server's place.

The server names the smallest threshold that its users accept. Words have 32 bits, so that a value is right by chance
once in 2^32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.errors import PolicyViolation, SparseSecAggError
from sparsesecagg.lab.attacks.base import Control, Loot, Setting, replaced, without
from sparsesecagg.lab.audit.adversary import Adversary
from sparsesecagg.protocol import Client, Parameters, Policy, RoundOptions, checks
from sparsesecagg.protocol.header import Header, Tags
from sparsesecagg.protocol.ledger import Journal
from sparsesecagg.protocol.messages import Unmask, Upload, decode_client_message, decode_users, encode, pieces
from sparsesecagg.protocol.policy import kept_by
from sparsesecagg.protocol.server_group import GroupRound
from sparsesecagg.protocol.state import restore_state
from sparsesecagg.simulate.run import Cohort, InProcessRun
from sparsesecagg.simulate.simulation import entropy_of_run, make_identities, seeded_entropy

TOLERANCE = 1e-3
"""In units of the clip: how near a value must be that was read through rounding. Guessing right has chance 1/1000."""


class World(Adversary):
    """The victim's group in the first round, its honest users' updates, and the adversary. Users go by index."""

    def __init__(
        self,
        setting: Setting,
        loot: Loot,
        *,
        policy: Policy | None = None,
        colluding: float = 0.0,
        identities: list[Identity] | None = None,
        default_threshold: bool = False,
        **changes: Any,
    ) -> None:
        """`colluding` is the fraction of the group that helps the server; `changes` are of the round's options.

        Among them, `values` is about how many values a user sends.
        """
        self.setting, self.loot = setting, loot
        if setting.authenticated:
            size = changes.pop("group_size", None)
            identities = identities or make_identities(
                setting.clients, "attack", seeded_entropy(setting.seed), group_size=size
            )
        demands = None if default_threshold else policy or Policy()
        params = accepted_parameters(setting, demands, identities, changes)
        cohort = Cohort(policy, entropy_of_run(setting.seed), identities)
        number = setting.seed % setting.clients
        drawn = params.draw(params.epoch_seed(1, cohort.roster)).of(number)
        self.run = InProcessRun(params, cohort, groups=[drawn.number])
        group, self.victim = self.run.server._epoch.group_of(number)
        self.everyone = sorted(group.packages[1])
        helpers = [index for index in self.everyone if index != self.victim][: round(colluding * len(drawn))]
        states = {index: restore_state(self.run.clients[int(drawn.users[index])].save()) for index in helpers}
        super().__init__(group.epoch, 1, dict(group.packages[1]), states)
        self.params, self.cohort = params, cohort
        rng = np.random.default_rng([setting.seed, setting.clients])
        self.updates = {
            index: rng.normal(size=params.dim).clip(-4, 4).astype(np.float32) / 4 for index in self.everyone
        }
        self.truth: dict[int, NDArray[np.int64]] = {}
        """By user: the integers of its last upload, zero elsewhere."""
        self._headers: dict[int, tuple[GroupRound, dict[int, bytes]]] = {}

    @property
    def others(self) -> list[int]:
        """All but the victim."""
        return [index for index in self.everyone if index != self.victim]

    @property
    def liar(self) -> int:
        """The user that lies, where one other than the victim does."""
        return self.epoch.user(self.others[0])

    @property
    def spare(self) -> int:
        """How many of the group a holder can be told have dropped out."""
        return len(self.everyone) - self.params.threshold

    def client(self, index: int) -> Client:
        """Return a user."""
        return self.run.clients[self.epoch.user(index)]

    def copy_of(self, index: int, state: bytes) -> Client:
        """Return a client that was restored from a copy of its state, on the same node and so with the same ledger."""
        kept = self.client(index)
        return Client.restore(state, kept.policy, identity=self.cohort.identity(kept.user), ledger=kept._journal.ledger)

    def header_for(self, index: int, shown: GroupRound) -> bytes:
        """Return the header that a user is shown."""
        if id(shown) not in self._headers:
            self._headers[id(shown)] = shown, shown.headers()
        return self._headers[id(shown)][1][index]

    def upload(self, index: int, shown: GroupRound, weight: int = 1, **options: Any) -> bool:
        """Let a user upload under a header; tell whether it does."""
        integers = np.zeros(self.params.dim, np.int64)

        def trace(where: Any, values: Any) -> None:
            integers[where] = values

        data = self.header_for(index, shown)
        answer = self.ask(lambda: self.client(index).upload(data, self.updates[index], weight, trace=trace, **options))
        if answer is None:
            return False
        message = decode_client_message(answer)
        assert isinstance(message, Upload)  # noqa: S101
        self.truth[index] = integers
        self.take_upload(index, shown.header, message)
        return True

    def upload_all(self, shown: GroupRound) -> list[int]:
        """Let all members upload; return those who do."""
        return [index for index in shown.header.members.tolist() if self.upload(index, shown)]

    def unmask(
        self,
        holder: int,
        header: Header,
        survivors: Collection[int],
        tags: Mapping[int, bytes] | None = None,
        by: Client | None = None,
    ) -> Unmask | None:
        """Ask a holder for shares and keep them; None if it refuses."""
        request = encode(self.request(header, holder, survivors, tags))
        answer = self.ask(lambda: (by or self.client(holder)).unmask(request))
        if answer is None:
            return None
        message = decode_client_message(answer)
        assert isinstance(message, Unmask)  # noqa: S101
        self.take_shares(holder, message)
        return message

    def unmask_all(self, header: Header, survivors: Collection[int]) -> None:
        """Ask all survivors for their shares, and tell them the truth."""
        for holder in survivors:
            self.unmask(holder, header, survivors)

    def ask(self, act: Callable[[], bytes | None]) -> bytes | None:
        """Return what a user answers; None if it refuses, which is noted."""
        answers = []
        with self.loot.noting():
            answers.append(act())
        return answers[0] if answers else None

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


def accepted_parameters(
    setting: Setting, policy: Policy | None, identities: list[Identity] | None, changes: Mapping[str, Any]
) -> Parameters:
    """Return a run's parameters, with the smallest threshold that users with this policy accept if one is given."""
    roster = identities[0].roster if identities else None
    values = changes.get("values", 20)
    options = RoundOptions(
        **{"alpha": setting.alpha, **{key: each for key, each in changes.items() if key != "values"}}
    )
    dim = values * max(1, round(1 / options.alpha))
    params = Parameters.create(
        setting.clients, dim, options, session=seeded_entropy(setting.seed, 1)(32), roster=roster
    )
    if policy is None or params.neighbours:
        return params
    for threshold in range(params.holders // 2 + 1, params.holders + 1):
        tried = params.replace(threshold=threshold)
        try:
            policy.check(tried, roster)
        except PolicyViolation:
            continue
        return tried
    return params


# Checks taken out, for more than one attack


without_tags = without(Tags, "valid", lambda self, sender, tag: True)
"""Every tag counts."""


def _uncounted(header: Header, index: int, message: Any, tags: Tags) -> set[int]:
    declared = set(decode_users(message.survivors, len(header.epoch.group)).tolist())
    partners = [each for each in header.partners(index).tolist() if each in declared]
    made = pieces(message.tags, len(partners), TAG_SIZE, "the tags")
    return declared - {each for each, tag in zip(partners, made, strict=True) if not tags.valid(each, tag)}


without_counting = without(checks, "own_survivors", _uncounted)
"""Holders release shares however few survivors there are."""
without_policy = without(Policy, "check", lambda self, params, roster=None: kept_by(params, "semi-honest", 0.0))
"""Clients take part in anything."""


@contextmanager
def without_ledger() -> Iterator[None]:
    """Let clients answer without looking at what they have answered before."""

    def unrecorded(self: Journal, state: Any, *written: Any) -> None:
        self.state = state

    with replaced(Journal, "answered", lambda self, *asked: None), replaced(Journal, "record", unrecorded):
        yield


def without_refusal(text: str) -> Control:
    """Return what lets clients accept a header that they refuse with this text."""
    kept = checks.check_header

    def check(*known: Any) -> None:
        try:
            kept(*known)
        except SparseSecAggError as refusal:
            if text not in str(refusal):
                raise

    return without(checks, "check_header", check)
