"""Identities and rosters: a run key belongs to one identity in one run, and every reader checks that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reference.x25519 import low_order_points, x25519
from sparsesecagg.crypto.identity import Identity, IdentityKey, Roster, RosterEntry, enrol
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import PrivateKey
from sparsesecagg.errors import InvalidInput, InvalidKey

RUN = "run of the tests"
IDENTITIES = [IdentityKey(bytes([number]) * 32) for number in range(1, 5)]
RUN_KEYS = [PrivateKey(bytes([number]) * 32) for number in range(101, 105)]
ENTRIES = tuple(enrol(identity, RUN, key) for identity, key in zip(IDENTITIES, RUN_KEYS, strict=True))


@pytest.fixture
def roster() -> Roster:
    return Roster(RUN, ENTRIES)


# Signatures


def test_a_roster_of_properly_signed_keys_is_accepted(roster: Roster) -> None:
    assert [entry.run_key for entry in roster.entries] == [public_key(key) for key in RUN_KEYS]


def test_an_entry_of_another_run_is_refused() -> None:
    """An old run key may be known by now."""
    with pytest.raises(InvalidKey, match="user 0"):
        Roster("another run", ENTRIES)


def test_a_run_key_put_in_by_somebody_else_is_refused() -> None:
    """The server can't take a user's place."""
    forged = replace(ENTRIES[2], run_key=public_key(PrivateKey(b"\x55" * 32)))
    with pytest.raises(InvalidKey, match="user 2"):
        Roster(RUN, (*ENTRIES[:2], forged, ENTRIES[3]))


def test_a_signature_of_another_identity_is_refused() -> None:
    swapped = replace(ENTRIES[0], signature=ENTRIES[1].signature)
    with pytest.raises(InvalidKey, match="user 0"):
        Roster(RUN, (swapped, *ENTRIES[1:]))


@pytest.mark.parametrize("place", [0, 31, 32, 63])
def test_a_changed_signature_is_refused(place: int) -> None:
    signature = bytearray(ENTRIES[1].signature)
    signature[place] ^= 1
    with pytest.raises(InvalidKey, match="user 1"):
        Roster(RUN, (ENTRIES[0], replace(ENTRIES[1], signature=bytes(signature)), *ENTRIES[2:]))


@pytest.mark.parametrize("part", ["identity", "run_key", "signature"])
@pytest.mark.parametrize("size", [0, 31, 65])
def test_parts_of_a_wrong_length_are_refused(part: str, size: int) -> None:
    with pytest.raises(InvalidKey):
        Roster(RUN, (replace(ENTRIES[0], **{part: bytes(size)}), *ENTRIES[1:]))


def test_a_key_that_occurs_twice_is_refused() -> None:
    """One person can't count as two, nor can two share a run key."""
    same_identity = enrol(IDENTITIES[0], RUN, PrivateKey(b"\xee" * 32))
    same_run_key = enrol(IdentityKey(b"\xdd" * 32), RUN, RUN_KEYS[0])
    for twice in (ENTRIES[0], same_identity, same_run_key):
        with pytest.raises(InvalidKey, match="twice"):
            Roster(RUN, (*ENTRIES, twice))


# What rounds are bound to


def test_the_digest_depends_on_the_run_and_on_every_key_and_place(roster: Roster) -> None:
    other_run = Roster("other", tuple(enrol(i, "other", k) for i, k in zip(IDENTITIES, RUN_KEYS, strict=True)))
    rosters = [
        roster,
        other_run,
        Roster(RUN, ENTRIES[::-1]),
        Roster(RUN, ENTRIES[:-1]),
        Roster(RUN, (enrol(IDENTITIES[0], RUN, PrivateKey(b"\xee" * 32)), *ENTRIES[1:])),
        Roster(RUN, (enrol(IdentityKey(b"\xdd" * 32), RUN, RUN_KEYS[0]), *ENTRIES[1:])),
    ]
    assert len({each.digest for each in rosters}) == len(rosters)
    assert roster.digest == Roster(RUN, ENTRIES).digest


def test_trusted_identities_are_compared_one_by_one(roster: Roster) -> None:
    trusted = [entry.identity for entry in ENTRIES]
    roster.require_identities(trusted)
    with pytest.raises(InvalidKey, match="user 0"):
        roster.require_identities(trusted[::-1])
    for others in (trusted[:-1], [*trusted, bytes(32)], []):
        with pytest.raises(InvalidKey, match=f"4 users, {len(others)} are trusted"):
            roster.require_identities(others)


# Files


def test_a_roster_survives_its_file(roster: Roster, tmp_path: Path) -> None:
    roster.save(tmp_path / "roster.json")
    assert Roster.load(tmp_path / "roster.json") == roster


def test_a_roster_file_holds_no_secret(roster: Roster, tmp_path: Path) -> None:
    roster.save(tmp_path / "roster.json")
    text = (tmp_path / "roster.json").read_text()
    assert not [key for key in [*IDENTITIES, *RUN_KEYS] if key.reveal().hex() in text]


def test_a_file_changed_on_disk_is_refused(roster: Roster, tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    roster.save(path)
    content = json.loads(path.read_text())
    content["users"][1]["run_key"] = public_key(PrivateKey(b"\x55" * 32)).hex()
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidKey, match="user 1"):
        Roster.load(path)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", "null", "\x00"),
        '{"run": "x"}',
        '{"users": []}',
        '{"run": "x", "users": 3}',
        '{"run": "x", "users": [{}]}',
        '{"run": "x", "users": [{"identity": "zz", "run_key": "", "signature": ""}]}',
    ],
)
def test_a_file_that_is_no_roster_is_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "rubbish.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"rubbish\.json") as caught:
        Roster.load(tmp_path / "rubbish.json")
    assert caught.value.option == "roster"


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.json", "bytes.json"):
        with pytest.raises(InvalidInput):
            Roster.load(tmp_path / name)


# Secrets of pairs


def test_two_users_of_a_run_agree_on_a_secret_of_their_own(roster: Roster) -> None:
    users = [Identity(number, key, roster) for number, key in enumerate(RUN_KEYS)]
    agreed = {(a, b): users[a].secret_with(b).reveal() for a in range(4) for b in range(4) if a != b}
    assert all(agreed[a, b] == agreed[b, a] for a, b in agreed)
    assert len(set(agreed.values())) == 6
    assert agreed[0, 1] == x25519(RUN_KEYS[0].reveal(), public_key(RUN_KEYS[1]))


def test_agreeing_happens_once_per_run(roster: Roster) -> None:
    identity = Identity(0, RUN_KEYS[0], roster)
    assert identity.secret_with(1) is identity.secret_with(1)


@pytest.mark.parametrize(("user", "key"), [(0, 1), (1, 0), (-1, 3), (4, 0)])
def test_an_identity_must_stand_in_the_roster_under_its_number(user: int, key: int, roster: Roster) -> None:
    with pytest.raises(InvalidInput) as caught:
        Identity(user, RUN_KEYS[key], roster)
    assert caught.value.option == "roster"


@pytest.mark.parametrize("point", low_order_points(), ids=bytes.hex)
def test_a_low_order_run_key_is_refused(point: bytes) -> None:
    """Even if its owner signed it: the secrets of all its pairs would be public."""
    signer = Ed25519PrivateKey.from_private_bytes(IDENTITIES[3].reveal())
    entry = RosterEntry(
        signer.public_key().public_bytes_raw(), point, signer.sign(digest("run key", RUN.encode(), point))
    )
    with pytest.raises(InvalidKey, match="low-order"):
        Roster(RUN, (*ENTRIES[:3], entry))


def test_an_identity_prints_no_key(roster: Roster) -> None:
    assert repr(Identity(2, RUN_KEYS[2], roster)) == f"Identity(user=2, run={RUN!r})"
