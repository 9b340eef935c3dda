"""The stage on which attacks are played: real clients and a real set-up, and tools for a server that lies.

Words have 32 bits, so that a value is right by chance once in 2^32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparsesecagg.lab.attacks.base import Setting
from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import SharedSecret
from sparsesecagg.simulate.run import InProcessRun
from sparsesecagg.simulate.simulation import entropy_of_run, make_identities, seeded_entropy
from sparsesecagg.errors import ProtocolError
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.protocol import Client, Parameters, Policy
from sparsesecagg.protocol.messages import (
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    decode_client_message,
    encode,
    encode_users,
)
from sparsesecagg.protocol.opening import restore_secrets
from sparsesecagg.protocol.order import NO_TERMS, mask_key_of
from sparsesecagg.protocol.package import mask_private
from sparsesecagg.protocol.pod_round import PodRound
from sparsesecagg.protocol.work import Pair, Total
from sparsesecagg.protocol.works import work_of

TOLERANCE = 1e-3
"""In units of the clip: how near a value must be that was read through rounding. Guessing right has chance 1/1000."""


class World:
    """A set-up among honest users, and their secrets updates. Users go by number here, not by place."""

    def __init__(self, setting: Setting, policy: Policy | None = None, **changes: Any) -> None:
        self.setting = setting
        self.rng = np.random.default_rng([setting.seed, setting.clients])
        identities = (
            make_identities(setting.clients, "attack", seeded_entropy(setting.seed)) if setting.authenticated else None
        )
        options: dict[str, Any] = {
            "clients": setting.clients,
            "dim": 20 * max(1, round(1 / setting.alpha)),
            "alpha": setting.alpha,
            "dropout": 0.1,
            "roster_digest": identities[0].roster.digest if identities else b"",
        }
        params = Parameters.create(**{**options, **changes})
        self.run = InProcessRun(
            params,
            policy=policy or Policy(patterns=frozenset(PATTERNS)),
            entropy_of=entropy_of_run(setting.seed),
            identities=identities,
        )
        self.params = self.run.params
        self.identities = identities
        self.updates = {
            user: self.rng.normal(size=self.params.dim).clip(-4, 4).astype(np.float32) / 4
            for user in range(setting.clients)
        }
        self.truth: dict[int, NDArray[np.int64]] = {}
        """By user: the quantised integers of its last upload, zero elsewhere."""
        self.refusals: list[ProtocolError] = []
        self.uploads: dict[int, Upload] = {}
        self.opened: set[int] = set()
        """Users whose secrets the server could restore from shares in the last round."""

    # The honest parts

    @property
    def clients(self) -> dict[int, Client]:
        """All users."""
        return self.run.clients

    @property
    def victim(self) -> int:
        """The user that the server wants to read."""
        return self.setting.seed % self.setting.clients

    def pod_of(self, user: int) -> Any:
        """Return the server's record of a user's pod."""
        return self.run.server._epoch.place_of(user)[0]

    def committee_of(self, user: int) -> list[int]:
        """Return the users of somebody's committee, sorted."""
        pod = self.pod_of(user).epoch.pod
        return sorted(pod.users[pod.committees[pod.committee_of[pod.place[user]]]].tolist())

    def places(self, users: Iterable[int], pod: Any) -> NDArray[np.int64]:
        """Return the places of users in their pod, sorted."""
        return np.array(sorted(pod.epoch.pod.place[user] for user in users), np.int64)

    # Tools of a server that lies

    def pod_round(
        self, user: int, *, without: Collection[int] = (), terms: bytes = NO_TERMS, heads: Mapping[int, bytes] = {}
    ) -> PodRound:
        """Return a round of the user's pod as a server may present it: some packages left out, some heads changed."""
        pod = self.pod_of(user)
        users = pod.epoch.pod.users
        packages: dict[int, ShareKeys] = {}
        for place, package in pod.packages[self.run.server.round_number + 1].items():
            owner = int(users[place])
            if owner not in without:
                packages[place] = replace_head(package, heads[owner]) if owner in heads else package
        return PodRound(pod.epoch, self.run.server.round_number + 1, packages, terms, pod.chain)

    def orders(self, pod_round: PodRound) -> dict[int, bytes]:
        """Return the orders of a round, by user."""
        users = pod_round.epoch.pod.users
        history: dict[int, list[tuple[int, bytes]]] = {place: [] for place in range(len(users))}
        return {int(users[place]): data for place, data in pod_round.orders(history).items()}

    def upload(self, user: int, order: bytes, **options: Any) -> Upload | None:
        """Let a user upload; None if it refuses."""
        integers = np.zeros(self.params.dim, np.int64)

        def trace(where: Any, values: Any) -> None:
            integers[where] = values

        answer = self._ask(lambda: self.clients[user].upload(order, self.updates[user], trace=trace, **options))
        if answer is None:
            return None
        message = decode_client_message(answer)
        assert isinstance(message, Upload)  # noqa: S101
        self.truth[user], self.uploads[user] = integers, message
        return message

    def unmask(self, user: int, request: bytes, client: Client | None = None) -> Unmask | None:
        """Ask a user for shares; None if it refuses."""
        answer = self._ask(lambda: (client or self.clients[user]).unmask(request))
        message = None if answer is None else decode_client_message(answer)
        assert message is None or isinstance(message, Unmask)  # noqa: S101
        return message

    def _ask(self, act: Callable[[], bytes]) -> bytes | None:
        try:
            return act()
        except ProtocolError as refusal:
            self.refusals.append(refusal)
            return None

    def tags_of(self, pod_round: PodRound, user: int) -> dict[int, bytes]:
        """Return the tags that came with a user's upload, by receiver, for the order that it was shown."""
        place, users = pod_round.epoch.pod.place[user], pod_round.epoch.pod.users
        tags = self.uploads[user].tags
        receivers = pod_round.order.partners(place).tolist()
        return {int(users[each]): tags[8 * spot : 8 * spot + 8] for spot, each in enumerate(receivers)}

    def unmask_request(
        self,
        pod_round: PodRound,
        holder: int,
        survivors: Collection[int],
        tags: Mapping[int, Mapping[int, bytes]],
        confirmations: Mapping[int, bytes] | None = None,
    ) -> bytes:
        """Return a request for one holder: who is said to have survived, and tags by sender and receiver."""
        pod, order = pod_round.epoch.pod, pod_round.order
        partners = [int(pod.users[each]) for each in order.partners(pod.place[holder]).tolist()]
        shown = b"".join(tags.get(each, {}).get(holder, bytes(8)) for each in partners if each in survivors)
        confirmers = [each for each in partners if each in (confirmations or {})]
        return encode(
            UnmaskRequest(
                order.round_number,
                order.view,
                encode_users(np.array([pod.place[each] for each in survivors], np.int64), len(pod)),
                shown,
                encode_users(np.array([pod.place[each] for each in confirmers], np.int64), len(pod)),
                b"".join((confirmations or {})[each] for each in confirmers),
            )
        )

    def secrets(
        self, pod_round: PodRound, answers: Mapping[int, Unmask], survivors: Collection[int]
    ) -> dict[int, SharedSecret]:
        """Restore, by user, what the answers give: private seeds of the survivors, mask secrets of the others."""
        pod = pod_round.epoch.pod
        owners = sorted(pod_round.packages)
        held = {pod.place[user]: message for user, message in answers.items()}
        survived = {pod.place[user] for user in survivors}
        if not held:
            return {}
        restored = restore_secrets(pod_round.order, owners, survived, pod_round.packages, held)
        return {int(pod.users[place]): secret for place, secret in restored.secrets.items()}

    def read(
        self,
        pod_round: PodRound,
        group: Collection[int],
        seeds: Mapping[int, SharedSecret],
        mask_secrets: Mapping[int, SharedSecret],
        packages: Mapping[int, ShareKeys] | None = None,
    ) -> int:
        """Count the values in the sum of `group` that come out right once all known masks are removed."""
        found = self.sum_of(pod_round, group, seeds, mask_secrets, packages)
        if found is None:
            return 0
        truth = np.sum([self.truth[user] for user in group], axis=0)
        sent = np.flatnonzero(truth)
        return int(np.count_nonzero(found[sent] == truth[sent]))

    def sum_of(
        self,
        pod_round: PodRound,
        group: Collection[int],
        seeds: Mapping[int, SharedSecret],
        mask_secrets: Mapping[int, SharedSecret],
        packages: Mapping[int, ShareKeys] | None = None,
    ) -> NDArray[np.int64] | None:
        """Return the sum of `group` as integers, if all masks on it are known.

        `pod_round` is the round as it was shown to the group; a pair's mask is known if one of its mask secrets is.
        """
        order, pod = pod_round.order, pod_round.epoch.pod
        number = int(pod.committee_of[pod.place[next(iter(group))]])
        if not set(group) <= set(seeds) or not set(group) <= set(self.uploads):
            return None
        pairs = []
        for user in group:
            for place in order.mask_peers(pod.place[user]):
                peer = int(pod.users[place])
                if peer in group:
                    continue
                agreed = self._agreed(pod_round, user, peer, mask_secrets, packages or pod_round.packages)
                if agreed is None:
                    return None
                pairs.append(Pair(user, peer, agreed))
        work = work_of(order, number)
        for user in group:
            work.add(self.uploads[user])
        work.open({user: seeds[user] for user in group}, pairs)
        total = Total(self.params)
        work.add_to(total)
        return total.values

    def _agreed(
        self,
        pod_round: PodRound,
        user: int,
        peer: int,
        mask_secrets: Mapping[int, SharedSecret],
        packages: Mapping[int, ShareKeys],
    ) -> Any:
        """Return what two mask keys agree on, if one of the secrets is known."""
        epoch, place = pod_round.epoch, pod_round.epoch.pod.place
        for one, other in ((peer, user), (user, peer)):
            if one in mask_secrets:
                private = mask_private(epoch, pod_round.order.round_number, one, mask_secrets[one])
                return KeyAgreement(private).with_peer(mask_key_of(packages[place[other]].head))
        return None

    def mask_secrets_of(self, users: Iterable[int], round_number: int) -> dict[int, SharedSecret]:
        """Return what colluders tell the server: the mask secrets of their own packages."""
        found = {}
        for user in users:
            package = self.clients[user]._state.packages.get(round_number)
            if package is not None:
                found[user] = SharedSecret(package.mask_secret.reveal())
        return found


def replace_head(package: ShareKeys, head: bytes) -> ShareKeys:
    """Return a package with another head."""
    return msgspec.structs.replace(package, head=head)


def everybody(pod_round: PodRound) -> list[int]:
    """Return the users whose packages a round uses."""
    users = pod_round.epoch.pod.users
    return [int(users[place]) for place in sorted(pod_round.packages)]
