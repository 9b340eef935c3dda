"""Contents that must be refused: lengths, words, locations, shares; and stages that too few have finished."""

from __future__ import annotations

import msgspec
import numpy as np

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.secrets import RoundSecrets, Secret
from sparsesecagg.protocol.messages import EpochKeys, ShareKeys, Unmask, Upload, encode
from vectors.forging import MALFORMED, Case, Runs, flip, operation
from vectors.form import named_bytes


def wrong_length(runs: Runs) -> list[Case]:
    """Fields that are too short, too long, or there at all."""
    name = "run_weights"  # Two groups of four.
    epoch = runs.got(name, "ADVERTISE_KEYS", 1, EpochKeys)
    shares = runs.sent(name, "SHARE_KEYS", 1, ShareKeys).shares
    upload = runs.sent(name, "UPLOAD", 1, Upload)
    words = bytes(upload.words)
    released = runs.sent(name, "UNMASK", 1, Unmask).shares
    return [
        runs.to_client(name, "ADVERTISE_KEYS", 1, MALFORMED, "a sealing key too few", keys=epoch.keys[:-32]),
        runs.to_client(name, "ADVERTISE_KEYS", 1, MALFORMED, "a longer set of users", present=epoch.present + b"\0"),
        runs.to_server(name, "SHARE_KEYS", 1, MALFORMED, "a byte of the shares too few", shares=shares[:-1]),
        runs.to_server(name, "SHARE_KEYS", 1, MALFORMED, "a share for oneself", shares=shares + bytes(48)),
        runs.to_server(name, "SHARE_KEYS", 1, MALFORMED, "shares with tags of 16 bytes", shares=bytes(56 * 3)),
        runs.to_server(name, "UPLOAD", 1, MALFORMED, "a word too few", words=memoryview(words[:-1])),
        runs.to_server(name, "UPLOAD", 1, MALFORMED, "locations with a public pattern", locations=b"\0"),
        runs.to_server(name, "UPLOAD", 1, MALFORMED, "a tag too few", tags=upload.tags[8:]),
        runs.to_server(name, "UPLOAD", 1, MALFORMED, "a tag of nine bytes", tags=upload.tags + b"\0"),
        runs.to_server(name, "UNMASK", 1, MALFORMED, "a share too few at UNMASK", shares=released[:-20]),
        runs.to_server(name, "UNMASK", 1, MALFORMED, "a longer set of survivors at UNMASK", survivors=bytes(2)),
        operation("unpack_words", MALFORMED, "three words of 12 bits", bits=12, count=3, bytes=bytes(6)),
        operation("unpack_words", MALFORMED, "two words of 24 bits", bits=24, count=2, bytes=bytes(8)),
        operation("unpack_words", MALFORMED, "five words of 6 bits", bits=6, count=5, bytes=bytes(5)),
    ]


def padding() -> list[Case]:
    """Bits beyond the end."""
    return [
        operation("unpack_words", MALFORMED, "one word of 12 bits", bits=12, count=1, bytes=b"\xff\x1f"),
        operation("unpack_words", MALFORMED, "one word of 5 bits", bits=5, count=1, bytes=b"\x20"),
        operation("unpack_words", MALFORMED, "three words of 31 bits", bits=31, count=3, bytes=bytes(11) + b"\x20"),
        operation("decode_users", MALFORMED, "a sixth user among five", count=5, bytes=b"\x3f"),
        operation("decode_locations", MALFORMED, "a bitmap of 30", dim=30, bytes=bytes.fromhex("0000000040")),
        operation(
            "decode_locations",
            MALFORMED,
            "low bits of gaps",
            dim=10_000,
            bytes=bytes.fromhex("010b03000000010000004305f09be202"),
        ),
    ]


def big_words(runs: Runs) -> list[Case]:
    """Words of 32 bits that are not below 2^32 − 5."""
    words = bytes(runs.sent("run_full", "UPLOAD", 1, Upload).words)
    forged = memoryview(b"\xff\xff\xff\xff" + words[4:])
    return [
        operation("unpack_words", MALFORMED, "the modulus", bits=32, count=1, bytes=b"\xfb\xff\xff\xff"),
        operation("unpack_words", MALFORMED, "2^32 − 1", bits=32, count=2, bytes=bytes(4) + b"\xff\xff\xff\xff"),
        runs.to_server("run_full", "UPLOAD", 1, MALFORMED, "2^32 − 1 in an upload", words=forged),
    ]


def bad_locations(runs: Runs) -> list[Case]:
    """Codes that nobody writes."""
    gaps = {
        "nothing": "",
        "an unknown code": "020b03000000010000004305f09be200",
        "a bitmap too short": "00" + 1249 * "00",
        "a header cut short": "010b030000000100",
        "a byte less": "010b03000000010000004305f09be2",
        "a byte more": "010b03000000010000004305f09be20000",
        "k above 32": "012103000000010000004305f09be200" + 7 * "00",
        "fewer gaps than were announced": "010b03000000010000000105f09be200",
        "an empty byte behind the last gap": "010b0300000002000000430005f09be200",
        "a location beyond the model": "010b03000000010000008305f09be200",
    }
    cases = [
        operation("decode_locations", MALFORMED, about, dim=10_000, bytes=bytes.fromhex(code))
        for about, code in gaps.items()
    ]
    cases.append(runs.to_server("run_pairwise", "UPLOAD", 1, MALFORMED, "none in an upload", locations=b""))
    return cases


def bad_share(runs: Runs) -> list[Case]:
    """Shares that the sender does not hold, elements outside the field, and elements of different polynomials."""
    error, absent, sparse = "InvalidShare", "run_sliced", "run_full_neighbours"
    sent = runs.sent(absent, "UNMASK", 0, Unmask)
    near = runs.sent(sparse, "UNMASK", 0, Unmask)
    far = next(each for each in range(7) if not near.owners[0] >> each & 1 and each != 2)
    full = runs.sent("run_full", "UNMASK", 0, Unmask)
    outside = (2**31 - 1).to_bytes(4, "little") + full.shares[4:]
    holders = np.arange(3)
    one, other = (
        shamir.split([named_bytes("a secret", 16)], holders, 2, Secret(named_bytes(seed, 32))) for seed in ("1", "2")
    )
    mixed = [shamir.encode_shares(one[0]).hex(), shamir.encode_shares(other[1]).hex()]
    more = sent.shares + bytes(20)
    return [
        runs.to_server(absent, "UNMASK", 0, error, "of one who sent no package", owners=b"\xff", shares=more),
        runs.to_server(
            sparse,
            "UNMASK",
            0,
            error,
            "of a member that is no neighbour",
            owners=bytes([near.owners[0] | 1 << far]),
            shares=near.shares + bytes(20),
        ),
        runs.to_server(
            "run_full",
            "UNMASK",
            0,
            MALFORMED,
            "of a user beyond the cohort",
            owners=bytes([full.owners[0] | 1 << 5]),
            shares=full.shares + bytes(20),
        ),
        runs.to_server("run_full", "UNMASK", 0, error, "an element of 2^31 − 1", shares=outside),
        operation("combine_shares", error, "shares of two sharings", holders=[0, 1], shares=mixed),
    ]


def bad_seal() -> list[Case]:
    """Ciphertexts opened by somebody else, elsewhere, or after a change."""
    secret = RoundSecrets(named_bytes("round secret", 32))
    another = named_bytes("secret of another round", 32)
    sealed = sealing.seal(sealing.ciphers(secret)[0], 0, 1, named_bytes("two shares", 40))
    return [
        operation("unseal", "InvalidShare", about, round_secret=key, sender=sender, receiver=receiver, sealed=data)
        for about, key, sender, receiver, data in (
            ("another round", another, 0, 1, sealed),
            ("another sender", secret.reveal(), 2, 1, sealed),
            ("sent back to its sender", secret.reveal(), 1, 0, sealed),
            ("a bit flipped", secret.reveal(), 0, 1, flip(sealed, 5)),
            ("a bit of the tag flipped", secret.reveal(), 0, 1, flip(sealed, 47)),
            ("cut short", secret.reveal(), 0, 1, sealed[:-1]),
        )
    ]


def too_few(runs: Runs) -> list[Case]:
    """The server ends a stage early, or with shares that restore nothing."""
    name, error, opened = "run_full", "ThresholdNotMet", "TooLittleOpened"  # Four of five are needed.
    advertised, uploaded = runs.find(name, "ADVERTISE_KEYS", sender=3), runs.find(name, "UPLOAD", sender=3)
    last = runs.find(name, "UNMASK", sender=3)
    message = runs.sent(name, "UNMASK", 3, Unmask)
    false = [
        encode(msgspec.structs.replace(message, shares=flip(message.shares, offset))) for offset in (0, 4 * 20 + 5)
    ]
    fewer = encode(msgspec.structs.replace(message, survivors=b"\x0e"))
    return [
        runs.closing(name, advertised, error, "three of five at ADVERTISE_KEYS, four are needed"),
        runs.closing(name, uploaded, error, "three of five at UPLOAD"),
        runs.closing(name, last, error, "three of five at UNMASK"),
        runs.closing(name, last, opened, "a false share of a survivor's private seed and none to spare", [false[0]]),
        runs.closing(name, last, opened, "a false share of a dropout's mask secret and none to spare", [false[1]]),
        runs.closing(name, last, opened, "one says that its share is of the mask secret", [fewer]),
    ]
