"""Who draws the groups: a jury whose nonces were committed to before the run began. Pure functions of public data.

A draw has a number, from 1 to 16. The jury of a number is a public sample of the roster, so large that colluders are a
minority in it. The server names three quarters of the jury or more, and the *statement* says which: roster, parameters
of the run, number, population (the users that will be put into groups) and named jurors. Every named juror signs the
statement and reveals its nonce for that number (`juror`); the seed of the groups is a hash of the statement and all
nonces. Everybody checks everything (`verify_draw`).

What it gives, as long as colluders are fewer than half of the jury:

- nobody knows the seed before the statement is settled, since an honest named juror reveals its nonce only then;
- a number has one outcome, the cut into groups included, since the parameters are in the statement. Two sets of three
  quarters share half of the jury, so an honest juror, who signs once. That needs one jury per number: it is sampled
  from the roster, not from the population, which the server chooses.

What it does not prevent: a named colluder that stays silent ends the attempt, after it has seen the seed. So a server
with colluders chooses among up to 16 outcomes, which a plan charges as four bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from sparsesecagg.crypto.chain import MAX_DRAWS, require_nonce
from sparsesecagg.crypto.identity import SIGNATURE_SIZE, Roster
from sparsesecagg.crypto.kdf import digest
from sparsesecagg.errors import InvalidDraw, InvalidKey
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.patterns.jury import jury_size
from sparsesecagg.protocol.draw_messages import REVEAL_SIZE, DrawProof, DrawRequest
from sparsesecagg.protocol.messages import decode_users
from sparsesecagg.protocol.parameters import Parameters


@dataclass(frozen=True)
class Statement:
    """What the named jurors sign: one per draw number."""

    roster_digest: bytes
    parameters: bytes
    """The digest of the run's parameters. They say how the groups are cut: if they could be chosen after the draw, so
    could the groups."""
    colluders: int
    """How many colluding users the parameters plan for; it decides the size of the jury."""
    draw: int
    population: bytes
    """The users that will be put into groups, as a set of users."""
    named: bytes
    """The jurors that will reveal, as a set of users."""

    @staticmethod
    def of(message: DrawRequest | DrawProof, roster: Roster, params: Parameters) -> Statement:
        """Return the statement that a message is about, for someone with this roster and these parameters."""
        return Statement(
            roster.digest, params.digest, params.colluders, message.draw, message.population, message.named
        )

    @cached_property
    def digest(self) -> bytes:
        """What signatures and seed are bound to."""
        number = self.draw.to_bytes(1, "little")
        return digest("draw statement", self.roster_digest, self.parameters, number, self.population, self.named)


@dataclass(frozen=True)
class Draw:
    """The outcome: the seed of the groups, and whom they are made of."""

    number: int
    population: Users
    seed: bytes


@lru_cache(maxsize=64)
def jury(roster_digest: bytes, draw: int, clients: int, colluders: int) -> tuple[int, ...]:
    """Return the jury of a draw: the first K of all users by a hash, in that order."""
    number = draw.to_bytes(1, "little")
    order = sorted(range(clients), key=lambda user: digest("jury", roster_digest, number, user.to_bytes(4, "little")))
    return tuple(order[: jury_size(clients, colluders)])


def named_needed(size: int) -> int:
    """Return how many of a jury must be named: three quarters, so that two such sets share half of it or more."""
    return -(-3 * size // 4)


def is_large_enough(population: int, clients: int) -> bool:
    """Return whether so many of the roster's users may be put into groups: a plan counts all colluders among 4/5."""
    return 5 * population >= 4 * clients


def require_fair(statement: Statement, clients: int) -> tuple[list[int], Users]:
    """Return the named jurors and the population, both sorted; raise `InvalidDraw` unless the rules allow them."""
    draw = statement.draw
    if not 1 <= draw <= MAX_DRAWS:
        raise InvalidDraw(draw, f"a run has the draws 1 to {MAX_DRAWS}")
    named: list[int] = decode_users(statement.named, clients).tolist()
    population = decode_users(statement.population, clients)
    if not is_large_enough(len(population), clients):
        raise InvalidDraw(draw, f"{len(population)} of {clients} users are to be in groups, fewer than 4/5")
    jurors = jury(statement.roster_digest, draw, clients, statement.colluders)
    strangers = set(named).difference(jurors)
    if strangers:
        raise InvalidDraw(draw, f"user {min(strangers)} is named and not in the jury")
    if len(named) < named_needed(len(jurors)):
        raise InvalidDraw(draw, f"{len(named)} jurors are named, {named_needed(len(jurors))} are needed")
    return named, population


def signed_reveal(statement: Statement, nonce: bytes) -> bytes:
    """Return what a juror signs: the statement together with the nonce that it reveals for it."""
    return digest("draw reveal", statement.digest, nonce)


def require_reveal(roster: Roster, statement: Statement, user: int, reveal: bytes) -> bytes:
    """Return the nonce of a juror's reveal (signature, nonce); raise `InvalidDraw` unless both are genuine."""
    entry, nonce = roster.entries[user], reveal[SIGNATURE_SIZE:]
    try:
        key = Ed25519PublicKey.from_public_bytes(entry.draw_key)
        key.verify(reveal[:SIGNATURE_SIZE], signed_reveal(statement, nonce))
    except (InvalidSignature, ValueError):
        raise InvalidDraw(statement.draw, f"juror {user} has not signed this statement and nonce") from None
    try:
        require_nonce(nonce, statement.draw, roster.run, entry.chain_tip)
    except InvalidKey:
        raise InvalidDraw(statement.draw, f"the nonce of juror {user} is not the one it committed to") from None
    return nonce


def verify_draw(roster: Roster, params: Parameters, proof: DrawProof, last_draw: int = 0) -> Draw:
    """Return the outcome of a draw; raise `InvalidDraw` unless every named juror has signed it and revealed.

    `params` are the client's own, never something that comes with the proof. `last_draw` is the number of the last draw
    that this client has accepted: numbers only go up.
    """
    if proof.draw <= last_draw:
        raise InvalidDraw(proof.draw, f"draw {last_draw} has already been accepted, and numbers only go up")
    statement = Statement.of(proof, roster, params)
    named, population = require_fair(statement, len(roster.entries))
    if len(proof.reveals) != REVEAL_SIZE * len(named):
        raise InvalidDraw(proof.draw, f"{len(named)} reveals take {REVEAL_SIZE * len(named)} bytes")
    reveals = zip(named, _cut(proof.reveals), strict=True)
    nonces = [require_reveal(roster, statement, user, reveal) for user, reveal in reveals]
    return Draw(proof.draw, population, digest("draw", statement.digest, *nonces))


def _cut(reveals: bytes) -> Iterator[bytes]:
    return (reveals[start : start + REVEAL_SIZE] for start in range(0, len(reveals), REVEAL_SIZE))
