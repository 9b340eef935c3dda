"""A malicious server of one group, with real clients: it shows whom it likes what it likes, and keeps everything.

What it knows is what a server knows, the messages, and what colluding users know. `readable` is what it makes of that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import combinations

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol.rounds import Run
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.crypto.secrets import PrivateKey, SharedSecret
from sparsesecagg.crypto.shamir import LIMBS, SHARE_SIZE, combine, decode_shares
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.errors import SparseSecAggError
from sparsesecagg.field import unpack
from sparsesecagg.patterns.masks import Mask, Pair, add_whole, pair_seeds
from sparsesecagg.protocol.epoch import mask_private, open_pair, seed_commitment
from sparsesecagg.protocol.header import Header, Tags
from sparsesecagg.protocol.messages import (
    SEALED_SIZE,
    Unmask,
    UnmaskRequest,
    Upload,
    decode_client_message,
    decode_users,
    encode,
    pieces,
)

Words = NDArray[np.int64]


class MaliciousServer:
    """The server of a run of one group, in its first round. `colluding` users do whatever it likes."""

    def __init__(self, run: Run, colluding: Collection[int] = ()) -> None:
        self.run, self.colluding = run, set(colluding)
        self.honest = [user for user in range(run.params.clients) if user not in self.colluding]
        run.begin()
        self.headers = {user: run.header_of(user) for user in run.inbox}
        """By user: what it is shown."""
        self.packages = {run.group(0).users[index]: each for index, each in run.server.rounds[0].packages.items()}
        self.epoch = run.server.rounds[0].epoch
        self.uploads: dict[int, Upload] = {}
        self.views: dict[int, Header] = {}
        self.truth: dict[int, Words] = {}
        """By user: the integers that it really sent."""
        self.refusals: dict[int, Exception] = {}
        self.shares: dict[tuple[int, bool], dict[int, bytes]] = {}
        """By owner, and whether of the private seed: the shares, by holder."""

    # Headers

    def show(self, user: int, members: Iterable[int], forged: Collection[int] = (), context: bytes = b"") -> None:
        """Show a user a header with some members, for some of them with mask keys of the server's own."""
        genuine, members = self.headers[user], sorted({user, *members})
        sealed = dict(
            zip(
                self.run.partners(user),
                pieces(genuine.shares, len(self.run.partners(user)), SEALED_SIZE, ""),
                strict=True,
            )
        )
        keys = [public_key(self.own_key(each)) if each in forged else self.packages[each].mask_key for each in members]
        self.headers[user] = msgspec.structs.replace(
            genuine,
            members=self.run.bitmap(members),
            mask_keys=b"".join(keys),
            context=context or genuine.context,
            shares=b"".join(sealed[each] for each in members if each != user),
        )

    @staticmethod
    def own_key(owner: int) -> PrivateKey:
        """Return the key that the server has made up for a user."""
        return PrivateKey(bytes([owner + 1]) * 32)

    # The round

    def collect_uploads(self) -> None:
        """Send the headers, and take what comes back."""
        for user in self.honest:
            self.truth[user] = np.zeros(self.run.params.dim, np.int64)
            header = self.headers[user]
            try:
                answer = self.run.clients[user].upload(
                    encode(header), self.run.updates[user], context=header.context, trace=self._noting(user)
                )
            except SparseSecAggError as refusal:
                self.refusals[user] = refusal
                continue
            message = decode_client_message(answer)
            assert isinstance(message, Upload)
            self.uploads[user], self.views[user] = message, Header(self.epoch, header)

    def _noting(self, user: int) -> Callable[..., None]:
        def note(where: slice | NDArray[np.int64], integers: NDArray[np.int64]) -> None:
            self.truth[user][where] += integers

        return note

    def tag(self, sender: int, receiver: int) -> bytes:
        """Return the tag that a user sent for another, or that a colluding one makes over the receiver's header."""
        if sender in self.colluding:
            secrets = self.run.clients[sender]._state.secrets[1]
            return Tags(self.views[receiver], sender, secrets).make([receiver])
        if sender not in self.uploads or receiver not in self.views[sender].mask_key:
            return bytes(TAG_SIZE)
        partners: list[int] = self.views[sender].partners(sender).tolist()
        return pieces(self.uploads[sender].tags, len(partners), TAG_SIZE, "")[partners.index(receiver)]

    def unmask(self, told: Mapping[int, Collection[int]], garbled: Mapping[int, Collection[int]] | None = None) -> None:
        """Ask holders for shares, each with the survivors that it is told, some of whose tags are garbled."""
        for holder, survivors in told.items():
            if holder not in self.uploads:
                continue
            bad = (garbled or {}).get(holder, ())
            tags = [
                bytes(TAG_SIZE) if each in bad else self.tag(each, holder)
                for each in sorted(survivors)
                if each != holder
            ]
            view = self.views[holder]
            request = UnmaskRequest(view.round_number, view.binding, self.run.bitmap(survivors), b"".join(tags))
            try:
                answer = decode_client_message(self.run.clients[holder].unmask(encode(request)))
            except SparseSecAggError as refusal:
                self.refusals[holder] = refusal
                continue
            assert isinstance(answer, Unmask)
            own = set(decode_users(answer.survivors, self.run.params.clients).tolist())
            owners = decode_users(answer.owners, self.run.params.clients).tolist()
            for owner, share in zip(owners, pieces(answer.shares, len(owners), SHARE_SIZE, ""), strict=True):
                self.shares.setdefault((owner, owner in own), {})[holder] = share
        self._take_from_colluders()

    def _take_from_colluders(self) -> None:
        """Open what honest users sealed for those who collude: both shares."""
        for holder in self.colluding:
            secrets = self.run.clients[holder]._state.secrets[1]
            for owner in self.honest:
                partners = self.epoch.partners(owner).tolist()
                sealed = pieces(self.packages[owner].shares, len(partners), SEALED_SIZE, "")[partners.index(holder)]
                pair = open_pair(self.epoch, owner, holder, sealed, secrets[owner])
                assert pair is not None
                self.shares.setdefault((owner, False), {})[holder] = pair[:SHARE_SIZE]
                self.shares.setdefault((owner, True), {})[holder] = pair[SHARE_SIZE:]

    # What it learns

    def secret_of(self, owner: int, of_seed: bool) -> SharedSecret | None:
        """Restore one of an owner's secrets; None with too few shares. It is the genuine one."""
        shares = dict(list(self.shares.get((owner, of_seed), {}).items())[: self.run.params.threshold])
        if len(shares) < self.run.params.threshold:
            return None
        elements = np.array([decode_shares(each) for each in shares.values()]).reshape(1, len(shares), LIMBS)
        (found,) = combine(elements, tuple(shares))
        assert found is not None
        secret = SharedSecret(found)
        if of_seed:
            assert seed_commitment(self.epoch, 1, owner, secret) == self.packages[owner].commitment
        else:
            assert public_key(mask_private(self.epoch, 1, owner, secret)) == self.packages[owner].mask_key
        return secret

    def knowledge(self) -> tuple[set[int], set[int]]:
        """Return the honest users whose private seeds, and whose mask secrets, are open."""
        seeds, masks = ({user for user in self.honest if self.secret_of(user, kind)} for kind in (True, False))
        return seeds, masks

    def readable(self) -> set[frozenset[int]]:
        """Try every set of uploads: take all masks away that are known, and compare with the truth."""
        word, masks = self.run.params.word, {user: self._known_masks(user) for user in self.uploads}
        found = set()
        for size in range(1, len(self.uploads) + 1):
            for users in combinations(sorted(self.uploads), size):
                total = sum(masks[user] for user in users)
                truth = sum(self.truth[user] for user in users)
                left = np.asarray(total - truth) % word.modulus
                if not left.any():
                    found.add(frozenset(users))
        return found

    def _known_masks(self, user: int) -> Words:
        """Return the words that a user sent, without the masks that the server can compute."""
        view, params = self.views[user], self.run.params
        masked_sum = view.masked_sum()
        length = params.dim + masked_sum.digits.total
        sums = unpack(self.uploads[user].words, length, params.word).astype(params.word.accumulator)
        masks = []
        seed = self.secret_of(user, of_seed=True)
        if seed:
            masks.append(masked_sum.private_mask(user, seed, positive=False))
        for peer in view.partners(user).tolist():
            agreement, key = self._agreement(user, peer)
            if agreement:
                shared, _ = pair_seeds(Pair(user, peer, agreement.with_peer(key)), view.digest)
                masks.append(Mask(MaskStream(shared, params.word), positive=user > peer))
        add_whole(sums, masks, params.word)
        return params.word.reduce(sums)[: params.dim].astype(np.int64)

    def _agreement(self, user: int, peer: int) -> tuple[KeyAgreement | None, bytes]:
        """Return one side of what a user has agreed on with a peer, if it is known, and the key of the other."""
        view = self.views[user]
        if view.mask_key[peer] != self.packages[peer].mask_key:
            return KeyAgreement(self.own_key(peer)), view.mask_key[user]
        if peer in self.colluding:
            secret: SharedSecret | None = self.run.clients[peer]._state.packages[1].for_upload().mask_secret
        else:
            secret = self.secret_of(peer, of_seed=False)
        if secret:
            return KeyAgreement(mask_private(self.epoch, 1, peer, secret)), view.mask_key[user]
        own = self.secret_of(user, of_seed=False)
        return (KeyAgreement(mask_private(self.epoch, 1, user, own)) if own else None), view.mask_key[peer]
