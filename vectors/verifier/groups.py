"""Directory, permutations, circle graphs and members (6)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vectors.verifier.errors import demand
from vectors.verifier.hashing import KeyStream, cut, derive, digest, read_set_of_users
from vectors.verifier.keys import nonce_commitment


class Entry(NamedTuple):
    """What the directory says about an advertiser."""

    sealing_key: bytes
    mask_key: bytes
    nonce_commitment: bytes


class Directory(NamedTuple):
    """Everybody's keys and what they hash to."""

    entries: Mapping[int, Entry]
    digest: bytes


def read_directory(parameters_digest: bytes, clients: int, users: bytes, entries: bytes) -> Directory:
    """Read a key directory and refuse keys that occur twice."""
    advertisers = read_set_of_users(users, clients)
    pieces = cut(entries, 96, len(advertisers), "entries")
    directory = {u: Entry(p[:32], p[32:64], p[64:]) for u, p in zip(advertisers, pieces, strict=True)}
    keys = [key for entry in directory.values() for key in entry[:2]]
    demand(len(set(keys)) == len(keys), "InvalidKey", "a key that occurs twice")
    return Directory(directory, digest("directory", parameters_digest, users, entries))


def permutation_stream(seed: bytes, label: str) -> KeyStream:
    """Return the stream from which permutations by (seed, label) are drawn."""
    return KeyStream(derive(seed, label, b""))


def permutation(users: Sequence[int], stream: KeyStream) -> list[int]:
    """Permute sorted users: sort them by integers drawn for them."""
    drawn = {user: stream.integer(8) for user in users}
    return sorted(users, key=lambda user: (drawn[user], user))


def circle_graph(circle: Sequence[int], degree: int) -> dict[int, list[int]]:
    """Return everybody's neighbours, sorted."""
    n = len(circle)
    if degree == 0 or degree >= n - 1:
        return {user: sorted(set(circle) - {user}) for user in circle}
    steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    return {user: sorted(circle[(place + step) % n] for step in steps) for place, user in enumerate(circle)}


def share_circle(users: Sequence[int], directory_digest: bytes) -> list[int]:
    """Return the circle of the share graph."""
    return permutation(users, permutation_stream(directory_digest, "share graph"))


def share_graph(users: Sequence[int], directory_digest: bytes, neighbours: int) -> dict[int, list[int]]:
    """Return the share graph of the advertisers."""
    return circle_graph(share_circle(users, directory_digest), neighbours)


def nonce_fits(entry: Entry, nonce: bytes) -> bool:
    """Tell whether a nonce is the one that was committed to."""
    return nonce_commitment(entry.sealing_key, entry.mask_key, nonce) == entry.nonce_commitment


def members_context(directory_digest: bytes, users: bytes, nonces: bytes) -> bytes:
    """Return the members' context."""
    return digest("members", directory_digest, users, nonces)


def read_membership(directory: Directory, members: Sequence[int], users: bytes, nonces: bytes) -> bytes:
    """Check the members of a share delivery and return their context."""
    demand(all(user in directory.entries for user in members), "MalformedMessage", "a member without keys")
    pieces = cut(nonces, 16, len(members), "nonces")
    fits = all(nonce_fits(directory.entries[user], nonce) for user, nonce in zip(members, pieces, strict=True))
    demand(fits, "InvalidKey", "a nonce that does not fit its commitment")
    return members_context(directory.digest, users, nonces)
