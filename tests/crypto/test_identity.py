"""Identities and rosters: the keys of a run belong to one identity in one run, and every reader checks that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from reference.x25519 import low_order_points, x25519
from sparsesecagg.crypto.chain import require_nonce
from sparsesecagg.crypto.identity import Identity, IdentityKey, Roster, RosterEntry, RunKeys, RunSecret, enrol
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import PrivateKey
from sparsesecagg.errors import InvalidInput, InvalidKey

RUN = "run of the tests"
IDENTITIES = [IdentityKey(bytes([number]) * 32) for number in range(1, 5)]
SECRETS = [RunSecret(bytes([number]) * 32) for number in range(101, 105)]
KEYS = [RunKeys(secret, RUN) for secret in SECRETS]
ENTRIES = tuple(enrol(identity, RUN, secret) for identity, secret in zip(IDENTITIES, SECRETS, strict=True))
FIELDS = ("run_key", "draw_key", "chain_tip")


def signed(identity: IdentityKey, entry: RosterEntry, field: str, value: bytes | None = None) -> RosterEntry:
    """Return an entry with one field changed (to the first user's, unless told) and signed properly by its owner."""
    changed = replace(entry, **{field: getattr(ENTRIES[0], field) if value is None else value})
    signer = Ed25519PrivateKey.from_private_bytes(identity.reveal())
    signature = signer.sign(digest("enrolment", RUN.encode(), *changed.public[1:]))
    return replace(changed, identity=signer.public_key().public_bytes_raw(), signature=signature)


@pytest.fixture
def roster() -> Roster:
    return Roster(RUN, ENTRIES)


# Signatures


def test_a_roster_of_properly_signed_keys_is_accepted(roster: Roster) -> None:
    assert [entry.public[1:] for entry in roster.entries] == [keys.public for keys in KEYS]


def test_an_entry_of_another_run_is_refused() -> None:
    """An old run key may be known by now."""
    with pytest.raises(InvalidKey, match="user 0"):
        Roster("another run", ENTRIES)


@pytest.mark.parametrize("field", FIELDS)
def test_a_key_or_tip_put_in_by_somebody_else_is_refused(field: str) -> None:
    """The server can't take a user's place, nor choose its nonces."""
    forged = replace(ENTRIES[2], **{field: public_key(PrivateKey(b"\x55" * 32))})
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


@pytest.mark.parametrize("part", ["identity", *FIELDS, "signature"])
@pytest.mark.parametrize("size", [0, 31, 65])
def test_parts_of_a_wrong_length_are_refused(part: str, size: int) -> None:
    with pytest.raises(InvalidKey):
        Roster(RUN, (replace(ENTRIES[0], **{part: bytes(size)}), *ENTRIES[1:]))


def test_a_key_that_occurs_twice_is_refused() -> None:
    """One person can't count as two, nor can two share a key or nonces."""
    fresh = enrol(IdentityKey(b"\xdd" * 32), RUN, RunSecret(b"\xee" * 32))
    same_identity = enrol(IDENTITIES[0], RUN, RunSecret(b"\xee" * 32))
    same_secret = enrol(IdentityKey(b"\xdd" * 32), RUN, SECRETS[0])
    copied = [signed(IdentityKey(b"\xdd" * 32), fresh, field) for field in FIELDS]
    Roster(RUN, (*ENTRIES, fresh))
    for twice in (ENTRIES[0], same_identity, same_secret, *copied):
        with pytest.raises(InvalidKey, match="twice"):
            Roster(RUN, (*ENTRIES, twice))


# What rounds are bound to


def test_the_digest_depends_on_the_run_and_on_every_key_and_place(roster: Roster) -> None:
    other_run = Roster("other", tuple(enrol(i, "other", s) for i, s in zip(IDENTITIES, SECRETS, strict=True)))
    rosters = [
        roster,
        other_run,
        Roster(RUN, ENTRIES[::-1]),
        Roster(RUN, ENTRIES[:-1]),
        Roster(RUN, (enrol(IdentityKey(b"\xdd" * 32), RUN, SECRETS[0]), *ENTRIES[1:])),
        *(Roster(RUN, (signed(IDENTITIES[0], ENTRIES[0], field, bytes(range(32))), *ENTRIES[1:])) for field in FIELDS),
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
    private = [*IDENTITIES, *SECRETS, *(key for keys in KEYS for key in (keys.run_key, keys.draw_key))]
    assert not [key for key in private if key.reveal().hex() in text]
    assert not [draw for keys in KEYS for draw in range(1, 17) if keys.chain.nonce(draw).hex() in text]


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
        '{"run": "x", "users": [{"identity": "", "run_key": "", "signature": ""}]}',
        '{"run": "x", "users": [{"identity": "zz", "run_key": "", "draw_key": "", "chain_tip": "", "signature": ""}]}',
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
    users = [Identity(number, secret, roster) for number, secret in enumerate(SECRETS)]
    agreed = {(a, b): users[a].secret_with(b).reveal() for a in range(4) for b in range(4) if a != b}
    assert all(agreed[a, b] == agreed[b, a] for a, b in agreed)
    assert len(set(agreed.values())) == 6
    assert agreed[0, 1] == x25519(KEYS[0].run_key.reveal(), ENTRIES[1].run_key)


def test_agreeing_happens_once_per_run(roster: Roster) -> None:
    identity = Identity(0, SECRETS[0], roster)
    assert identity.secret_with(1) is identity.secret_with(1)


@pytest.mark.parametrize(("user", "key"), [(0, 1), (1, 0), (-1, 3), (4, 0)])
def test_an_identity_must_stand_in_the_roster_under_its_number(user: int, key: int, roster: Roster) -> None:
    with pytest.raises(InvalidInput) as caught:
        Identity(user, SECRETS[key], roster)
    assert caught.value.option == "roster"


@pytest.mark.parametrize("point", low_order_points(), ids=bytes.hex)
def test_a_low_order_run_key_is_refused(point: bytes) -> None:
    """Even if its owner signed it: the secrets of all its pairs would be public."""
    with pytest.raises(InvalidKey, match=r"user 3.*low-order"):
        Roster(RUN, (*ENTRIES[:3], signed(IDENTITIES[3], ENTRIES[3], "run_key", point)))


@pytest.mark.parametrize("field", ["draw_key", "chain_tip"])
def test_a_wrong_length_is_refused_even_if_its_owner_signed_it(field: str) -> None:
    for size in (0, 31, 33):
        with pytest.raises(InvalidKey, match=r"user 3.*wrong length"):
            Roster(RUN, (*ENTRIES[:3], signed(IDENTITIES[3], ENTRIES[3], field, b"x" * size)))


def test_an_identity_prints_no_key(roster: Roster) -> None:
    identity = Identity(2, SECRETS[2], roster)
    assert repr(identity) == f"Identity(user=2, run={RUN!r})"
    assert repr(KEYS[2]) == "RunKeys(<private>)"
    assert repr(KEYS[2].chain) == f"NonceChain(run={RUN!r})"
    assert repr(SECRETS[2]) == "RunSecret(<32 bytes>)"


# The one secret of a run, and what a juror does with it


def test_keys_and_nonces_of_one_secret_have_nothing_in_common() -> None:
    here, there = KEYS[0], RunKeys(SECRETS[0], "another run")
    parts = [SECRETS[0].reveal()]
    for keys in (here, there):
        parts += [keys.run_key.reveal(), keys.draw_key.reveal(), keys.chain.nonce(16), *keys.public]
    assert len(set(parts)) == len(parts)
    assert RunKeys(SECRETS[0], RUN).public == here.public


def test_everybody_can_check_what_a_draw_key_signed(roster: Roster) -> None:
    signature = Identity(1, SECRETS[1], roster).sign(b"statement")
    Ed25519PublicKey.from_public_bytes(ENTRIES[1].draw_key).verify(signature, b"statement")
    for user, statement in ((0, b"statement"), (1, b"another")):
        with pytest.raises(InvalidSignature):
            Ed25519PublicKey.from_public_bytes(ENTRIES[user].draw_key).verify(signature, statement)


def test_a_revealed_nonce_leads_to_the_tip_in_the_roster(roster: Roster) -> None:
    identity = Identity(1, SECRETS[1], roster)
    for draw in (1, 7, 16):
        require_nonce(identity.reveal(draw), draw, RUN, ENTRIES[1].chain_tip)


def test_another_secret_that_shares_only_the_run_key_is_no_identity(roster: Roster) -> None:
    """All that the roster lists must follow from the user's secret, not its number alone."""
    for field in FIELDS:
        changed = signed(IDENTITIES[0], ENTRIES[0], field, public_key(PrivateKey(b"\x55" * 32)))
        with pytest.raises(InvalidInput):
            Identity(0, SECRETS[0], Roster(RUN, (changed, *ENTRIES[1:])))
