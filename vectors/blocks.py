"""Vectors of the cryptographic building blocks: each a list of cases, input beside output."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.identity import IdentityKey, Roster, RunSecret, enrol
from sparsesecagg.crypto.kdf import derive, digest
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import AgreedSecret, PrivateKey, PrivateSeed, Secret
from sparsesecagg.crypto.stream import MaskStream, Scratch
from sparsesecagg.field import WORD_BITS, Word
from sparsesecagg.protocol import RoundParameters
from sparsesecagg.protocol.masking import pair_seeds, private_mask_seed
from sparsesecagg.protocol.membership import nonce_commitment, seed_commitment
from sparsesecagg.protocol.messages import CONFIRM_TAG_SIZE
from vectors.form import Vector, integers, named_bytes

REJECTED_WORD_KEY = (19033026).to_bytes(32, "little")
"""Found by counting up from 1: the fifth word of its key stream is not below 2^32 − 5."""

REJECTED_ELEMENT_SEED = (1137460).to_bytes(32, "little")
"""Found by counting up from 1: one of its first 144 draws of 31 bits is 2^31 − 1, which is no field element."""

_ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
_BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")


def digest_and_derive() -> Vector:
    """Hashing and key derivation."""
    secret, context = named_bytes("secret", 32), named_bytes("context", 32)
    digests: list[tuple[str, list[bytes]]] = [
        ("parameters", []),
        ("parameters", [b""]),
        ("directory", [b"ab", b"c"]),
        ("directory", [b"a", b"bc"]),
        ("nonce", [named_bytes("part", 300)]),
    ]
    names = bytes.fromhex("0100000002000000")
    derived = [
        (secret, "share graph", b"", b"", 32),
        (secret, "sealing", context, names, 32),
        (secret, "pair", context, names, 64),
        (secret + context, "confirm", context, names, 32),
    ]
    return {
        "about": "digest(label, parts…) and derive(secret, label, context, names, length).",
        "digest": [
            {"label": label, "parts": [part.hex() for part in parts], "digest": digest(label, *parts).hex()}
            for label, parts in digests
        ],
        "derive": [
            {
                "secret": key.hex(),
                "label": label,
                "context": salt.hex(),
                "names": who.hex(),
                "length": length,
                "derived": derive(key, label, salt, who, length).hex(),
            }
            for key, label, salt, who, length in derived
        ],
    }


def x25519_agreement() -> Vector:
    """Key pairs and what they agree on."""
    one, other = named_bytes("one private key", 32), named_bytes("other private key", 32)
    return {
        "about": "X25519. The first case is that of RFC 7748, section 6.1.",
        "cases": [
            {
                "private": mine.hex(),
                "public": public_key(PrivateKey(mine)).hex(),
                "peer_private": theirs.hex(),
                "peer_public": public_key(PrivateKey(theirs)).hex(),
                "agreed": KeyAgreement(PrivateKey(mine)).with_peer(public_key(PrivateKey(theirs))).reveal().hex(),
            }
            for mine, theirs in ((_ALICE, _BOB), (one, other), (bytes(32), one))
        ],
    }


def shamir_sharing() -> Vector:
    """Splitting and combining."""
    secrets = [bytes(32), b"\xff" * 32, named_bytes("a secret", 32), named_bytes("another secret", 32)]
    cases = [
        ("two secrets, 2 of 3", secrets[2:], [0, 1, 2], 2, named_bytes("Shamir 2 of 3", 32)),
        ("all zeros and all ones, 3 of 5, holders far apart", secrets[:2], [0, 4, 7, 300, 65535], 3, bytes(32)),
        ("a draw of 2^31 − 1 is skipped", secrets[2:], list(range(9)), 9, REJECTED_ELEMENT_SEED),
    ]
    return {
        "about": "Shamir's secret sharing over GF(2^31 − 1), nine limbs of 29 bits. `shares`: per holder the shares "
        "of all secrets, one after the other. `combine`: the first secret from a set of holders.",
        "cases": [
            {
                "about": about,
                "secrets": [secret.hex() for secret in chosen],
                "holders": holders,
                "threshold": threshold,
                "seed": seed.hex(),
                **_shared(chosen, holders, threshold, seed),
            }
            for about, chosen, holders, threshold, seed in cases
        ],
    }


def _shared(secrets: list[bytes], holders: list[int], threshold: int, seed: bytes) -> dict[str, Any]:
    shares = shamir.split(secrets, np.array(holders, np.int64), threshold, Secret(seed))
    combined = []
    for places in list(combinations(range(len(holders)), threshold))[:4]:
        chosen = tuple(holders[place] for place in places)
        (restored,) = shamir.combine(shares[list(places), :1].transpose(1, 0, 2), chosen)
        assert restored == secrets[0]
        combined.append(
            {
                "holders": list(chosen),
                "lagrange_at_zero": integers(shamir.lagrange_at_zero(chosen)),
                "secret": restored.hex(),
            }
        )
    return {"shares": [shamir.encode_shares(share).hex() for share in shares], "combine": combined}


def sealing_and_confirming() -> Vector:
    """What travels between two users under a key of their own."""
    plain, context = named_bytes("two shares", 72), named_bytes("directory digest", 32)
    statement = named_bytes("statement", 32)
    cases = []
    for agreed, round_number, sender, receiver in (
        (named_bytes("agreed", 32), 1, 0, 1),
        (named_bytes("agreed", 32), 1, 1, 0),
        (named_bytes("agreed with run keys", 64), 2**63 - 1, 65535, 258),
    ):
        key = sealing.sealing_key(AgreedSecret(agreed), context, sender, receiver)
        confirm_key = sealing.confirm_key(AgreedSecret(agreed), context, sender, receiver)
        cases.append(
            {
                "agreed": agreed.hex(),
                "context": context.hex(),
                "round_number": str(round_number),
                "sender": sender,
                "receiver": receiver,
                "sealing_key": key.reveal().hex(),
                "plain": plain.hex(),
                "sealed": sealing.seal(key, plain, round_number, sender, receiver).hex(),
                "confirm_key": confirm_key.reveal().hex(),
                "statement": statement.hex(),
                "tag": sealing.confirmation(confirm_key, statement, CONFIRM_TAG_SIZE).hex(),
            }
        )
    return {
        "about": "Sealing a pair of shares, and the tag of a confirmation. The third case has the agreed secret of an "
        "authenticated round. `round_number` is decimal.",
        "cases": cases,
    }


def seeds_and_commitments() -> Vector:
    """What is derived from a user's or a pair's secrets."""
    params = RoundParameters.create(clients=5, dim=30)
    agreed, context = named_bytes("agreed by mask keys", 32), named_bytes("members context", 32)
    private_seed, nonce = named_bytes("private seed", 32), named_bytes("nonce", 16)
    keys = [public_key(PrivateKey(named_bytes(name, 32))) for name in ("sealing private key", "mask private key")]
    mask_seed, pattern_seed = pair_seeds(AgreedSecret(agreed), context, 4, 1)
    return {
        "about": "The seeds of pairs and users, and the commitments to nonce and private seed.",
        "pair": {
            "agreed": agreed.hex(),
            "context": context.hex(),
            "users": [4, 1],
            "mask_seed": mask_seed.reveal().hex(),
            "pattern_seed": pattern_seed.reveal().hex(),
        },
        "private_mask": {
            "private_seed": private_seed.hex(),
            "context": context.hex(),
            "user": 4,
            "mask_seed": private_mask_seed(PrivateSeed(private_seed), context, 4).reveal().hex(),
        },
        "nonce_commitment": {
            "sealing_key": keys[0].hex(),
            "mask_key": keys[1].hex(),
            "nonce": nonce.hex(),
            "commitment": nonce_commitment(keys[0], keys[1], nonce).hex(),
        },
        "seed_commitment": {
            "parameters_digest": params.digest.hex(),
            "user": 4,
            "private_seed": private_seed.hex(),
            "commitment": seed_commitment(params, 4, PrivateSeed(private_seed)).hex(),
        },
    }


def mask_stream() -> Vector:
    """Key streams read as words."""
    key = named_bytes("mask seed", 32)
    cases = [(bits, key, 40, "") for bits in WORD_BITS]
    cases.append((32, REJECTED_WORD_KEY, 16, "the fifth word of the key stream is not below 2^32 − 5 and is skipped"))
    result = []
    for bits, seed, count, about in cases:
        word = Word.of(bits)
        words = MaskStream(Secret(seed), word).words(count, Scratch(word, count))
        note = {"about": about} if about else {}
        result.append(
            {**note, "bits": bits, "seed": seed.hex(), "words": integers(word.reduce(words.astype(word.accumulator)))}
        )
    return {"about": "Mask streams: the first words for each word size.", "cases": result}


def roster() -> Vector:
    """Enrolment of users, and the digest that parameters are bound to."""
    run = "digits, run 7 – été"
    identities = [named_bytes(f"identity {user}", 32) for user in range(3)]
    run_secrets = [named_bytes(f"run secret {user}", 32) for user in range(3)]
    entries = [enrol(IdentityKey(i), run, RunSecret(s)) for i, s in zip(identities, run_secrets, strict=True)]
    return {
        "about": "A roster: Ed25519 identities that sign run keys, draw keys and the tips of chains of nonces.",
        "run": run,
        "users": [
            {
                "identity_private": identity.hex(),
                "run_secret": run_secret.hex(),
                "signed": digest("enrolment", run.encode(), *entry.public[1:]).hex(),
                **entry.as_json(),
            }
            for identity, run_secret, entry in zip(identities, run_secrets, entries, strict=True)
        ],
        "digest": Roster(run, tuple(entries)).digest.hex(),
    }
