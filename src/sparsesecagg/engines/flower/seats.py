"""Which node is which user of the roster, and how a node proves it.

Flower gives nodes ids, a roster gives users numbers, and the server may not simply pair them off: a stranger in the
place of a user would cost that user its round. So the server sends a fresh X25519 key, and a node answers with a value
that only the owner of a listed run key can compute. It speaks of exactly this node, this exchange and the keys that the
node sends in it. The identity has signed the run key, so its own key can stay offline.

This protects rounds from strangers. Nodes do not rely on it: they prove themselves to each other.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.constant_time import bytes_eq

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.crypto.kdf import derive, digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, AgreedSecret, PrivateKey
from sparsesecagg.engines.flower.errors import UnprovenNode

_LABEL = "flower seat"


@dataclass(frozen=True)
class Claim:
    """What a node says: that it is this user of this run, and sends these keys."""

    run: bytes
    node: int
    user: int
    keys: bytes

    @property
    def digest(self) -> bytes:
        """What a proof is bound to."""
        return digest(_LABEL, self.run, str(self.node).encode(), str(self.user).encode(), self.keys)


def prove(claim: Claim, run_key: PrivateKey, challenge: bytes) -> bytes:
    """Return the proof of a claim; raises `InvalidKey` for a challenge that would give it away."""
    return _proof(claim, KeyAgreement(run_key).with_peer(challenge))


class Challenge:
    """A key of the server's for one exchange, to which the nodes prove who they are."""

    def __init__(self) -> None:
        private = PrivateKey(os.urandom(SECRET_SIZE))
        self.public = public_key(private)
        self._agreement = KeyAgreement(private)

    def verify(self, claim: Claim, roster: Roster, proof: bytes) -> None:
        """Raise `UnprovenNode` unless the claim is proven."""
        if not 0 <= claim.user < len(roster.entries):
            raise UnprovenNode(claim.node, f"the roster has no user {claim.user}")
        if not bytes_eq(proof, _proof(claim, self._agreement.with_peer(roster.entries[claim.user].run_key))):
            raise UnprovenNode(claim.node, f"it does not prove to be user {claim.user} of the roster")


@dataclass
class Seats:
    """Which node is which user, for as long as the run lasts: given out in a plain run, proven with a roster."""

    _node_of: dict[int, int] = field(default_factory=dict)
    _user_of: dict[int, int] = field(default_factory=dict)

    def among(self, nodes: Collection[int]) -> dict[int, int]:
        """Return the node of each user that is one of these."""
        return {self._user_of[node]: node for node in nodes if node in self._user_of}

    @property
    def taken(self) -> list[tuple[int, int]]:
        """All users that have a node, with it."""
        return sorted(self._node_of.items())

    def user(self, node: int) -> int | None:
        """Return the user that a node is."""
        return self._user_of.get(node)

    def take(self, user: int, node: int, present: Collection[int]) -> None:
        """Note that a node is a user.

        A user has one node. Another one takes its place only when that node is gone, as after a restart.
        """
        holder = self._node_of.get(user, node)
        if holder != node and holder in present:
            raise UnprovenNode(node, f"user {user} of the roster is node {holder}, which is present")
        self._user_of.pop(holder, None)
        if node in self._user_of:  # A node that is enrolled anew under another number leaves its old one.
            del self._node_of[self._user_of[node]]
        self._node_of[user], self._user_of[node] = node, user


def _proof(claim: Claim, agreed: AgreedSecret) -> bytes:
    return derive(agreed.reveal(), _LABEL, claim.digest)
