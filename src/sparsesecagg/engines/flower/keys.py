"""Keys that are made before their round: what saves one exchange of four.

The keys of a round depend on nothing but randomness; only what is done with them is bound to the round's
parameters. So a client can draw the randomness of its next round early, announce the public half on its UNMASK reply,
and hand the drawn bytes to the round's `Client` when that begins. The bytes are used once: the client forgets them as
it uses them.
"""

from __future__ import annotations

import os

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE, public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, PrivateKey, Secret
from sparsesecagg.errors import MalformedMessage
from sparsesecagg.protocol import Client, Policy, RoundParameters
from sparsesecagg.protocol.membership import nonce_commitment
from sparsesecagg.protocol.messages import NONCE_SIZE, AdvertiseKeys, encode, user_number

SEED_SIZE = 3 * SECRET_SIZE + NONCE_SIZE
"""What `Client.advertise_keys` draws: sealing key, mask key, private seed, nonce."""

ANNOUNCEMENT_SIZE = 2 * PUBLIC_KEY_SIZE + DIGEST_SIZE


class KeySeed(Secret):
    """The randomness of a client's keys in one round."""

    @staticmethod
    def draw() -> KeySeed:
        """Return fresh randomness."""
        return KeySeed(os.urandom(SEED_SIZE))

    def client(
        self, user: int, params: RoundParameters, policy: Policy, identity: Identity | None = None
    ) -> tuple[Client, bytes]:
        """Return a client that has advertised the keys of this seed, and its message.

        Whatever the client draws after its keys comes from the system.
        """
        drawn = bytearray(self.reveal())

        def entropy(size: int) -> bytes:
            if not drawn:
                return os.urandom(size)
            piece = bytes(drawn[:size])
            del drawn[:size]
            return piece

        client = Client(user, params, policy, entropy, identity)
        return client, client.advertise_keys()

    def announcement(self) -> bytes:
        """Return the public half: sealing key, mask key, commitment to the nonce."""
        drawn = self.reveal()
        sealing_key = public_key(PrivateKey(drawn[:SECRET_SIZE]))
        mask_key = public_key(PrivateKey(drawn[SECRET_SIZE : 2 * SECRET_SIZE]))
        return sealing_key + mask_key + nonce_commitment(sealing_key, mask_key, drawn[3 * SECRET_SIZE :])


def advertisement(announcement: bytes, user: int, params: RoundParameters) -> bytes:
    """Return the message that a client would send for keys that it announced early."""
    if len(announcement) != ANNOUNCEMENT_SIZE:
        raise MalformedMessage(f"an announcement of keys takes {ANNOUNCEMENT_SIZE} bytes, not {len(announcement)}")
    sealing_key, mask_key = announcement[:PUBLIC_KEY_SIZE], announcement[PUBLIC_KEY_SIZE : 2 * PUBLIC_KEY_SIZE]
    commitment = announcement[2 * PUBLIC_KEY_SIZE :]
    return encode(AdvertiseKeys(params.round_number, params.view, user_number(user), sealing_key, mask_key, commitment))
