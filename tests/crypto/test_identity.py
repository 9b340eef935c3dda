"""Identities and rosters: a run key belongs to one identity in one run, and every reader checks that."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reference.x25519 import low_order_points, x25519
from sparsesecagg.crypto.identity import Identity, IdentityKey, Roster, RosterEntry, RunSecret, enrol, run_key
from sparsesecagg.crypto.kdf import derive, digest
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import PrivateKey
from sparsesecagg.errors import InvalidInput, InvalidKey

RUN = "run of the tests"
IDENTITIES = [IdentityKey(bytes([number]) * 32) for number in range(1, 5)]
SECRETS = [RunSecret(bytes([number]) * 32) for number in range(101, 105)]
ENTRIES = tuple(enrol(identity, RUN, secret) for identity, secret in zip(IDENTITIES, SECRETS, strict=True))
SEED, VALUE = bytes(range(32)), b"what the beacon said"
STRANGER = IdentityKey(b"\xdd" * 32)


def signed(identity: IdentityKey, key: bytes) -> RosterEntry:
    """Return an entry with any run key, signed properly by its owner."""
    signer = Ed25519PrivateKey.from_private_bytes(identity.reveal())
    signature = signer.sign(digest("enrolment", RUN.encode(), key))
    return RosterEntry(signer.public_key().public_bytes_raw(), key, signature)


@pytest.fixture
def roster() -> Roster:
    return Roster(RUN, ENTRIES, SEED, group_size=3, colluding=0.2)


# Signatures


def test_a_roster_of_properly_signed_keys_is_accepted_and_frozen(roster: Roster) -> None:
    """Signatures were checked when it was made, so nothing may change afterwards."""
    assert [entry.run_key for entry in roster.entries] == [public_key(run_key(secret, RUN)) for secret in SECRETS]
    for record, name in ((ENTRIES[0], "run_key"), (roster, "entries")):
        with pytest.raises(FrozenInstanceError):
            setattr(record, name, b"")


def test_an_entry_of_another_run_is_refused() -> None:
    """An old run key may be known by now."""
    with pytest.raises(InvalidKey, match="user 0"):
        Roster("another run", ENTRIES)


def test_a_key_put_in_by_somebody_else_is_refused() -> None:
    """The server can't take a user's place."""
    forged = replace(ENTRIES[2], run_key=public_key(PrivateKey(b"\x55" * 32)))
    with pytest.raises(InvalidKey, match="user 2"):
        Roster(RUN, (*ENTRIES[:2], forged, ENTRIES[3]))


@pytest.mark.parametrize("place", [0, 31, 32, 63])
def test_a_changed_signature_is_refused(place: int) -> None:
    signature = bytearray(ENTRIES[1].signature)
    signature[place] ^= 1
    for wrong in (bytes(signature), ENTRIES[0].signature):
        with pytest.raises(InvalidKey, match="user 1"):
            Roster(RUN, (ENTRIES[0], replace(ENTRIES[1], signature=wrong), *ENTRIES[2:]))


@pytest.mark.parametrize("part", ["identity", "run_key", "signature"])
@pytest.mark.parametrize("size", [0, 31, 65])
def test_parts_of_a_wrong_length_are_refused(part: str, size: int) -> None:
    with pytest.raises(InvalidKey):
        Roster(RUN, (replace(ENTRIES[0], **{part: bytes(size)}), *ENTRIES[1:]))


@pytest.mark.parametrize("point", low_order_points(), ids=bytes.hex)
def test_a_low_order_run_key_is_refused(point: bytes) -> None:
    """Even if its owner signed it: the secrets of all its pairs would be public."""
    with pytest.raises(InvalidKey, match=r"user 3.*low-order"):
        Roster(RUN, (*ENTRIES[:3], signed(IDENTITIES[3], point)))


def test_a_key_that_occurs_twice_is_refused() -> None:
    """One person can't count as two, nor can two share a key."""
    Roster(RUN, (*ENTRIES, enrol(STRANGER, RUN, RunSecret(b"\xee" * 32))))
    same_identity = enrol(IDENTITIES[0], RUN, RunSecret(b"\xee" * 32))
    same_secret = enrol(STRANGER, RUN, SECRETS[0])
    for twice in (ENTRIES[0], same_identity, same_secret, signed(STRANGER, ENTRIES[0].run_key)):
        with pytest.raises(InvalidKey, match="twice"):
            Roster(RUN, (*ENTRIES, twice))


# The rules of the draw


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"colluding": -0.1}, "colluding"),
        ({"colluding": 0.5}, "colluding"),
        ({"colluding": float("nan")}, "colluding"),
        ({"group_size": 2}, "group_size"),
        ({"group_size": 5}, "group_size"),
    ],
)
def test_rules_that_can_not_be_kept_are_refused(change: dict[str, Any], option: str, roster: Roster) -> None:
    with pytest.raises(InvalidInput, match="got") as caught:
        replace(roster, **change)
    assert caught.value.option == option


@pytest.mark.parametrize("size", [0, 1, 31, 33])
def test_a_seed_has_32_bytes_or_is_not_there(size: int) -> None:
    Roster(RUN, ENTRIES)
    with pytest.raises(InvalidKey, match=f"must have 32 bytes, got {size}"):
        Roster(RUN, ENTRIES, bytes(size))


def test_the_digest_depends_on_the_run_on_every_key_and_place_and_on_the_rules(roster: Roster) -> None:
    """Group size and collusion too: else the server would cut one permutation in many ways."""
    other = tuple(enrol(i, "other", s) for i, s in zip(IDENTITIES, SECRETS, strict=True))
    rosters = [
        roster,
        replace(roster, run="other", entries=other),
        replace(roster, entries=ENTRIES[::-1]),
        replace(roster, entries=ENTRIES[:-1]),
        replace(roster, entries=(enrol(STRANGER, RUN, SECRETS[0]), *ENTRIES[1:])),
        replace(roster, entries=(signed(IDENTITIES[0], bytes(range(32))), *ENTRIES[1:])),
        replace(roster, group_size=4),
        replace(roster, group_size=None),
        replace(roster, colluding=0.1),
        replace(roster, beacon="drand round 5"),
        roster.with_seed(SEED[::-1]),
    ]
    assert len({each.digest for each in rosters}) == len(rosters)
    # All but the last differ before there is a seed.
    assert len({each.unseeded_digest for each in rosters}) == len(rosters) - 1
    assert roster.digest == Roster(RUN, ENTRIES, SEED, 3, 0.2).digest


def test_equal_rules_have_one_digest_however_they_are_written(roster: Roster) -> None:
    assert replace(roster, colluding=0).digest == replace(roster, colluding=0.0).digest


def test_a_beacon_named_beforehand_makes_the_seed(roster: Roster) -> None:
    """A hash of what was fixed and the value: other rules, users or values give another seed."""
    unseeded = replace(roster, seed=None, beacon="drand round 5")
    seeded = unseeded.with_beacon(VALUE)
    assert seeded.seed == digest("beacon", unseeded.unseeded_digest, VALUE)
    assert seeded.unseeded_digest == unseeded.unseeded_digest
    others = [unseeded.with_beacon(VALUE[::-1]), replace(unseeded, group_size=4).with_beacon(VALUE)]
    assert len({each.seed for each in (seeded, *others)}) == 3


def test_a_value_of_a_beacon_that_was_not_named_is_refused(roster: Roster) -> None:
    """Else the builder picks the beacon when it knows the values."""
    with pytest.raises(InvalidInput, match="beacon must be named") as caught:
        roster.with_beacon(VALUE)
    assert caught.value.option == "beacon"


def test_every_epoch_has_a_seed_of_its_own(roster: Roster) -> None:
    seeds = [roster.epoch_seed(number) for number in range(1, 20)]
    assert len(set(seeds)) == 19
    assert seeds[4] == derive(SEED, "epoch", roster.digest, (5).to_bytes(8, "little"))


def test_without_a_seed_there_is_no_epoch() -> None:
    with pytest.raises(InvalidInput, match="roster must have a seed"):
        Roster(RUN, ENTRIES).epoch_seed(1)


def test_trusted_identities_are_compared_one_by_one(roster: Roster) -> None:
    trusted = [entry.identity for entry in ENTRIES]
    roster.require_identities(trusted)
    with pytest.raises(InvalidKey, match="user 0"):
        roster.require_identities(trusted[::-1])
    for others in (trusted[:-1], [*trusted, bytes(32)], []):
        with pytest.raises(InvalidKey, match=f"4 users, {len(others)} are trusted"):
            roster.require_identities(others)


# Files


def test_a_roster_survives_its_file_which_holds_no_secret(roster: Roster, tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    for each in (roster, Roster(RUN, ENTRIES), replace(roster, beacon="drand round 5", group_size=None)):
        each.save(path)
        assert Roster.load(path) == each
        private = [*IDENTITIES, *SECRETS, *(run_key(secret, RUN) for secret in SECRETS)]
        assert not [key for key in private if key.reveal().hex() in path.read_text()]


def test_a_file_changed_on_disk_is_refused(roster: Roster, tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    roster.save(path)
    content = json.loads(path.read_text())
    content["users"][1]["run_key"] = public_key(PrivateKey(b"\x55" * 32)).hex()
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidKey, match="user 1"):
        Roster.load(path)


def without(*path: str | int) -> str:
    """Return a good file's text with one part taken out."""
    entry = {"identity": "00", "run_key": "00", "signature": "00"}
    content: Any = {"run": "x", "group_size": None, "colluding": 0.1, "beacon": "", "seed": "", "users": [entry]}
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return json.dumps(content)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", "null", "\x00"),
        *(without(name) for name in ("run", "group_size", "colluding", "beacon", "seed", "users")),
        *(without("users", 0, name) for name in ("identity", "run_key", "signature")),
        without("users", 0).replace("[]", "3"),
        without("users", 0).replace('"seed": ""', '"seed": "zz"'),
        without("users", 0).replace("0.1", '"few"'),
        without("users", 0).replace("0.1", "1" + "0" * 400),
        without("users", 0).replace("null", "Infinity"),
        without("users", 0).replace('"beacon": ""', '"beacon": "\\ud800"'),
        "[" * 100_000,
    ],
)
def test_a_file_that_is_not_a_roster_is_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "rubbish.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"rubbish\.json") as caught:
        Roster.load(tmp_path / "rubbish.json")
    assert caught.value.option == "roster"


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.json", "bytes.json"):
        with pytest.raises(InvalidInput):
            Roster.load(tmp_path / name)


# Secrets of pairs


def test_two_users_of_a_run_agree_on_a_secret_of_their_own(roster: Roster) -> None:
    """Computed once per run."""
    users = [Identity(number, secret, roster) for number, secret in enumerate(SECRETS)]
    agreed = {(a, b): users[a].secret_with(b).reveal() for a in range(4) for b in range(4) if a != b}
    assert all(agreed[a, b] == agreed[b, a] for a, b in agreed)
    assert len(set(agreed.values())) == 6
    assert agreed[0, 1] == x25519(run_key(SECRETS[0], RUN).reveal(), ENTRIES[1].run_key)
    assert users[0].secret_with(1) is users[0].secret_with(1)


@pytest.mark.parametrize(("user", "key"), [(0, 1), (1, 0), (-1, 3), (4, 0)])
def test_an_identity_must_stand_in_the_roster_under_its_number(user: int, key: int, roster: Roster) -> None:
    with pytest.raises(InvalidInput) as caught:
        Identity(user, SECRETS[key], roster)
    assert caught.value.option == "roster"


def test_one_secret_has_nothing_in_common_in_two_runs() -> None:
    keys = {run_key(SECRETS[0], run).reveal() for run in (RUN, "another run")}
    assert len(keys | {SECRETS[0].reveal()}) == 3


def test_an_identity_prints_no_key(roster: Roster) -> None:
    assert repr(Identity(2, SECRETS[2], roster)) == f"Identity(user=2, run={RUN!r})"
    assert repr(SECRETS[2]) == "RunSecret(<32 bytes>)"
    assert repr(run_key(SECRETS[2], RUN)) == "PrivateKey(<32 bytes>)"
