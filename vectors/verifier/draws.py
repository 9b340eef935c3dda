"""Draws: by the server's seed and everybody's nonces, or by a jury (5)."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import comb
from typing import Any, NamedTuple

from vectors.verifier import keys, messages
from vectors.verifier.errors import demand
from vectors.verifier.groups import Pod, draw_groups
from vectors.verifier.hashing import cut, digest, little_endian, read_set_of_users, set_of_users
from vectors.verifier.keys import RosterEntry
from vectors.verifier.parameters import Parameters

REVEAL = 96


class Roster(NamedTuple):
    """A roster that was checked."""

    run: str
    users: Sequence[RosterEntry]

    @property
    def digest(self) -> bytes:
        """Its digest."""
        return keys.roster_digest(self.run, self.users)


def roster_of(content: Mapping[str, Any]) -> tuple[Roster, list[keys.RunKeys]]:
    """Read a roster that is written down with its secrets."""
    names = keys.RosterEntry._fields
    entries = [keys.RosterEntry(*(bytes.fromhex(user[name]) for name in names)) for user in content["users"]]
    secrets = [keys.run_keys_of(bytes.fromhex(user["run_secret"]), content["run"]) for user in content["users"]]
    return Roster(content["run"], entries), secrets


class Drawn(NamedTuple):
    """A draw that was accepted."""

    number: int
    seed: bytes
    pods: list[Pod]


def plain_draw(p: Parameters, server_seed: bytes, nonces: Mapping[int, bytes]) -> bytes:
    """Write the draw of a plain run."""
    return server_seed + set_of_users(nonces, p.clients) + b"".join(nonces[user] for user in sorted(nonces))


def read_plain_draw(p: Parameters, draw: bytes, user: int | None = None, nonce: bytes = b"") -> Drawn:
    """Check the draw of a plain run; a user looks for its own nonce."""
    size = (p.clients + 7) // 8
    demand(len(draw) >= 32 + size, "MalformedMessage", "a draw that is too short")
    users = read_set_of_users(draw[32 : 32 + size], p.clients)
    nonces = dict(zip(users, cut(draw[32 + size :], 16, len(users), "nonces"), strict=True))
    demand(digest("server seed", draw[:32]) == p.session, "InvalidKey", "a seed that was not committed to")
    demand(user is None or nonces.get(user) == nonce, "InvalidKey", "another nonce than was sent")
    seed = digest("plain draw", p.digest, draw)
    return Drawn(1, seed, draw_groups(p, seed))


@lru_cache
def jury_size(clients: int, colluders: int) -> int:
    """Return the smallest odd K for which colluders are a majority with probability at most 2^−128."""
    for size in range(1, clients + 1, 2):
        bad = sum(
            comb(colluders, inside) * comb(clients - colluders, size - inside)
            for inside in range((size + 1) // 2, min(size, colluders) + 1)
        )
        if bad * 2**128 <= comb(clients, size):
            return size
    raise ValueError((clients, colluders))


def jury(roster_digest: bytes, draw: int, clients: int, colluders: int) -> list[int]:
    """Return the jury of a draw, in its order."""

    def rank(user: int) -> bytes:
        return digest("jury", roster_digest, bytes([draw]), little_endian(user, 4))

    return sorted(range(clients), key=rank)[: jury_size(clients, colluders)]


def statement(p: Parameters, draw: int, population: bytes, named: bytes) -> bytes:
    """Return the digest of a statement."""
    return digest("draw statement", p.roster_digest, p.digest, bytes([draw]), population, named)


def check_statement(p: Parameters, draw: int, population: bytes, named: bytes) -> list[int]:
    """Refuse a statement that is not allowed; return the named jurors."""
    jurors = read_set_of_users(named, p.clients)
    users = read_set_of_users(population, p.clients)
    demand(5 * len(users) >= 4 * p.clients, "InvalidDraw", "too small a population")
    sampled = jury(p.roster_digest, draw, p.clients, p.colluders)
    demand(set(jurors) <= set(sampled), "InvalidDraw", "a stranger is named")
    demand(4 * len(jurors) >= 3 * len(sampled), "InvalidDraw", "too few are named")
    return jurors


class Juror:
    """A juror and what it has answered."""

    def __init__(self, p: Parameters, user: int, secrets: keys.RunKeys) -> None:
        self.parameters, self.user, self.secrets = p, user, secrets
        self.last = (0, b"", b"")

    def answer(self, data: bytes) -> bytes:
        """Answer a draw request."""
        p, request = self.parameters, messages.decode_draw(data, "draw request")
        draw, population, named = request["draw"], request["population"], request["named"]
        demand(request["roster_digest"] == p.roster_digest, "InvalidDraw", "another roster")
        jurors = check_statement(p, draw, population, named)
        demand(self.user in jurors, "InvalidDraw", "not named")
        stated = statement(p, draw, population, named)
        last, before, answer = self.last
        if (draw, stated) == (last, before):
            return answer
        demand(draw > last, "InvalidDraw", "numbers only go up")
        reveal = make_reveal(self.secrets, draw, stated)
        answer = messages.encode_array("draw reveal", draw, little_endian(self.user, 4), reveal)
        self.last = draw, stated, answer
        return answer


def make_reveal(secrets: keys.RunKeys, draw: int, stated: bytes) -> bytes:
    """Sign a statement together with the nonce of the draw."""
    nonce = secrets.nonces[draw]
    return keys.sign(secrets.draw_private, digest("draw reveal", stated, nonce)) + nonce


def check_reveal(roster: Roster, draw: int, stated: bytes, user: int, reveal: bytes) -> bytes:
    """Return the nonce of a reveal that is genuine."""
    entry, nonce = roster.users[user], reveal[64:]
    signed = keys.is_signed(entry.draw_key, reveal[:64], digest("draw reveal", stated, nonce))
    demand(signed, "InvalidDraw", "a reveal that is not signed")
    value = nonce
    for _ in range(draw):
        value = keys.hashed_nonce(value, roster.run)
    demand(value == entry.chain_tip, "InvalidDraw", "a nonce that was not committed to")
    return nonce


def read_proof(p: Parameters, roster: Roster, data: bytes, last_draw: int = 0) -> Drawn:
    """Check a jury's draw."""
    proof = messages.decode_draw(data, "draw proof")
    draw, population, named = proof["draw"], proof["population"], proof["named"]
    demand(draw > last_draw, "InvalidDraw", "a number that is not higher")
    jurors = check_statement(p, draw, population, named)
    demand(len(proof["reveals"]) == REVEAL * len(jurors), "InvalidDraw", "another number of reveals")
    stated = statement(p, draw, population, named)
    reveals = cut(proof["reveals"], REVEAL, len(jurors), "reveals")
    nonces = [check_reveal(roster, draw, stated, user, each) for user, each in zip(jurors, reveals, strict=True)]
    seed = digest("draw", stated, *nonces)
    excluded = set(range(p.clients)) - set(read_set_of_users(population, p.clients))
    pods = draw_groups(p, seed, excluded)
    largest = max(len(members) for pod in pods for members in pod.committees)
    demand(largest <= p.contributors, "InvalidDraw", "committees larger than words hold")
    return Drawn(draw, seed, pods)
