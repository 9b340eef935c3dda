"""Contents that must be refused: lengths, words, shares, survivors, confirmations."""

from __future__ import annotations

import msgspec
import numpy as np

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.crypto.secrets import AgreedSecret, Secret
from sparsesecagg.protocol.messages import (
    Confirm,
    KeyDirectory,
    ShareDelivery,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    encode,
    encode_users,
)
from vectors.forging import MALFORMED, Case, Rounds, flip, operation
from vectors.form import named_bytes


def wrong_nonce(rounds: Rounds) -> list[Case]:
    """Nonces that do not fit their commitments, seen by server and user."""
    nonces = rounds.got("round_committee", "UPLOAD", 1, ShareDelivery).nonces
    swapped = nonces[16:32] + nonces[:16] + nonces[32:]
    return [
        rounds.to_server(
            "round_committee", "SHARE_KEYS", 1, "InvalidKey", "another nonce, to the server", nonce=bytes(16)
        ),
        rounds.to_client("round_committee", "UPLOAD", 1, "InvalidKey", "a bit flipped", nonces=flip(nonces, 40)),
        rounds.to_client("round_committee", "UPLOAD", 1, "InvalidKey", "two nonces swapped", nonces=swapped),
    ]


def wrong_length(rounds: Rounds) -> list[Case]:
    """Fields that are too short, too long, or there at all."""
    name = "round_committee"
    directory = rounds.got(name, "SHARE_KEYS", 1, KeyDirectory)
    delivery = rounds.got(name, "UPLOAD", 1, ShareDelivery)
    shares = rounds.sent(name, "SHARE_KEYS", 1, ShareKeys).shares
    words = bytes(rounds.sent(name, "UPLOAD", 1, Upload).words)
    released = rounds.sent(name, "UNMASK", 1, Unmask).shares
    return [
        rounds.to_client(name, "SHARE_KEYS", 1, MALFORMED, "an entry too few", entries=directory.entries[:-96]),
        rounds.to_client(name, "SHARE_KEYS", 1, MALFORMED, "a longer set of users", users=directory.users + b"\0"),
        rounds.to_server(name, "SHARE_KEYS", 1, MALFORMED, "a byte of the shares too few", shares=shares[:-1]),
        rounds.to_server(name, "SHARE_KEYS", 1, MALFORMED, "a share for oneself", shares=shares + bytes(88)),
        rounds.to_client(name, "UPLOAD", 1, MALFORMED, "a nonce too many", nonces=delivery.nonces + bytes(16)),
        rounds.to_client(name, "UPLOAD", 1, MALFORMED, "a share too few", shares=delivery.shares[:-88]),
        rounds.to_server(name, "UPLOAD", 1, MALFORMED, "a word too few", words=memoryview(words[:-2])),
        rounds.to_server(name, "UPLOAD", 1, MALFORMED, "locations with a public pattern", locations=b"\0"),
        rounds.to_server(name, "UNMASK", 1, MALFORMED, "a share too few at UNMASK", shares=released[:-36]),
        operation("unpack_words", MALFORMED, "three words of 12 bits", bits=12, count=3, bytes=bytes(6)),
        operation("unpack_words", MALFORMED, "two words of 24 bits", bits=24, count=2, bytes=bytes(8)),
    ]


def padding() -> list[Case]:
    """Bits beyond the end."""
    return [
        operation("unpack_words", MALFORMED, "one word of 12 bits", bits=12, count=1, bytes=b"\xff\x1f"),
        operation("unpack_words", MALFORMED, "three words of 12 bits", bits=12, count=3, bytes=bytes(4) + b"\x80"),
        operation("decode_users", MALFORMED, "a sixth user among five", clients=5, bytes=b"\x3f"),
        operation("decode_locations", MALFORMED, "a bitmap of 30", dim=30, bytes=bytes.fromhex("0000000040")),
        operation(
            "decode_locations",
            MALFORMED,
            "low bits of gaps",
            dim=10_000,
            bytes=bytes.fromhex("010b03000000010000004305f09be202"),
        ),
    ]


def big_words(rounds: Rounds) -> list[Case]:
    """Words of 32 bits that are not below 2^32 − 5."""
    words = bytes(rounds.sent("round_full", "UPLOAD", 1, Upload).words)
    forged = memoryview(b"\xff\xff\xff\xff" + words[4:])
    return [
        operation("unpack_words", MALFORMED, "the modulus", bits=32, count=1, bytes=b"\xfb\xff\xff\xff"),
        operation("unpack_words", MALFORMED, "2^32 − 1", bits=32, count=2, bytes=bytes(4) + b"\xff\xff\xff\xff"),
        rounds.to_server("round_full", "UPLOAD", 1, MALFORMED, "2^32 − 1 in an upload", words=forged),
    ]


def bad_locations(rounds: Rounds) -> list[Case]:
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
    cases.append(rounds.to_server("round_pairwise", "UPLOAD", 1, MALFORMED, "none in an upload", locations=b""))
    return cases


def bad_share_index(rounds: Rounds) -> list[Case]:
    """Shares at UNMASK of owners that are no members, no neighbours, nobody."""
    dropouts, sparse = "round_committee_dropouts", "round_full_neighbours"
    sent = rounds.sent(dropouts, "UNMASK", 0, Unmask)
    stranger = {"owners": bytes([sent.owners[0] | 1 << 6]), "shares": sent.shares + bytes(36)}
    around = next(row["neighbours"] for row in rounds.contexts(sparse)["neighbours"] if row["user"] == 0)
    far = next(user for user in rounds.contexts(sparse)["members"] if user not in (0, *around))
    others = rounds.sent(sparse, "UNMASK", 0, Unmask)
    distant = {"owners": bytes([others.owners[0] | 1 << far]), "shares": others.shares + bytes(36)}
    nobody = rounds.sent("round_full", "UNMASK", 0, Unmask)
    beyond = {"owners": bytes([nobody.owners[0] | 1 << 5]), "shares": nobody.shares + bytes(36)}
    return [
        rounds.to_server(dropouts, "UNMASK", 0, "InvalidShare", "of one who never shared its keys", **stranger),
        rounds.to_server(sparse, "UNMASK", 0, "InvalidShare", "of a member that is no neighbour", **distant),
        rounds.to_server("round_full", "UNMASK", 0, MALFORMED, "of a user beyond the cohort", **beyond),
    ]


def bad_share(rounds: Rounds) -> list[Case]:
    """Elements outside the field, and elements of different polynomials."""
    name = "round_full"
    place = rounds.find(name, "UNMASK", sender=3)
    message = rounds.sent(name, "UNMASK", 3, Unmask)
    outside = (2**31 - 1).to_bytes(4, "little") + message.shares[4:]
    false = [
        encode(msgspec.structs.replace(message, shares=flip(message.shares, offset))) for offset in (0, 4 * 36 + 5)
    ]
    holders = np.arange(3)
    one, other = (
        shamir.split([named_bytes("a secret", 32)], holders, 2, Secret(named_bytes(seed, 32))) for seed in ("1", "2")
    )
    mixed = [shamir.encode_shares(one[0]).hex(), shamir.encode_shares(other[1]).hex()]
    return [
        rounds.to_server(name, "UNMASK", 3, "InvalidShare", "an element of 2^31 − 1", shares=outside),
        rounds.closing(name, place, "InvalidShare", "a false share of a survivor's private seed", [false[0]]),
        rounds.closing(name, place, "InvalidShare", "a false share of a dropped user's mask key", [false[1]]),
        operation("combine_shares", "InvalidShare", "shares of two sharings", holders=[0, 1], shares=mixed),
    ]


def bad_seal(rounds: Rounds) -> list[Case]:
    """Ciphertexts opened by somebody else, elsewhere, or after a change."""
    key = sealing.sealing_key(AgreedSecret(named_bytes("agreed", 32)), named_bytes("directory digest", 32), 0, 1)
    sealed = sealing.seal(key, named_bytes("two shares", 72), 1, 0, 1)
    cases = [
        operation(
            "unseal",
            "InvalidShare",
            about,
            sealing_key=key.reveal(),
            round_number=str(number),
            sender=sender,
            receiver=receiver,
            sealed=data,
        )
        for about, number, sender, receiver, data in (
            ("another round", 2, 0, 1, sealed),
            ("another sender", 1, 2, 1, sealed),
            ("sent back to its sender", 1, 1, 0, sealed),
            ("a bit flipped", 1, 0, 1, flip(sealed, 5)),
            ("a bit of the tag flipped", 1, 0, 1, flip(sealed, 87)),
            ("cut short", 1, 0, 1, sealed[:-1]),
        )
    ]
    shares = rounds.got("round_authenticated", "UPLOAD", 2, ShareDelivery).shares
    about = "in an authenticated round: the sender's keys are not proven genuine"
    cases.append(
        rounds.to_client("round_authenticated", "UPLOAD", 2, "PolicyViolation", about, shares=flip(shares, 100))
    )
    return cases


def refused_survivors(rounds: Rounds) -> list[Case]:
    """Too few users, strangers among them, oneself not among them, or a block that would show too much."""
    name, refused = "round_committee", "PolicyViolation"
    directory = rounds.got(name, "SHARE_KEYS", 1, KeyDirectory)
    delivery = rounds.got(name, "UPLOAD", 1, ShareDelivery)
    committee = next(members for members in rounds.contexts(name)["committees"] if 1 not in members)
    thin = {"survivors": _users([user for user in range(6) if user not in committee[:2]], 6)}
    few = {"users": _users([0, 1, 2], 6), "entries": directory.entries[: 3 * 96]}
    members = {"users": _users([0, 1, 2], 6), "nonces": delivery.nonces[: 3 * 16]}
    without = {"users": _users([0, 2, 3, 4, 5], 6), "nonces": delivery.nonces[:16] + delivery.nonces[32:]}
    return [
        rounds.to_client(name, "SHARE_KEYS", 1, refused, "three of six in the directory", **few),
        rounds.to_client(name, "UPLOAD", 1, refused, "three of six shared their keys", **members),
        rounds.to_client(name, "UPLOAD", 1, refused, "this user is not among the members", **without),
        rounds.to_client(name, "UNMASK", 1, refused, "three survivors of six", survivors=_users([0, 1, 2], 6)),
        rounds.to_client(name, "UNMASK", 1, refused, "this user counts as dropped", survivors=_users([0, 2, 3, 4], 6)),
        rounds.to_client(name, "UNMASK", 1, refused, "a block with one survivor", **thin),
        rounds.to_client(
            "round_committee_dropouts",
            "UNMASK",
            0,
            refused,
            "a survivor that never shared its keys",
            survivors=_users([0, 2, 4, 5, 6, 7], 8),
        ),
    ]


def _users(users: list[int], clients: int) -> bytes:
    return encode_users(np.array(users), clients)


def bad_confirmation(rounds: Rounds) -> list[Case]:
    """Tags that are false, of the wrong users, or of the wrong number."""
    name, user = "round_authenticated", 2
    request = rounds.got(name, "UNMASK", user, UnmaskRequest)
    tags = rounds.sent(name, "CONFIRM", user, Confirm).tags
    confirmers = request.confirmers[0]
    fewer = {"confirmers": bytes([confirmers & ~1]), "tags": request.tags[16:]}
    oneself = {"confirmers": bytes([confirmers | 1 << user]), "tags": request.tags + bytes(16)}
    dropped = {"confirmers": bytes([confirmers | 1 << 1]), "tags": request.tags + bytes(16)}
    everybody = {"survivors": b"\x7f"}
    refused = "PolicyViolation"
    return [
        rounds.to_client(name, "UNMASK", user, refused, "a false tag, so too few agree", tags=flip(request.tags, 3)),
        rounds.to_client(name, "UNMASK", user, refused, "a confirmation too few", **fewer),
        rounds.to_client(name, "UNMASK", user, refused, "other survivors than were confirmed", **everybody),
        rounds.to_client(name, "UNMASK", user, MALFORMED, "this user among the confirmers", **oneself),
        rounds.to_client(name, "UNMASK", user, MALFORMED, "a confirmer that did not survive", **dropped),
        rounds.to_client(name, "UNMASK", user, MALFORMED, "a tag cut short", tags=request.tags[:-1]),
        rounds.to_server(name, "CONFIRM", user, MALFORMED, "a tag too many, to the server", tags=tags + bytes(16)),
    ]


def too_few(rounds: Rounds) -> list[Case]:
    """The server ends a stage early."""
    error = "ThresholdNotMet"
    sparse = rounds.find("round_full_neighbours", "UNMASK", sender=0)
    return [
        rounds.closing("round_full", 2, error, "two of five at ADVERTISE_KEYS, three are needed"),
        rounds.closing("round_full", rounds.find("round_full", "UPLOAD", sender=2), error, "two of five at UPLOAD"),
        rounds.closing("round_full", rounds.find("round_full", "UNMASK", sender=3), error, "two of five at UNMASK"),
        rounds.closing(
            "round_full_neighbours", sparse + 3, error, "three at UNMASK, but not three neighbours of everybody"
        ),
    ]
