"""Vectors of the cryptographic building blocks: each a list of cases, input beside output."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.decoding import restore
from sparsesecagg.crypto.identity import IdentityKey, Roster, RunSecret, enrol
from sparsesecagg.crypto.kdf import derive, digest, expand, one_step
from sparsesecagg.crypto.keys import KeyAgreement, public_key
from sparsesecagg.crypto.secrets import AgreedSecret, PairRatchets, PrivateKey, Secret, SharedSecret
from sparsesecagg.crypto.stream import MaskStream, Scratch
from sparsesecagg.field import WORD_BITS, Word
from sparsesecagg.patterns.masks import Pair, mask_seeds, pattern_seeds, private_mask_seeds
from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.epoch import Epoch, mask_private, seed_commitment
from sparsesecagg.protocol.messages import EpochKeys
from vectors.form import Vector, integers, named_bytes

REJECTED_WORD_KEY = (37419196).to_bytes(32, "little")
"""Found by counting up from 1: the fifteenth word of its mask stream is not below 2^32 − 5."""

REJECTED_ELEMENT_SEED = (1137460).to_bytes(32, "little")
"""Found by counting up from 1: one of its first 140 draws of 31 bits is 2^31 − 1, which is no field element."""

_ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
_BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")


def digest_and_derive() -> Vector:
    """Hashing and key derivation."""
    secret, context = named_bytes("secret", 32), named_bytes("context", 32)
    digests: list[tuple[str, list[bytes]]] = [
        ("message", []),
        ("parameters", [b""]),
        ("header", [b"ab", b"c"]),
        ("header", [b"a", b"bc"]),
        ("epoch", [named_bytes("part", 300)]),
    ]
    names = bytes.fromhex("0100000002000000")
    derived = [
        (secret, "groups", b"", b"", 32),
        (secret, "epoch", context, (16).to_bytes(8, "little"), 32),
        (secret, "pair", context, names, 32),
        (secret + context, "pair", context, names, 32),
        (secret, "noise", context, names, 64),
    ]
    in_one_step = [
        (secret, "pair mask", context, names),
        (secret, "pair pattern", context, names),
        (secret[:16], "private mask", context, names[:4]),
    ]
    return {
        "about": "digest(label, parts…), derive(secret, label, context, names, length), one_step(secret, label, "
        "context, names) and expand(key, label).",
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
        "one_step": [
            {
                "secret": key.hex(),
                "label": label,
                "context": salt.hex(),
                "names": who.hex(),
                "derived": one_step([key], label, salt, [who])[0].hex(),
            }
            for key, label, salt, who in in_one_step
        ],
        "expand": [{"key": secret.hex(), "label": "round", "expanded": expand(secret, "round").hex()}],
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
    secrets = [bytes(16), b"\xff" * 16, named_bytes("a secret", 16), named_bytes("another secret", 16)]
    cases = [
        ("two secrets, 2 of 3", secrets[2:], [0, 1, 2], 2, named_bytes("Shamir 2 of 3", 32)),
        ("all zeros and all ones, 3 of 5, holders far apart", secrets[:2], [0, 4, 7, 300, 65535], 3, bytes(32)),
        ("a draw of 2^31 − 1 is skipped", secrets[2:], list(range(15)), 15, REJECTED_ELEMENT_SEED),
    ]
    return {
        "about": "Shamir's secret sharing over GF(2^31 − 1), five limbs of 29 bits. `shares`: per holder the shares "
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


def false_shares() -> Vector:
    """Shares of which some are false, corrected."""
    cases = []
    for about, count, threshold, false in (
        ("nobody lies", 6, 4, {}),
        ("one of six, one may", 6, 4, {0: [1, 0, 0, 0, 0]}),
        ("two of nine, each in other limbs", 9, 5, {3: [0, 7, 0, 0, 0], 8: [1, 0, 0, 0, 2**30]}),
        ("two of nine that add up to nothing in the secret", 9, 5, {0: [9, 9, 9, 9, 9], 1: [5, 4, 3, 2, 1]}),
    ):
        holders = [3 * place for place in range(count)]
        secret = named_bytes(f"a secret: {about}", 16)
        shares = shamir.split([secret], np.array(holders, np.int64), threshold, Secret(named_bytes(about, 32)))[:, 0]
        for place, added in false.items():
            shares[place] = (shares[place] + np.array(added, np.uint64)) % np.uint64(2**31 - 1)
        restored = restore(shares[None], np.array(holders, np.int64), threshold, lambda _, found, s=secret: found == s)  # type: ignore[misc]
        named = [holder for holder, lies in zip(holders, restored.false[0], strict=True) if lies]
        assert restored.secrets == [secret]
        assert named == [holders[place] for place in false]
        cases.append(
            {
                "about": about,
                "holders": holders,
                "threshold": threshold,
                "shares": [shamir.encode_shares(share).hex() for share in shares],
                "secret": secret.hex(),
                "false": named,
            }
        )
    return {"about": "Shares of which some are false: the secret, and whose shares are false.", "cases": cases}


def ratchets() -> Vector:
    """What a pair has in each round, and what it does with it."""
    plain, context = named_bytes("two shares", 40), named_bytes("epoch digest", 32)
    statement = named_bytes("header digest", 32)
    cases = []
    for agreed, rounds, sender, receiver in (
        (named_bytes("agreed", 32), 0, 0, 1),
        (named_bytes("agreed", 32), 0, 1, 0),
        (named_bytes("agreed with run keys", 64), 3, 65535, 258),
    ):
        first = sealing.pair_ratchet(agreed, context, sender, receiver)
        ratchet = PairRatchets(first)
        for _ in range(rounds):
            ratchet, _ = sealing.step(ratchet)
        secrets = sealing.step(ratchet)[1]
        [cipher] = sealing.ciphers(secrets)
        cases.append(
            {
                "agreed": agreed.hex(),
                "epoch_digest": context.hex(),
                "sender": sender,
                "receiver": receiver,
                "first_ratchet": first.hex(),
                "rounds_later": rounds,
                "ratchet": ratchet.reveal().hex(),
                "round_secret": secrets.reveal().hex(),
                "plain": plain.hex(),
                "sealed": sealing.seal(cipher, sender, receiver, plain).hex(),
                "header_digest": statement.hex(),
                "tag": sealing.tag(cipher, sender, receiver, statement).hex(),
            }
        )
    return {
        "about": "A pair's ratchet and its secret of a round; a sealed pair of shares, and a tag. The third case has "
        "the agreed secret of an authenticated run, three rounds after the first.",
        "cases": cases,
    }


def packages() -> Vector:
    """What is derived from a user's or a pair's secrets of a round."""
    params = Parameters.create(5, 30, session=named_bytes("session", 32))
    keys = EpochKeys(1, bytes(8), 1, b"\x1f", named_bytes("sealing keys", 5 * 32))
    epoch = Epoch(params, keys, bytes(32), params.draw(bytes(32)).of(0))
    agreed, context = named_bytes("agreed by mask keys", 32), named_bytes("header digest", 32)
    pairs = [Pair(4, 1, AgreedSecret(agreed))]
    [mask_seed], [pattern_seed] = mask_seeds(pairs, context), pattern_seeds(pairs, context)
    made = []
    for number, user in ((1, 4), (2**63 - 1, 0)):
        mask_secret, private_seed = named_bytes(f"mask secret {user}", 16), named_bytes(f"private seed {user}", 16)
        private = mask_private(epoch, number, user, SharedSecret(mask_secret))
        made.append(
            {
                "run": params.run.hex(),
                "round": str(number),
                "user": user,
                "mask_secret": mask_secret.hex(),
                "private_seed": private_seed.hex(),
                "mask_private": private.reveal().hex(),
                "mask_key": public_key(private).hex(),
                "commitment": seed_commitment(epoch, number, user, SharedSecret(private_seed)).hex(),
            }
        )
    seed = SharedSecret(named_bytes("private seed 4", 16))
    return {
        "about": "Mask keys and commitments of key packages, and the seeds of masks. `round` is decimal.",
        "packages": made,
        "pair_masks": [
            {
                "agreed": agreed.hex(),
                "header_digest": context.hex(),
                "users": [4, 1],
                "mask_seed": mask_seed.reveal().hex(),
                "pattern_seed": pattern_seed.reveal().hex(),
            }
        ],
        "private_masks": [
            {
                "private_seed": seed.reveal().hex(),
                "header_digest": context.hex(),
                "user": 4,
                "mask_seed": private_mask_seeds({4: seed}, context)[0].reveal().hex(),
            }
        ],
    }


def mask_stream() -> Vector:
    """Mask streams."""
    key = named_bytes("mask seed", 32)
    cases = [(bits, key, 12, "") for bits in WORD_BITS]
    cases.append((32, REJECTED_WORD_KEY, 16, "the fifteenth word of the stream is not below 2^32 − 5 and is skipped"))
    result = []
    for bits, seed, count, about in cases:
        word = Word.of(bits)
        words = MaskStream(Secret(seed), word).words(count, Scratch(word, count))
        note = {"about": about} if about else {}
        result.append(
            {**note, "bits": bits, "seed": seed.hex(), "words": integers(word.reduce(words.astype(word.accumulator)))}
        )
    return {"about": "Mask streams: the first words for each word size.", "cases": result}


def make_roster() -> Vector:
    """Enrolment of users, the digest that parameters are bound to, and the seeds of epochs."""
    run = "digits, run 7 – été"
    identities = [named_bytes(f"identity {user}", 32) for user in range(5)]
    run_secrets = [named_bytes(f"run secret {user}", 32) for user in range(5)]
    entries = tuple(enrol(IdentityKey(i), run, RunSecret(s)) for i, s in zip(identities, run_secrets, strict=True))
    unseeded = [
        Roster(run, entries),
        Roster(run, entries, group_size=3, colluding=0.25),
        Roster(run, entries, beacon="drand, round 4242 – été"),
    ]
    seeded = [each.with_seed(named_bytes("seed of a roster", 32)) for each in unseeded[:2]]
    value = named_bytes("value of the beacon", 48)
    return {
        "about": "A roster: Ed25519 identities sign run keys. `rosters`: the digest without and with a seed, and the "
        "seeds of some epochs; the last seed is made from a beacon's value.",
        "run": run,
        "users": [
            {
                "identity_private": identity.hex(),
                "run_secret": run_secret.hex(),
                "signed": digest("enrolment", run.encode(), entry.run_key).hex(),
                **entry.as_json(),
            }
            for identity, run_secret, entry in zip(identities, run_secrets, entries, strict=True)
        ],
        "rosters": [*map(_roster_case, seeded), {**_roster_case(unseeded[2].with_beacon(value)), "value": value.hex()}],
    }


def _roster_case(roster: Roster) -> Vector:
    return {
        "group_size": roster.group_size,
        "colluding": roster.colluding,
        "beacon": roster.beacon,
        "unseeded_digest": roster.unseeded_digest.hex(),
        "seed": (roster.seed or b"").hex(),
        "digest": roster.digest.hex(),
        "epoch_seeds": {str(number): roster.epoch_seed(number).hex() for number in (1, 2, 16)},
    }
