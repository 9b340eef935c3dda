"""Round parameters: fields, canonical bytes, refusals, and what follows from them (3, 9, 10)."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from fractions import Fraction
from functools import cached_property
from math import gcd
from typing import Any

from vectors.verifier import words
from vectors.verifier.errors import demand
from vectors.verifier.hashing import digest
from vectors.verifier.messagepack import read_array, write_array


@dataclass(frozen=True)
class Parameters:
    """The 17 fields, in their order."""

    version: int
    round_number: int
    clients: int
    dim: int
    pattern: str
    alpha_q32: int
    stripes: int
    modulus_bits: int
    neighbours: int
    threshold: int
    min_survivors: int
    clip: float
    max_weight: int
    dropout: float
    model_digest: bytes
    session: bytes
    roster_digest: bytes

    @cached_property
    def canonical(self) -> bytes:
        """The canonical bytes."""
        return write_array(astuple(self))

    @cached_property
    def digest(self) -> bytes:
        """The parameters digest."""
        return digest("parameters", self.canonical)

    @property
    def view(self) -> bytes:
        """The part of the digest that messages carry."""
        return self.digest[:8]

    @property
    def authenticated(self) -> bool:
        """Whether the round has a roster."""
        return any(self.roster_digest)

    @property
    def public_pattern(self) -> bool:
        """Whether everybody knows who sends what."""
        return self.pattern != "pairwise"

    @property
    def holders(self) -> int:
        """How many users hold shares of a secret."""
        return self.neighbours + 1 if self.neighbours else self.clients

    @property
    def least_threshold(self) -> int:
        """The least threshold that is allowed."""
        return 2 * self.holders // 3 + 1 if self.authenticated else self.holders // 2 + 1

    @cached_property
    def fraction(self) -> tuple[int, int]:
        """a and b: with `committee` everybody sends a of the b blocks of a stripe."""
        if self.max_weight:
            at_most = 2**33 // (2 * self.alpha_q32 - 1)
            enough = (self.alpha_q32 + 1) * self.clients >= 3 * 2**32
            return 1, min(at_most, self.clients // 3) if enough else at_most
        nearest = (2**33 + self.alpha_q32) // (2 * self.alpha_q32)
        candidates = [(a, b) for b in range(1, 17) for a in range(1, b + 1) if gcd(a, b) == 1]
        if (self.alpha_q32 + 1) * self.clients >= 3 * 2**32:
            candidates.append((1, min(nearest, self.clients // 3)))
            candidates = [(a, b) for a, b in candidates if a * self.clients >= 3 * b]
        else:
            candidates.append((1, nearest))
        return min(candidates, key=lambda ab: (abs(Fraction(*ab) - Fraction(self.alpha_q32, 2**32)), ab[1]))

    @property
    def used_stripes(self) -> int:
        """S, the stripes that the model has room for."""
        return 1 if self.max_weight else max(1, min(self.stripes, self.dim // self.fraction[1]))

    @cached_property
    def blocks(self) -> int:
        """B, the blocks."""
        if self.pattern == "committee":
            return self.used_stripes * self.fraction[1]
        return self.dim if self.pattern == "pairwise" else -(-self.dim // 65536)

    @cached_property
    def length(self) -> int:
        """L, the coordinates of a block."""
        return -(-self.dim // self.blocks)

    @property
    def contributors(self) -> int:
        """The most users that send one block."""
        if self.pattern != "committee":
            return self.clients
        a, b = self.fraction
        return -(-a * self.clients // b)

    @property
    def modulus(self) -> int:
        """The modulus of words, q."""
        return words.modulus(self.modulus_bits)

    @cached_property
    def limit(self) -> int:
        """The largest magnitude of one contribution."""
        return words.limit(self.modulus_bits, self.contributors)

    @property
    def scale(self) -> float:
        """What a coordinate is multiplied with."""
        return self.limit / self.clip

    @cached_property
    def digit_bits(self) -> int:
        """The bits of a digit, e."""
        return words.digit_bits(self.modulus_bits, self.contributors)

    @cached_property
    def digit_counts(self) -> tuple[int, int]:
        """The digits of the weight and of the clipped values."""
        if not self.public_pattern:
            return 0, 0
        return words.digit_count(self.max_weight, self.digit_bits), words.digit_count(self.length, self.digit_bits)

    @property
    def width(self) -> int:
        """W, the words of a block."""
        return self.length + sum(self.digit_counts)


def from_json(given: Mapping[str, Any]) -> Parameters:
    """Read the `fields` of a vector."""
    names = [field.name for field in fields(Parameters)]
    if list(given) != names:
        raise ValueError(f"fields {list(given)} instead of {names}")
    values = dict(given, round_number=int(given["round_number"]))
    for name in ("model_digest", "session", "roster_digest"):
        values[name] = bytes.fromhex(given[name])
    return Parameters(**values)


def decode(data: bytes) -> Parameters:
    """Read and check parameters."""
    values: list[Any] = list(read_array(data))
    kinds = [field.type for field in fields(Parameters)]
    demand(len(values) == len(kinds), "MalformedMessage", "another number of fields")
    for place, kind in enumerate(kinds):
        if kind is float and isinstance(values[place], int):
            values[place] = float(values[place])
        demand(type(values[place]) is kind, "MalformedMessage", f"field {place} has another type")
    parameters = Parameters(*values)
    check(parameters)
    return parameters


def check(p: Parameters) -> None:
    """Refuse parameters that make no sense, naming the first offending option in the page's order."""

    def option(name: str, allowed: bool) -> None:
        demand(allowed, "InvalidInput", name, name)

    option("version", p.version == 1)
    option("clients", 3 <= p.clients <= 2**16)
    option("dim", 1 <= p.dim <= 2**40)
    option("alpha", 1 <= p.alpha_q32 <= 2**32)
    option("dropout", 0 <= p.dropout < 0.5)
    option("stripes", 1 <= p.stripes <= 4096)
    option("clip", 1e-30 <= p.clip <= 1e30)
    option("max_weight", 0 <= p.max_weight <= 2**40)
    option("round_number", 0 <= p.round_number < 2**63)
    option("model_digest", len(p.model_digest) == 32)
    option("session", len(p.session) == 16)
    option("roster_digest", len(p.roster_digest) == 32)
    option("pattern", p.pattern in ("full", "pairwise", "committee"))
    option("neighbours", p.neighbours == 0 or (0 < p.neighbours < p.clients - 1 and p.neighbours % 2 == 0))
    option("neighbours", p.neighbours == 0 or not p.authenticated)
    option("threshold", p.least_threshold <= p.threshold <= p.holders)
    option("alpha", p.pattern != "committee" or p.fraction[0] * p.clients // p.fraction[1] >= 3)
    option("min_survivors", 1 <= p.min_survivors <= p.contributors)
    option("max_weight", p.public_pattern or p.max_weight == 0)
    option("modulus_bits", p.modulus_bits in words.WORD_SIZES)
    words.limit(p.modulus_bits, p.contributors)
    words.digit_bits(p.modulus_bits, p.contributors)
