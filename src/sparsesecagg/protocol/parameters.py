"""The choices of a round in one value, and the parameters of a run: public, the same for all, bound into every key.

`secure_sum`, `simulate`, `train`, `SecAgg` and the planner take or make `RoundOptions`. Server and clients each hold a
copy of the `Parameters` that follow. What changes from round to round (the model, who takes part) is in the round's
header; `protocol/epoch.py`.
"""

from __future__ import annotations

import numbers
import os
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.crypto.kdf import DIGEST_SIZE, derive, digest
from sparsesecagg.crypto.secrets import Entropy
from sparsesecagg.errors import InvalidInput, MalformedMessage, PolicyViolation, require, require_type, whole_number
from sparsesecagg.field import WORD_BITS
from sparsesecagg.patterns import PATTERNS, pattern_of
from sparsesecagg.patterns.base import Layout, Pattern
from sparsesecagg.patterns.groups import SMALLEST_GROUP, Groups, draw_groups, group_count, group_sizes
from sparsesecagg.privacy.anonymity import MAX_EPOCHS, planned_colluders
from sparsesecagg.privacy.mechanism import Mechanism
from sparsesecagg.rounding import Step

VERSION = 3
MAX_CLIENTS = 1 << 20
MAX_DIM = 1 << 40
MAX_WEIGHT = 1 << 40
SMALLEST_ALPHA = 2**-20
SMALLEST_CLIP, LARGEST_CLIP = 1e-30, 1e30  # Beyond these, float32 runs out.


_KINDS: dict[str, tuple[str, type]] = {
    "bool": ("true or false", bool),
    "int": ("a whole number", numbers.Integral),
    "float": ("a number", numbers.Real),
    "str": ("a name", str),
}


def check_kinds(options: Any, skip: tuple[str, ...] = ()) -> None:
    """Raise unless every field of a dataclass holds a value of the type that it declares.

    NumPy's numbers become Python's own, the only ones that messages and JSON can hold.
    """
    for field in fields(options):
        value, declared = getattr(options, field.name), str(field.type).split(" | ")
        if isinstance(value, np.generic):
            value = value.item()
            object.__setattr__(options, field.name, value)
        if field.name in skip or (value is None and "None" in declared):
            continue
        wanted, kind = _KINDS[declared[0]]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidInput(field.name, f"must be {wanted}, got {value!r}")


@dataclass(frozen=True)
class RoundOptions:
    """How users aggregate. The defaults protect; α = 1 sends everything."""

    pattern: str = "sliced"
    alpha: float = 1.0
    """The fraction of the model that each user sends in a round."""
    group_size: int | None = None
    """Users of a group, at most; None: one group up to 128 users, else groups of at most 100."""
    threshold: int | None = None
    """Users that must stay for a sum to open (t); None: the highest that the dropouts allow."""
    dropout: float = 0.1
    """The dropout rate θ that is expected: for the default threshold and the paper's normalisation."""
    colluding: float | None = None
    """The fraction of the users that may help the server, for the default threshold; None: the roster's, or none."""
    modulus_bits: int | None = None
    """Bits of a word; None: 32, and in Flower as few as the groups allow."""
    neighbours: int | None = None
    """Degree of the graph of masks and shares, rounded up to even (SecAgg+); None: complete."""
    clip: float | None = None
    """The largest magnitude that a coordinate of an update may have; None: 1, or what fits in `secure_sum`."""
    max_weight: int = 0
    """0: all weights are one. Otherwise weights are private integers up to this."""
    clip_norm: float | None = None
    """With differential privacy: the largest 2-norm of an update; None: no differential privacy."""
    noise_multiplier: float = 0.0
    """Standard deviation of the noise in a sum, over what one user's slice can change in it."""
    per_example: bool = False
    """The noise protects single examples: an update is a matrix, and `clip_norm` bounds each of its rows."""
    same_slices: bool = False
    """All groups send the same slice, so that their means can be compared; else different ones, to cover more."""

    def __post_init__(self) -> None:
        """Check the types; ranges depend on the users and the model (`Parameters.create`)."""
        check_kinds(self)
        object.__setattr__(self, "pattern", pattern_of(self.pattern))


class Parameters(Layout, frozen=True):
    """Everything public that stays the same in a run. Make one with `create`, which fills in defaults and checks."""

    noise_multiplier: float
    """Standard deviation of the noise in a sum, over the norm that a user's slice has at most."""
    dropout: float
    """The dropout rate θ that is expected, for the paper's normalisation."""
    colluding: float
    """The fraction of the users that the threshold is made for. Users hold to their own policy and roster instead."""
    session: bytes
    """Tells runs apart. Without a roster it is also the seed of groups and slices, so the server chooses them."""
    roster_digest: bytes
    """Digest of the users' identity keys and their seed; zeros in a run without authentication."""
    per_example: bool = False
    """The noise protects single examples and not users; written only if so."""

    @staticmethod
    def create(
        clients: int,
        dim: int,
        options: RoundOptions | None = None,
        *,
        session: bytes | None = None,
        roster: Roster | None = None,
    ) -> Parameters:
        """Return checked parameters. `session` is random by default; a roster decides group size and collusion."""
        require_type("options", options, RoundOptions, optional=True)
        require_type("roster", roster, Roster, optional=True)
        clients, dim, options = whole_number("clients", clients), whole_number("dim", dim), options or RoundOptions()
        require("alpha", 0 < options.alpha <= 1, f"must be in (0, 1], got {options.alpha}")
        require("alpha", options.alpha >= SMALLEST_ALPHA, f"must be at least 2^-20, got {options.alpha:g}")
        _require_range("clients", clients, SMALLEST_GROUP, MAX_CLIENTS)
        groups = _group_count(clients, options, roster)
        colluding = options.colluding
        if colluding is None:
            colluding = roster.colluding if roster else 0.0
        params = Parameters(
            version=VERSION,
            clients=clients,
            dim=dim,
            pattern=options.pattern,
            alpha_q32=max(1, round(options.alpha * 2**32)),
            groups=groups,
            slices=1 if options.same_slices else groups,
            modulus_bits=WORD_BITS[-1] if options.modulus_bits is None else options.modulus_bits,
            neighbours=_even_degree(options.neighbours, clients),
            threshold=options.threshold or 0,
            clip=1.0 if options.clip is None else float(options.clip),
            max_weight=options.max_weight,
            clip_norm=float(options.clip_norm or 0.0),
            noise_multiplier=float(options.noise_multiplier),
            dropout=float(options.dropout),
            colluding=float(colluding),
            session=os.urandom(DIGEST_SIZE) if session is None else session,
            roster_digest=roster.digest if roster else bytes(DIGEST_SIZE),
            per_example=options.per_example,
        )
        if options.threshold is None:
            params._check_sizes()
            usual = params.shape.default_threshold(params.sizes, params.dropout, params.colluding)
            params = msgspec.structs.replace(params, threshold=usual)
        params.check()
        return params

    def check(self) -> None:
        """Raise `InvalidInput` unless the parameters make sense; says what is allowed."""
        require("version", self.version == VERSION, f"must be {VERSION}, got {self.version}")
        self._check_sizes()
        holders = self.holders
        require(
            "threshold",
            holders // 2 + 1 <= self.threshold <= holders,
            f"must be from {holders // 2 + 1} to {holders} (more than half of a secret's {holders} holders), "
            f"got {self.threshold}",
        )
        _ = self.shape.digits  # Raise if the word is too short.
        self._check_noise()

    def _check_sizes(self) -> None:
        several = _pattern_class(self.pattern).several_groups
        _require_range("clients", self.clients, SMALLEST_GROUP, MAX_CLIENTS)
        require("dim", 1 <= self.dim <= MAX_DIM, f"must be from 1 to 2^40, got {self.dim}")
        require("alpha", 0 < self.alpha_q32 <= 1 << 32, f"must be in (0, 1], got {self.alpha}")
        for name in ("dropout", "colluding"):
            require(name, 0 <= getattr(self, name) < 0.5, f"must be in [0, 0.5), got {getattr(self, name)}")
        require("clip", SMALLEST_CLIP <= self.clip <= LARGEST_CLIP, f"must be from 1e-30 to 1e30, got {self.clip}")
        require("max_weight", 0 <= self.max_weight <= MAX_WEIGHT, f"must be from 0 to 2^40, got {self.max_weight}")
        for name in ("session", "roster_digest"):
            require_type(name, value := getattr(self, name), bytes)
            require(name, len(value) == DIGEST_SIZE, f"must have {DIGEST_SIZE} bytes, got {len(value)}")
        _require_range("groups", self.groups, 1, self.clients // SMALLEST_GROUP)
        require("groups", self.groups == 1 or several, f"must be 1 with {self.pattern}, got {self.groups}")
        _require_range("slices", self.slices, 1, self.groups)
        sparse = self.neighbours % 2 == 0 and 0 <= self.neighbours < self.clients - 1
        require("neighbours", sparse, f"must be even and less than clients − 1, got {self.neighbours}")
        if self.neighbours:
            require("neighbours", self.groups == 1, "must not be given with several groups, which are complete graphs")
            # Tags of all survivors are what proves one header, so everybody must share a secret with everybody.
            require("neighbours", not self.authenticated, "must not be given with a roster, which needs tags from all")
        _ = self.shape

    def _check_noise(self) -> None:
        mechanism = self.mechanism
        if mechanism is None:
            require("clip_norm", self.clip_norm == self.noise_multiplier == 0, "must be given together with noise")
            require("per_example", not self.per_example, "must be given together with noise")
            return
        norm, noise = self.clip_norm, self.noise_multiplier
        require("clip_norm", SMALLEST_CLIP <= norm <= LARGEST_CLIP, f"must be from 1e-30 to 1e30, got {norm}")
        require("noise_multiplier", 1e-4 <= noise <= 1e4, f"must be from 1e-4 to 1e4, got {noise}")
        require("pattern", self.shape.protects and not self.neighbours, "must open one sum per group with noise")
        require("max_weight", not self.max_weight, "must be 0 with noise: weights would change the sensitivity")
        longest = not self.per_example or self.modulus_bits == WORD_BITS[-1]
        require("modulus_bits", longest, f"must be {WORD_BITS[-1]} for noise that protects examples")
        needed = mechanism.largest_sum(self.contributors, self.contributors)
        require("modulus_bits", self.word.largest >= needed, f"must be {needed.bit_length() + 1} or more for the noise")

    @property
    def authenticated(self) -> bool:
        """Whether users prove who they are, by the keys of a roster."""
        return any(self.roster_digest)

    @cached_property
    def run(self) -> bytes:
        """What tells this run from all others in derivations: the roster, or the session where there is none."""
        return self.roster_digest if self.authenticated else digest("session", self.session)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the groups."""
        return group_sizes(self.clients, self.groups)

    @property
    def holders(self) -> int:
        """How many users hold a share of one secret in the smallest group, its owner included."""
        return self.neighbours + 1 if self.neighbours else self.clients // self.groups

    @property
    def quorum(self) -> int:
        """Survivors of a group that a sum must have: t, or half of all users where a sparse graph has a small t."""
        return self.clients // 2 + 1 if self.neighbours else self.threshold

    @property
    def accusers(self) -> int:
        """Users of a group that may collude, as the server counts: who has more accusers gets no more rounds."""
        return planned_colluders(self.contributors, self.colluding)

    @property
    def colluders(self) -> int:
        """Users of all groups together that may collude."""
        return planned_colluders(self.clients, self.colluding)

    def epoch_seed(self, epoch_number: int, roster: Roster | None) -> bytes:
        """Return the public seed of an epoch's groups and slices; raise if there may be no such epoch."""
        if self.groups > 1 and epoch_number > MAX_EPOCHS:
            raise PolicyViolation(f"epoch must be at most {MAX_EPOCHS} in a run of several groups, got {epoch_number}")
        if roster is not None:
            return roster.epoch_seed(epoch_number)
        return derive(self.session, "epoch", self.digest, epoch_number.to_bytes(8, "little"))

    def draw(self, seed: bytes) -> Groups:
        """Return the groups that an epoch's seed draws."""
        return draw_groups(seed, self.clients, self.groups, self.neighbours or None)

    @cached_property
    def mechanism(self) -> Mechanism | None:
        """What makes sums differentially private; None in a run without noise."""
        if not (self.clip_norm > 0 and self.noise_multiplier > 0):
            return None
        fraction, length = self.shape.fraction(), self.shape.length
        return Mechanism(self.clip_norm, self.noise_multiplier, fraction, length, self.per_example)

    def steps(self, weight: int, entropy: Entropy, honest: int = 1) -> tuple[Step, ...]:
        """Return the steps of an upload between selecting and masking.

        `honest` is how many honest users every opened sum has: so many share the noise.
        """
        if self.mechanism:
            peak = self.mechanism.peak(self.word.largest, self.contributors, honest)
            return self.mechanism.steps(honest, entropy, peak)
        rng = np.random.Generator(np.random.SFC64(int.from_bytes(entropy(16), "little")))  # Needs no secrecy.
        return self.quantizer.steps(weight / self.max_weight if self.max_weight else 1.0, rng)

    @cached_property
    def shape(self) -> Pattern:
        """The pattern of this run."""
        return _pattern_class(self.pattern)(self)

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        values = msgspec.structs.astuple(self)
        return msgspec.msgpack.encode(values if self.per_example else values[:-1])

    @staticmethod
    def decode(data: bytes) -> Parameters:
        """Read and check parameters that came over the wire."""
        try:
            params = msgspec.msgpack.decode(data, type=Parameters)
        except ValueError:  # msgspec's errors are ValueErrors.
            raise MalformedMessage("the bytes are not parameters of a run") from None
        if not params.per_example and len(msgspec.msgpack.decode(data)) == len(Parameters.__struct_fields__):
            raise MalformedMessage("the parameters must not say that noise protects examples where it does not")
        params.check()
        return params

    @cached_property
    def digest(self) -> bytes:
        """What every epoch, and through it every key, is bound to."""
        return digest("parameters", self.encode())

    def replace(self, **changes: Any) -> Parameters:
        """Return changed, checked parameters."""
        changed = msgspec.structs.replace(self, **changes)
        changed.check()
        return changed


def _group_count(clients: int, options: RoundOptions, roster: Roster | None) -> int:
    """Return the number of groups; the roster's word on their size is the only one in a run that has a roster."""
    size = options.group_size
    if roster is not None:
        require("clients", clients == len(roster.entries), f"must be the roster's {len(roster.entries)} users")
        require("group_size", size in (None, roster.group_size), f"must be the roster's {roster.group_size}")
        size = roster.group_size
    if _pattern_class(options.pattern).several_groups and not (options.neighbours and size is None):
        return group_count(clients, size)
    require("group_size", size in (None, clients), f"must not be given with {options.pattern}, which has one group")
    return 1


def _pattern_class(name: str) -> type[Pattern]:
    if name not in PATTERNS:
        raise InvalidInput("pattern", f"must be one of {', '.join(PATTERNS)}, got {name!r}")
    return PATTERNS[name]


def _even_degree(neighbours: int | None, clients: int) -> int:
    if neighbours is None:
        return 0
    require("neighbours", neighbours >= 2, f"must be at least 2, got {neighbours}")
    degree = neighbours + neighbours % 2
    return 0 if degree >= clients - 1 else degree


def _require_range(option: str, value: int, least: int, most: int) -> None:
    require(option, least <= value <= most, f"must be from {least} to {most}, got {value}")
