"""The parameters of a run: fields, canonical bytes, refusals, and what follows from them (3, 4, 11)."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from typing import Any

from vectors.verifier import words
from vectors.verifier.errors import demand
from vectors.verifier.hashing import digest
from vectors.verifier.messagepack import read_array, write_array


def cut_evenly(whole: int, parts: int) -> list[int]:
    """Return ⌊i·whole/parts⌋ for i = 0 … parts."""
    return [i * whole // parts for i in range(parts + 1)]


def group_sizes(users: int, committees: int, pods: int) -> list[list[int]]:
    """Return the sizes of the committees, pod by pod (4)."""
    ends = cut_evenly(users, committees)
    sizes = [ends[g + 1] - ends[g] for g in range(committees)]
    cuts = cut_evenly(committees, pods)
    return [sizes[cuts[q] : cuts[q + 1]] for q in range(pods)]


def up(dividend: int, divisor: int) -> int:
    """Return ⌈dividend / divisor⌉."""
    return -(-dividend // divisor)


@dataclass(frozen=True)
class Parameters:
    """The 19 fields, in their order."""

    version: int
    clients: int
    dim: int
    pattern: str
    alpha_q32: int
    committees: int
    pods: int
    served: int
    modulus_bits: int
    neighbours: int
    threshold: int
    min_survivors: int
    confirm: bool
    clip: float
    max_weight: int
    dropout: float
    colluders: int
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

    @cached_property
    def sizes(self) -> list[list[int]]:
        """The sizes of the committees of all N users."""
        return group_sizes(self.clients, self.committees, self.pods)

    def sizes_among(self, users: int) -> list[list[int]]:
        """The sizes of the committees when only so many users are in groups."""
        if users == self.clients:
            return self.sizes
        smallest = min(map(sum, self.sizes))
        pods = max(1, min(self.pods, users // smallest))
        planned = pods * (self.committees // self.pods)
        committees = planned if users >= smallest else max(1, users // (self.clients // self.committees))
        return group_sizes(users, committees, pods)

    @property
    def holders(self) -> int:
        """How many users hold shares of a secret in the smallest pod."""
        return self.neighbours + 1 if self.neighbours else min(map(sum, self.sizes))

    def threshold_of(self, users: int) -> int:
        """The threshold of a pod."""
        return self.threshold if self.neighbours else up(self.threshold * users, self.holders)

    def survivors_of(self, users: int) -> int:
        """The survivors that a committee needs."""
        return up(self.min_survivors * users, self.clients // self.committees)

    @property
    def contributors(self) -> int:
        """The most users that are in one sum."""
        return up(self.clients, self.committees)

    @cached_property
    def length(self) -> int:
        """L, the coordinates of a slice."""
        return up(self.dim, self.committees) if self.public_pattern else 1

    def slices_of(self, committee: int, round_number: int) -> list[int]:
        """The slices that a committee sends in a round, in this order."""
        return [(committee + self.served * round_number + j) % self.committees for j in range(self.served)]

    def bounds(self, number: int) -> tuple[int, int]:
        """The coordinates of a slice: from, and up to but without."""
        return min(self.dim, number * self.length), min(self.dim, (number + 1) * self.length)

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
        """W, the words of a slice."""
        return self.length + sum(self.digit_counts)


def from_json(given: Mapping[str, Any]) -> Parameters:
    """Read the `fields` of a vector."""
    names = [field.name for field in fields(Parameters)]
    if list(given) != names:
        raise ValueError(f"fields {list(given)} instead of {names}")
    values = {name: bytes.fromhex(given[name]) for name in ("session", "roster_digest")}
    return Parameters(**(dict(given) | values))


def decode(data: bytes) -> Parameters:
    """Read and check parameters."""
    values: list[Any] = list(read_array(data))
    kinds = [field.type for field in fields(Parameters)]
    demand(len(values) == len(kinds), "MalformedMessage", "another number of fields")
    for place, kind in enumerate(kinds):
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

    option("version", p.version == 2)
    option("pattern", p.pattern in ("full", "pairwise", "committee"))
    option("clients", 3 <= p.clients <= 2**20)
    option("dim", 1 <= p.dim <= 2**40)
    option("alpha", 1 <= p.alpha_q32 <= 2**32)
    option("dropout", 0 <= p.dropout < 0.5)
    option("clip", 1e-30 <= p.clip <= 1e30)
    option("max_weight", 0 <= p.max_weight <= 2**40)
    option("colluders", 0 <= p.colluders <= (p.clients - 1) // 2)
    option("session", len(p.session) == 32)
    option("roster_digest", len(p.roster_digest) == 32)
    option("committees", 1 <= p.committees <= p.clients)
    option("pods", 1 <= p.pods <= p.committees)
    option("served", 1 <= p.served <= p.committees)
    option("committees", p.pattern == "committee" or p.committees == 1)
    option("neighbours", p.neighbours == 0 or (0 < p.neighbours < p.clients - 1 and p.neighbours % 2 == 0))
    option("neighbours", p.neighbours == 0 or (p.pattern != "committee" and not p.authenticated))
    option("alpha", p.clients // p.committees >= 3)
    option("threshold", p.holders // 2 + 1 <= p.threshold <= p.holders)
    option("min_survivors", 1 <= p.min_survivors <= p.clients // p.committees)
    option("max_weight", p.public_pattern or p.max_weight == 0)
    option("modulus_bits", p.modulus_bits in words.WORD_SIZES)
    words.limit(p.modulus_bits, p.contributors)
    if p.public_pattern:
        words.digit_bits(p.modulus_bits, p.contributors)
