"""A malicious server of one group, with real clients: the adversary of the lab, and every sum that it could try.

Users of one group are their indices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from protocol.rounds import Run
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.errors import SparseSecAggError
from sparsesecagg.field import unpack
from sparsesecagg.lab.audit.adversary import Adversary
from sparsesecagg.patterns.masks import Mask, Pair, add_whole, mask_seeds
from sparsesecagg.protocol.epoch import NO_CONTEXT
from sparsesecagg.protocol.messages import Unmask, Upload, decode_client_message, encode

Words = NDArray[np.int64]


class MaliciousServer(Adversary):
    """The server of a run of one group, in its first round. `colluding` users do whatever it likes."""

    def __init__(self, run: Run, colluding: Collection[int] = ()) -> None:
        run.begin()
        (honest,) = run.server.rounds
        states = {user: run.clients[user]._state for user in colluding}
        super().__init__(honest.epoch, 1, honest.packages, states)
        self.run = run
        self.honest = [user for user in range(run.params.clients) if user not in self.colluders]
        self.shown = dict.fromkeys(range(run.params.clients), honest)
        """By user: the round as it is shown."""
        self.truth: dict[int, Words] = {}
        """By user: the integers that it really sent."""
        self.refusals: dict[int, Exception] = {}

    def show_to(
        self, user: int, members: Iterable[int], forged: Iterable[int] = (), context: bytes = NO_CONTEXT
    ) -> None:
        """Show a user a header with some members, for some of them with mask keys of the server's own."""
        inside = {user, *members}
        self.shown[user] = self.show(
            without=self.packages.keys() - inside, forged=inside.intersection(forged), context=context
        )

    def collect_uploads(self) -> None:
        """Send the headers, and take what comes back."""
        for user in self.honest:
            self.truth[user] = np.zeros(self.run.params.dim, np.int64)
            header, data, trace = self.shown[user].header, self.shown[user].headers()[user], self._noting(user)
            try:
                answer = self.run.clients[user].upload(
                    data, self.run.updates[user], context=header.context, trace=trace
                )
            except SparseSecAggError as refusal:
                self.refusals[user] = refusal
                continue
            message = decode_client_message(answer)
            assert isinstance(message, Upload)
            self.take_upload(user, header, message)

    def _noting(self, user: int) -> Callable[..., None]:
        def note(where: slice | NDArray[np.int64], integers: NDArray[np.int64]) -> None:
            self.truth[user][where] += integers

        return note

    def unmask(self, told: Mapping[int, Collection[int]], garbled: Mapping[int, Collection[int]] | None = None) -> None:
        """Ask holders for shares, each with the survivors that it is told, some of whose tags are garbled."""
        for holder in told.keys() & self.uploads.keys():
            bad = dict.fromkeys((garbled or {}).get(holder, ()), bytes(TAG_SIZE))
            request = self.request(self.header_of[holder], holder, set(told[holder]), bad)
            try:
                answer = decode_client_message(self.run.clients[holder].unmask(encode(request)))
            except SparseSecAggError as refusal:
                self.refusals[holder] = refusal
                continue
            assert isinstance(answer, Unmask)
            self.take_shares(holder, answer)
        self.restore()

    # What it learns

    def knowledge(self) -> tuple[set[int], set[int]]:
        """Return the honest users whose private seeds, and whose mask secrets, are open."""
        return self.seeds.keys() & self.honest, self.mask_secrets.keys() & self.honest

    def readable(self) -> set[frozenset[int]]:
        """Try every set of uploads: take all masks away that are known, and compare with the truth."""
        word, left = self.run.params.word, {user: self._known_masks(user) for user in self.uploads}
        found = set()
        for size in range(1, len(self.uploads) + 1):
            for users in combinations(sorted(self.uploads), size):
                total = sum(left[user] - self.truth[user] for user in users)
                if not (np.asarray(total) % word.modulus).any():
                    found.add(frozenset(users))
        return found

    def _known_masks(self, user: int) -> Words:
        """Return the words that a user sent, without the masks that the server can compute."""
        header, params = self.header_of[user], self.run.params
        masked_sum = header.masked_sum()
        length = params.dim + masked_sum.digits.total
        sums = unpack(self.uploads[user].words, length, params.word).astype(params.word.accumulator)
        masks = []
        if user in self.seeds:
            masks.append(masked_sum.private_mask(user, self.seeds[user], positive=False))
        for peer in header.partners(user).tolist():
            agreed = self.agreed(header, user, peer)
            if agreed:
                [shared] = mask_seeds([Pair(user, peer, agreed)], header.digest)
                masks.append(Mask(MaskStream(shared, params.word), positive=user > peer))
        add_whole(sums, masks, params.word)
        return params.word.reduce(sums)[: params.dim].astype(np.int64)
