"""A colluding user, as the attacker knows it: from the bytes that it drew follows all that it ever knew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, PairChain, PrivateKey, RoundSecret, SharedSecret
from sparsesecagg.protocol.chains import start_chains
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import SEALED_SIZE, ShareKeys
from sparsesecagg.protocol.order import mask_key_of
from sparsesecagg.protocol.package import mask_private, open_pair

Draws = Sequence[bytes]
"""All random bytes that one user drew in a run, draw by draw."""


class Colluder:
    """One colluder in its pod."""

    def __init__(self, epoch: Epoch, place: int, draws: Draws, identity: Identity | None = None) -> None:
        self._epoch, self._place, self._draws = epoch, place, draws
        self._user = int(epoch.pod.users[place])
        self._chains = self._start_chains(identity)
        self._chain_round = epoch.first_round
        self._secrets: dict[int, RoundSecret] = {}
        """Of the round that the chains stand at, with each partner."""
        self._behind = 0
        """Draws before this place were found: what is looked for next was drawn later, as a rule."""

    def _start_chains(self, identity: Identity | None) -> dict[int, PairChain]:
        epoch = self._epoch
        own = epoch.sealing_key(self._place)
        private = next(
            PrivateKey(draw) for draw in self._draws if len(draw) == SECRET_SIZE and public_key(PrivateKey(draw)) == own
        )
        return start_chains(epoch, self._place, private, identity)

    def open_pair(self, owner: int, round_number: int, package: ShareKeys) -> bytes:
        """Return the two shares that `owner` dealt to this colluder for a round."""
        self._go_to(round_number)
        start = SEALED_SIZE * int(np.searchsorted(self._epoch.partners(owner), self._place))
        sealed = package.shares[start : start + SEALED_SIZE]
        pair = open_pair(self._epoch, owner, self._place, sealed, self._secrets[owner])
        assert pair is not None  # noqa: S101  # Honest users deal shares that open.
        return pair

    def _go_to(self, round_number: int) -> None:
        """Move the chains on; like the colluder itself, they never go back."""
        if round_number < self._chain_round:
            raise ValueError(f"the secrets of round {round_number} are gone: look at the rounds in order")
        if round_number == self._chain_round and self._secrets:
            return
        for _ in range(round_number - self._chain_round):
            self._chains = {partner: sealing.next_chain(chain) for partner, chain in self._chains.items()}
        self._chain_round = round_number
        self._secrets = {partner: sealing.round_secret(chain) for partner, chain in self._chains.items()}

    def mask_secret(self, package: ShareKeys) -> SharedSecret:
        """Return the draw that the mask key of one of its packages comes from."""
        key = mask_key_of(package.head)
        return self._find(
            lambda secret: public_key(mask_private(self._epoch, package.round_number, self._user, secret)) == key
        )

    def _find(self, fits: Callable[[SharedSecret], bool]) -> SharedSecret:
        for place in (*range(self._behind, len(self._draws)), *range(self._behind)):
            draw = self._draws[place]
            if len(draw) == shamir.SECRET_SIZE and fits(SharedSecret(draw)):
                self._behind = place
                return SharedSecret(draw)
        raise ValueError("the mask key comes from none of the user's draws")
