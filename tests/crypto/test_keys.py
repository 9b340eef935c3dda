"""X25519: agreement as in RFC 7748, and no agreement on a secret that everybody knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from reference.x25519 import P, low_order_points, x25519
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE, KeyAgreement, public_key, require_usable
from sparsesecagg.crypto.secrets import AgreedSecret, PrivateKey
from sparsesecagg.errors import InvalidKey
from strategies import seeds

BASE = (9).to_bytes(32, "little")
ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
AGREED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_the_published_example_agrees() -> None:
    """RFC 7748, section 6.1."""
    alice, bob = PrivateKey(bytes.fromhex(ALICE)), PrivateKey(bytes.fromhex(BOB))
    assert public_key(alice).hex() == ALICE_PUBLIC
    assert public_key(bob).hex() == BOB_PUBLIC
    assert KeyAgreement(alice).with_peer(public_key(bob)) == AgreedSecret(bytes.fromhex(AGREED))


@given(seeds, seeds)
@settings(max_examples=20)
def test_both_sides_agree_and_so_does_the_plain_ladder(one: bytes, other: bytes) -> None:
    mine, theirs = PrivateKey(one), PrivateKey(other)
    agreed = KeyAgreement(mine).with_peer(public_key(theirs))
    assert agreed == KeyAgreement(theirs).with_peer(public_key(mine))
    assert public_key(mine) == x25519(one, BASE)
    assert agreed.reveal() == x25519(one, x25519(other, BASE))


def test_an_agreement_serves_many_peers() -> None:
    mine = PrivateKey(bytes.fromhex(ALICE))
    agreement = KeyAgreement(mine)
    peers = [public_key(PrivateKey(bytes([number]) * 32)) for number in range(1, 6)]
    secrets = [agreement.with_peer(peer).reveal() for peer in peers]
    assert len(set(secrets)) == 5
    assert secrets == [KeyAgreement(mine).with_peer(peer).reveal() for peer in peers]


@pytest.mark.parametrize("point", low_order_points(), ids=bytes.hex)
def test_a_low_order_point_is_refused(point: bytes) -> None:
    """With one of these the agreed secret would be zero for whatever private key."""
    assert x25519(bytes.fromhex(ALICE), point) == bytes(32)
    for private in (ALICE, BOB):
        with pytest.raises(InvalidKey, match="low-order"):
            KeyAgreement(PrivateKey(bytes.fromhex(private))).with_peer(point)
    with pytest.raises(InvalidKey, match="low-order"):
        require_usable(point)


@pytest.mark.parametrize("u", [2, 3, 9, P - 2, P + 2])
def test_points_beside_the_low_order_ones_are_fine(u: int) -> None:
    point = u.to_bytes(32, "little")
    require_usable(point)
    agreed = KeyAgreement(PrivateKey(bytes.fromhex(ALICE))).with_peer(point)
    assert agreed.reveal() == x25519(bytes.fromhex(ALICE), point)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_key_of_another_length_is_refused(size: int) -> None:
    assert size != PUBLIC_KEY_SIZE
    with pytest.raises(InvalidKey):
        KeyAgreement(PrivateKey(bytes.fromhex(ALICE))).with_peer(b"\x09" * size)


def test_a_refusal_shows_no_secret() -> None:
    """Not even as the cause of the error, which tracebacks print."""
    with pytest.raises(InvalidKey) as caught:
        KeyAgreement(PrivateKey(bytes.fromhex(ALICE))).with_peer(bytes(32))
    assert caught.value.__cause__ is None
    assert ALICE not in str(caught.getrepr(showlocals=True))


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_no_key_of_another_length_is_usable(size: int) -> None:
    for keys in ([b"\x09" * size], [b"\x09" * size, b"\x09" * PUBLIC_KEY_SIZE]):
        with pytest.raises(InvalidKey):
            require_usable(*keys)


@given(seeds)
def test_a_key_is_usable_if_an_agreement_with_it_is(key: bytes) -> None:
    """Be it anybody's public key or not: half of all numbers lie on the twist."""

    def refused(check: Callable[[bytes], object]) -> bool:
        try:
            check(key)
        except InvalidKey:
            return True
        return False

    assert refused(require_usable) == refused(KeyAgreement(PrivateKey(bytes.fromhex(ALICE))).with_peer)
