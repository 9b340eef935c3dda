"""A server that lies: it plays the rounds of a pod by hand, shows whom it likes what it likes, and keeps everything.

What it knows is what a server knows: the messages. `read` is what it makes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol.rounds import Run
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.crypto.secrets import PrivateKey, SharedSecret
from sparsesecagg.crypto.shamir import LIMBS, SHARE_SIZE, combine, decode_shares
from sparsesecagg.errors import SparseSecAggError
from sparsesecagg.protocol.acceptance import view_order
from sparsesecagg.protocol.messages import (
    HEAD_SIZE,
    SEALED_SIZE,
    Confirm,
    ConfirmRequest,
    Order,
    Unmask,
    UnmaskRequest,
    Upload,
    decode_client_message,
    decode_server_message,
    decode_users,
    encode,
    encode_users,
    pieces,
)
from sparsesecagg.protocol.order import OrderView, commitment_of, mask_key_of
from sparsesecagg.protocol.package import mask_private
from sparsesecagg.protocol.work import Pair, Total
from sparsesecagg.protocol.works import work_of

Integers = NDArray[np.int64]


class Liar:
    """The server of one pod, in one round. Everything goes by user; an order or request may differ for each."""

    def __init__(self, run: Run, victim: int) -> None:
        self.run, self.victim = run, victim
        self.pod = run.pod(victim)
        self.users: list[int] = self.pod.users.tolist()
        epoch = run.clients[victim]._member.epoch
        self.epoch, self.threshold = epoch, epoch.threshold
        self.peers = [user for user in run.committee(victim) if user != victim]
        self.least = epoch.min_survivors[int(self.pod.committee_of[run.place(victim)])]
        run.begin()
        self.orders = {user: run.inbox[user] for user in self.users if user in run.inbox}
        self.uploads: dict[int, Upload] = {}
        self.views: dict[int, OrderView] = {}
        """By user: the order that it was told."""
        self.truth: Integers = np.zeros(run.params.dim, np.int64)
        """What the victim really sent."""
        self.refusals: dict[int, Exception] = {}
        self.released: dict[int, Unmask] = {}

    def another_try(self) -> Liar:
        """Return the same server with the same uploads, as if it had not asked for shares yet."""
        other = copy(self)
        other.orders, other.refusals, other.released = dict(self.orders), {}, {}
        return other

    # Orders

    def order_of(self, user: int) -> Order:
        """Return the order for a user."""
        message = decode_server_message(self.orders[user])
        assert isinstance(message, Order)
        return message

    def heads(self, user: int) -> dict[int, bytes]:
        """Return the heads that a user is shown: those of its committee."""
        members = [each for each in self.run.committee(user) if each in self._members(user)]
        return dict(zip(members, pieces(self.order_of(user).heads, len(members), HEAD_SIZE, "heads"), strict=True))

    def _members(self, user: int) -> list[int]:
        return [int(each) for each in self.pod.users[decode_users(self.order_of(user).members, len(self.pod))]]

    def show_members(self, user: int, left_out: Iterable[int]) -> None:
        """Show a user an order without some members."""
        before, heads = self._members(user), self.heads(user)
        gone = set(left_out)
        members = [each for each in before if each not in gone]
        order, partners = self.order_of(user), [each for each in before if each != user]
        sealed = dict(zip(partners, pieces(order.shares, len(partners), SEALED_SIZE, "shares"), strict=True))
        self._show(
            user,
            {each: head for each, head in heads.items() if each not in gone},
            members=self.run.bitmap(members),
            shares=b"".join(sealed[each] for each in partners if each not in gone),
        )

    def show_own_keys(self, user: int, owners: Iterable[int]) -> None:
        """Show a user mask keys of the server's own for some members of its committee."""
        heads = self.heads(user)
        for owner in owners:
            heads[owner] = public_key(self.own_key(owner)) + commitment_of(heads[owner])
        self._show(user, heads)

    @staticmethod
    def own_key(owner: int) -> PrivateKey:
        """Return the key that the server has made up for a user."""
        return PrivateKey(bytes([owner % 256, owner // 256]) * 16)

    def _show(self, user: int, heads: Mapping[int, bytes], **changes: object) -> None:
        """Change a user's order, and make the digests fit, as a liar would."""
        order = msgspec.structs.replace(self.order_of(user), heads=b"".join(heads.values()), **changes)
        own = int(self.pod.committee_of[self.pod.place[user]])
        view = view_order(self.epoch, order, self.epoch.digest)
        digests = pieces(order.committees, len(self.pod.committees), 32, "digests")
        digests[own] = view.heads_digest(own, {self.pod.place[each]: head for each, head in heads.items()})
        self.orders[user] = encode(msgspec.structs.replace(order, committees=b"".join(digests)))

    def same_for_all(self, source: int) -> None:
        """Give everybody the committee digests, and the committee's heads, that one user was shown."""
        shown = self.order_of(source)
        for user in self.users:
            heads = shown.heads if user in (*self.peers, self.victim) else self.order_of(user).heads
            self.orders[user] = encode(
                msgspec.structs.replace(self.order_of(user), committees=shown.committees, heads=heads)
            )

    # The round

    def collect_uploads(self, users: Iterable[int] | None = None) -> None:
        """Send the orders, and take what comes back."""
        for user in self.users if users is None else users:
            trace = self._note if user == self.victim else None
            client = self.run.clients[user]
            try:
                answer = client.upload(self.orders[user], self.run.updates[user], trace=trace)
            except SparseSecAggError as refusal:
                self.refusals[user] = refusal
                continue
            message = decode_client_message(answer)
            assert isinstance(message, Upload)
            self.uploads[user] = message
            self.views[user] = client._order

    def _note(self, where: slice | NDArray[np.int64], integers: NDArray[np.int64]) -> None:
        self.truth[where] += integers

    def tag(self, sender: int, receiver: int) -> bytes:
        """Return the tag that a user sent for another with its upload; zeros if it sent none."""
        if sender not in self.uploads:
            return bytes(TAG_SIZE)
        partners = [each for each in self._members(sender) if each != sender]
        if receiver not in partners:
            return bytes(TAG_SIZE)
        return pieces(self.uploads[sender].tags, len(partners), TAG_SIZE, "tags")[partners.index(receiver)]

    def confirm(self, survivors: Mapping[int, list[int]]) -> dict[int, dict[int, bytes]]:
        """Tell holders who survived; return the confirmations that come back, by sender and receiver."""
        made: dict[int, dict[int, bytes]] = {}
        for user, told in survivors.items():
            request = ConfirmRequest(self.run.server.round_number, self.views[user].view, self.run.bitmap(told))
            try:
                answer = decode_client_message(self.run.clients[user].confirm(encode(request)))
            except SparseSecAggError as refusal:
                self.refusals[user] = refusal
                continue
            assert isinstance(answer, Confirm)
            others = [each for each in sorted(told) if each != user and each in self._members(user)]
            made[user] = dict(zip(others, pieces(answer.tags, len(others), TAG_SIZE, "tags"), strict=True))
        return made

    def unmask(
        self, survivors: Mapping[int, list[int]], shown_as: Mapping[int, Mapping[int, bytes]] | None = None
    ) -> None:
        """Ask holders for shares, each with the survivors that it is told.

        `shown_as` has tags that the server shows instead of those that it was sent, by receiver and sender.
        """
        confirmations = self.confirm(survivors) if self.run.params.confirm else {}
        for user, told in survivors.items():
            others = [each for each in sorted(told) if each != user and each in self._members(user)]
            instead = (shown_as or {}).get(user, {})
            confirmers = [each for each in others if user in confirmations.get(each, {})]
            request = UnmaskRequest(
                self.run.server.round_number,
                self.views[user].view,
                self.run.bitmap(told),
                b"".join(instead[each] if each in instead else self.tag(each, user) for each in others),
                encode_users(np.array([self.pod.place[each] for each in confirmers], np.int64), len(self.pod)),
                b"".join(confirmations[each][user] for each in confirmers),
            )
            try:
                answer = decode_client_message(self.run.clients[user].unmask(encode(request)))
            except SparseSecAggError as refusal:
                self.refusals[user] = refusal
                continue
            assert isinstance(answer, Unmask)
            self.released[user] = answer

    # What it learns

    def shares_of(self, owner: int) -> dict[int, bytes]:
        """Return the shares of an owner's secret that were released, by holder."""
        found = {}
        for holder, message in self.released.items():
            owners = self.pod.users[decode_users(message.owners, len(self.pod))].tolist()
            parts = pieces(message.shares, len(owners), SHARE_SIZE, "shares")
            if owner in owners:
                found[holder] = parts[owners.index(owner)]
        return found

    def secret_of(self, owner: int, holders: Iterable[int] | None = None) -> SharedSecret | None:
        """Restore an owner's secret, the one of the two that was released; None with too few shares."""
        shares = self.shares_of(owner)
        chosen = [holder for holder in shares if holders is None or holder in set(holders)][: self.threshold]
        if len(chosen) < self.threshold:
            return None
        decoded = [decode_shares(shares[holder]) for holder in chosen]
        elements = np.array(decoded).reshape(1, len(chosen), LIMBS)
        (found,) = combine(elements, tuple(self.pod.place[holder] for holder in chosen))
        return None if found is None else SharedSecret(found)

    def agreed(self, dropped: int, peer: int, secret: SharedSecret) -> Pair:
        """Return what a mask secret that was released says about a pair."""
        private = mask_private(self.epoch, self.run.server.round_number, dropped, secret)
        key = mask_key_of(self.heads(self.victim)[peer])
        return Pair(peer, dropped, KeyAgreement(private).with_peer(key))

    def known_pair(self, peer: int) -> Pair:
        """Return what the victim has agreed on with a key that the server made up for a peer."""
        key = mask_key_of(self.heads(self.victim)[self.victim])
        return Pair(self.victim, peer, KeyAgreement(self.own_key(peer)).with_peer(key))

    def open(self, users: Iterable[int], secrets: Mapping[int, SharedSecret], pairs: Iterable[Pair]) -> Integers:
        """Take masks away from the sum of some uploads; return the values."""
        view = self.views[self.victim]
        work = work_of(view, int(self.pod.committee_of[self.pod.place[self.victim]]))
        for user in users:
            work.add(self.uploads[user])
        work.open(secrets, list(pairs))
        total = Total(self.run.params)
        work.add_to(total)
        return total.values.astype(np.int64)
