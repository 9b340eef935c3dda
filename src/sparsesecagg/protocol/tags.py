"""Tags: how members of a pod show each other what they were told, without a signature.

A tag is made with the pair's secret of the round and names its purpose, its sender and its receiver, so a server can
neither make one nor return a holder's own as somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

    def make(self, purpose: str, receivers: Sequence[int], statement: bytes) -> bytes:
        """Return this member's tags for some others, one behind the other."""
        secrets = [self._secrets[receiver] for receiver in receivers]
        users = [self._users[receiver] for receiver in receivers]
        return b"".join(sealing.tags(secrets, purpose, self._users[self._place], users, statement))

    def valid(self, purpose: str, sender: int, statement: bytes, tag: bytes) -> bool:
        """Tell whether another member made this tag for this one, over this statement."""
        secret = self._secrets.get(sender)
        if secret is None:
            return False
        return bytes_eq(tag, sealing.tag(secret, purpose, self._users[sender], self._users[self._place], statement))


def confirmed(order: bytes, survivors: bytes) -> bytes:
    """Return what a confirmation states: the order's digest and the survivors of the whole pod."""
    return digest("confirmed", order, survivors)
