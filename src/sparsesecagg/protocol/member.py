"""A user in its pod: what it computes and sends in a round. What it accepts, and when, is for `client` to decide."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from sparsesecagg.crypto.keys import KeyAgreement
from sparsesecagg.crypto.secrets import Entropy, RoundSecret
from sparsesecagg.errors import PolicyViolation
from sparsesecagg.field import pack
from sparsesecagg.protocol.draws import GroupDraw
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import (
    SEALED_SIZE,
    Confirm,
    EpochKeys,
    Order,
    Unmask,
    Upload,
    encode,
    encode_users,
    pieces,
    user_number,
)
from sparsesecagg.protocol.order import OrderView, mask_key_of
from sparsesecagg.protocol.package import Package, mask_private, open_pair
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.tags import CONFIRM_TAG, ORDER_TAG, Tags, confirmed
from sparsesecagg.protocol.work import Pair, Trace, UpdateSource
from sparsesecagg.protocol.works import work_of

Secrets = Mapping[int, RoundSecret]
"""By place of the partner: the secret of the pair in this round."""


@dataclass(frozen=True)
class Member:
    """A user and its place in an epoch's groups."""

    user: int
    epoch: Epoch
    place: int

    @staticmethod
    def of(user: int, params: Parameters, message: EpochKeys, draw: GroupDraw) -> Member:
        """Return the place that a draw gives to a user, among those who advertised keys."""
        pod = draw.groups.pod_of(user)
        if pod is None:
            raise PolicyViolation("this user is excluded from the groups")
        return Member(user, Epoch(params, message, draw.seed, pod), pod.place[user])

    def upload(
        self,
        order: OrderView,
        heads: Mapping[int, bytes],
        package: Package,
        secrets: Secrets,
        update: UpdateSource,
        weight: int,
        entropy: Entropy,
        trace: Trace | None = None,
    ) -> tuple[bytes, int]:
        """Quantise and mask the selected part of an update; return it, tags included, and how many values were clipped.

        `heads` are those of the own committee; there is a tag over the order for each partner.
        """
        users = self.epoch.pod.users
        work = work_of(order, int(self.epoch.pod.committee_of[self.place]))
        agreement = KeyAgreement(mask_private(self.epoch, order.round_number, self.user, package.mask_secret))
        masked = work.mask(
            update,
            weight,
            [
                Pair(self.user, int(users[peer]), agreement.with_peer(mask_key_of(heads[peer])))
                for peer in order.mask_peers(self.place)
            ],
            work.private_mask(self.user, package.private_seed, positive=True),
            np.random.Generator(np.random.SFC64(int.from_bytes(entropy(16), "little"))),
            trace,
        )
        tags = self.tags(secrets)
        shown = tags.make(ORDER_TAG, order.partners(self.place).tolist(), order.digest)
        words = pack(masked.words, self.epoch.params.word)
        return encode(Upload(*self._head(order), masked.locations, words, shown)), masked.clipped

    def confirm(self, order: OrderView, secrets: Secrets, declared: bytes, survivors: Collection[int]) -> bytes:
        """Return a tag for each other survivor that says which survivors were declared to this user."""
        statement, tags = confirmed(order.digest, declared), self.tags(secrets)
        others = [partner for partner in order.partners(self.place).tolist() if partner in survivors]
        made = tags.make(CONFIRM_TAG, others, statement)
        return encode(Confirm(*self._head(order), made))

    def unmask(self, order: OrderView, shares: Mapping[int, bytes]) -> bytes:
        """Return the shares that are released, by owner."""
        owners = encode_users(np.array(list(shares), np.int64), len(self.epoch.pod))
        return encode(Unmask(*self._head(order), owners, b"".join(shares.values())))

    def held_shares(self, order: OrderView, message: Order, package: Package, secrets: Secrets) -> dict[int, bytes]:
        """Return the pairs of shares that this user holds, by owner: its own, and those of the others that open."""
        partners = order.partners(self.place).tolist()
        sealed = pieces(message.shares, len(partners), SEALED_SIZE, "the shares")
        held = {self.place: package.own_shares.reveal()}
        for owner, each in zip(partners, sealed, strict=True):
            pair = open_pair(self.epoch, owner, self.place, each, secrets[owner])
            if pair is not None:  # Otherwise the owner sealed rubbish; others may still restore its secrets.
                held[owner] = pair
        return held

    def tags(self, secrets: Secrets) -> Tags:
        """Return what makes and checks tags between this user and its partners."""
        return Tags(self.epoch.pod.users, self.place, secrets)

    def _head(self, order: OrderView) -> tuple[int, bytes, bytes]:
        """How every message of this user begins, from UPLOAD on."""
        return order.round_number, order.view, user_number(self.user)
