"""The parameters of a run: fields, canonical bytes, refusals, and what follows from them (3, 4, 10)."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from math import floor, isqrt, sqrt
from typing import Any

from vectors.verifier import words
from vectors.verifier.errors import demand
from vectors.verifier.hashing import digest
from vectors.verifier.messagepack import read_array, write_array
from vectors.verifier.slices import block_of


@dataclass(frozen=True)
class Parameters:
    """The 18 fields, in their order, and one that is written only if it is true."""

    version: int
    clients: int
    dim: int
    pattern: str
    alpha_q32: int
    groups: int
    slices: int
    modulus_bits: int
    neighbours: int
    threshold: int
    clip: float
    max_weight: int
    clip_norm: float
    noise_multiplier: float
    dropout: float
    colluding: float
    session: bytes
    roster_digest: bytes
    per_example: bool = False

    @cached_property
    def canonical(self) -> bytes:
        """The canonical bytes."""
        return write_array(astuple(self)[: None if self.per_example else -1])

    @cached_property
    def digest(self) -> bytes:
        """The parameters digest."""
        return digest("parameters", self.canonical)

    @property
    def authenticated(self) -> bool:
        """Whether the run has a roster."""
        return any(self.roster_digest)

    @cached_property
    def run(self) -> bytes:
        """What tells this run from others in derivations."""
        return self.roster_digest if self.authenticated else digest("session", self.session)

    @property
    def public_pattern(self) -> bool:
        """Whether everybody knows who sends what."""
        return self.pattern != "pairwise"

    @property
    def cuts(self) -> list[int]:
        """Where the permuted users are cut."""
        return [i * self.clients // self.groups for i in range(self.groups + 1)]

    @property
    def smallest_group(self) -> int:
        """The users of the smallest group."""
        return self.clients // self.groups

    @property
    def contributors(self) -> int:
        """The most users that are in one sum."""
        return -(-self.clients // self.groups)

    @property
    def holders(self) -> int:
        """How many users hold shares of a secret in the smallest group."""
        return self.neighbours + 1 if self.neighbours else self.smallest_group

    @property
    def quorum(self) -> int:
        """The users that the sum of a group needs."""
        return self.clients // 2 + 1 if self.neighbours else self.threshold

    @property
    def accusers(self) -> int:
        """The accusers that a user may have."""
        return max(1, floor(self.colluding * self.contributors + 0.5))

    @property
    def block(self) -> list[int] | None:
        """a and L: so many of each block of so many coordinates are sent."""
        return list(block_of(self.alpha_q32)) if self.public_pattern else None

    @cached_property
    def length(self) -> int:
        """The most coordinates of a slice."""
        if self.block is None:
            return 0
        part, size = self.block
        return -(-self.dim // size) * part

    @property
    def modulus(self) -> int:
        """The modulus of words, q."""
        return words.modulus(self.modulus_bits)

    @cached_property
    def limit(self) -> int:
        """The largest magnitude of one contribution; noise may lead anywhere."""
        if self.clip_norm:
            return words.largest(self.modulus_bits)
        return words.limit(self.modulus_bits, self.contributors)

    @property
    def scale(self) -> float:
        """What a coordinate is multiplied with."""
        return self.levels * sqrt(self.length) / self.slice_clip if self.noise else self.limit / self.clip

    @property
    def levels(self) -> int:
        """The steps of a root-mean-square coordinate, with noise: more where it protects examples."""
        return 2 + 128 // isqrt(self.length) if self.per_example else 2

    @property
    def slice_clip(self) -> float:
        """The largest norm of a slice, with noise."""
        part, size = self.block or (1, 1)
        return self.clip_norm * sqrt(part / size)

    @property
    def noise(self) -> list[int | float] | None:
        """The largest squared norm of a user's integers, and the variance of the noise in a sum."""
        if not (self.clip_norm > 0 and self.noise_multiplier > 0):
            return None
        steps = self.levels
        squared = steps**2 * self.length + self.length // 4 + 3 * steps * isqrt(self.length) + steps
        return [squared, self.noise_multiplier**2 * squared]

    @cached_property
    def digit_bits(self) -> int:
        """The bits of a digit, e."""
        return words.digit_bits(self.modulus_bits, self.contributors)

    @cached_property
    def digit_counts(self) -> tuple[int, int]:
        """The digits of the weight and of the clipped values."""
        if not self.public_pattern:
            return 0, 0
        clipped = 0 if self.clip_norm else self.length
        return words.digit_count(self.max_weight, self.digit_bits), words.digit_count(clipped, self.digit_bits)


def from_json(given: Mapping[str, Any]) -> Parameters:
    """Read the `fields` of a vector."""
    names = [field.name for field in fields(Parameters)]
    if list(given) not in (names, names[:-1]):
        raise ValueError(f"fields {list(given)} instead of {names}")
    values = {name: bytes.fromhex(given[name]) for name in ("session", "roster_digest")}
    return Parameters(**(dict(given) | values))


def decode(data: bytes) -> Parameters:
    """Read and check parameters."""
    values: list[Any] = list(read_array(data))
    kinds = [field.type for field in fields(Parameters)]
    written = len(values) == len(kinds) - 1 or (len(values) == len(kinds) and values[-1] is True)
    demand(written, "MalformedMessage", "another number of fields, or a last one that is not true")
    for place, kind in enumerate(kinds[: len(values)]):
        if kind is float and type(values[place]) is int:
            values[place] = float(values[place])
        demand(type(values[place]) is kind, "MalformedMessage", f"field {place} has another type")
    parameters = Parameters(*values)
    check(parameters)
    return parameters


def check(p: Parameters) -> None:
    """Refuse parameters that make no sense, naming the first offending option in the page's order."""

    def option(name: str, allowed: bool) -> None:
        demand(allowed, "InvalidInput", name, name)

    option("version", p.version == 3)
    option("pattern", p.pattern in ("sliced", "full", "pairwise"))
    option("clients", 3 <= p.clients <= 2**20)
    option("dim", 1 <= p.dim <= 2**40)
    option("alpha", 1 <= p.alpha_q32 <= 2**32)
    option("dropout", 0 <= p.dropout < 0.5)
    option("colluding", 0 <= p.colluding < 0.5)
    option("clip", 1e-30 <= p.clip <= 1e30)
    option("max_weight", 0 <= p.max_weight <= 2**40)
    option("session", len(p.session) == 32)
    option("roster_digest", len(p.roster_digest) == 32)
    option("groups", 1 <= p.groups <= p.clients // 3)
    option("groups", p.groups == 1 or p.pattern == "sliced")
    option("slices", 1 <= p.slices <= p.groups)
    option("neighbours", p.neighbours == 0 or (0 < p.neighbours < p.clients - 1 and p.neighbours % 2 == 0))
    option("neighbours", p.neighbours == 0 or (p.groups == 1 and not p.authenticated))
    option("modulus_bits", p.modulus_bits in words.WORD_SIZES)
    if not p.clip_norm:
        words.limit(p.modulus_bits, p.contributors)
    option("alpha", p.pattern != "full" or p.alpha_q32 == 2**32)
    option("alpha", p.block is None or p.block[1] <= p.dim)
    option("threshold", p.holders // 2 + 1 <= p.threshold <= p.holders)
    if p.public_pattern and (p.max_weight or not p.clip_norm):
        words.digit_bits(p.modulus_bits, p.contributors)
    if p.noise is None:
        option("clip_norm", p.clip_norm == p.noise_multiplier == 0)
        option("per_example", not p.per_example)
        return
    option("clip_norm", p.clip_norm <= 1e30)
    option("noise_multiplier", p.noise_multiplier <= 1e4)
    option("pattern", p.public_pattern and p.neighbours == 0)
    option("max_weight", p.max_weight == 0)
    option("modulus_bits", p.modulus_bits == 32 or not p.per_example)
    room = round(4 * p.levels * p.contributors + 6 * sqrt(2 * p.noise[1]))
    option("modulus_bits", words.largest(p.modulus_bits) >= room)
