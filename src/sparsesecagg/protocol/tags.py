"""Tags: how members of a pod show each other what they were told, without a signature.

A tag is made with the pair's secret of the round and names its purpose, its sender and its receiver, so a server can
neither make one nor return a holder's own as somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.constant_time import bytes_eq

from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.secrets import RoundSecret
from sparsesecagg.patterns.graphs import Users

ORDER_TAG, CONFIRM_TAG = "order tag", "confirm tag"


class Tags:
    """One member's tags in one round. Members go by their places; `secrets` are those with each partner."""

    def __init__(self, users: Users, place: int, secrets: Mapping[int, RoundSecret]) -> None:
        self._users: list[int] = users.tolist()
        self._place, self._secrets = place, secrets

    def make(self, purpose: str, receiver: int, statement: bytes) -> bytes:
        """Return this member's tag for another."""
        return self._tag(self._secrets[receiver], purpose, self._place, receiver, statement)

    def valid(self, purpose: str, sender: int, statement: bytes, tag: bytes) -> bool:
        """Tell whether another member made this tag for this one, over this statement."""
        secret = self._secrets.get(sender)
        return secret is not None and bytes_eq(tag, self._tag(secret, purpose, sender, self._place, statement))

    def _tag(self, secret: RoundSecret, purpose: str, sender: int, receiver: int, statement: bytes) -> bytes:
        return sealing.tag(secret, purpose, self._users[sender], self._users[receiver], statement)


def confirmed(order: bytes, survivors: bytes) -> bytes:
    """Return what a confirmation states: the order's digest and the survivors of the whole pod."""
    return digest("confirmed", order, survivors)
