"""The parameters of a round: public, the same for everybody, and bound into every mask.

Server and clients each hold a copy. Its digest enters all key derivations, so users who were given different
parameters, or a different global model, make masks that do not cancel.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from sparsesecagg.crypto.kdf import DIGEST_SIZE, digest
from sparsesecagg.errors import InvalidInput, MalformedMessage
from sparsesecagg.field import Word
from sparsesecagg.patterns import (
    DEFAULT_STRIPES,
    PATTERNS,
    SMALLEST_COMMITTEE,
    Layout,
    Pattern,
    PatternSettings,
    smallest_committee,
)
from sparsesecagg.quantize import Digits, Quantizer

VERSION = 1
MAX_CLIENTS = 1 << 16
MAX_DIM = 1 << 40
MAX_WEIGHT = 1 << 40
MAX_STRIPES = 1 << 12
SMALLEST_CLIP, LARGEST_CLIP = 1e-30, 1e30  # Beyond these, float32 runs out.
SESSION_SIZE = 16
VIEW_SIZE = 8


class RoundParameters(msgspec.Struct, frozen=True, array_like=True, dict=True, forbid_unknown_fields=True):
    """Everything public that a round depends on. Make one with `create`, which fills in defaults and checks."""

    version: int
    round_number: int
    clients: int
    dim: int
    pattern: str
    alpha_q32: int
    """α in units of 2^−32."""
    stripes: int
    modulus_bits: int
    neighbours: int
    """Degree of share graph and mask graph; 0 means complete."""
    threshold: int
    """Shares needed to restore a secret (t)."""
    min_survivors: int
    clip: float
    max_weight: int
    """0: all weights are one. Otherwise weights are private integers up to this."""
    dropout: float
    """The dropout rate θ that is expected; used by the paper's normalisation only."""
    model_digest: bytes
    """SHA-256 of the global model that the updates are relative to."""
    session: bytes
    """Tells attempts apart: an engine draws a fresh one for every attempt at a round."""
    roster_digest: bytes
    """Digest of the users' identity keys; zeros in a round without authentication."""

    @staticmethod
    def create(
        *,
        clients: int,
        dim: int,
        pattern: str = "committee",
        alpha: float = 1.0,
        dropout: float = 0.0,
        modulus_bits: int = 32,
        neighbours: int | None = None,
        threshold: int | None = None,
        min_survivors: int = 2,
        clip: float = 1.0,
        max_weight: int = 0,
        stripes: int = DEFAULT_STRIPES,
        round_number: int = 1,
        model_digest: bytes = b"",
        session: bytes = b"",
        roster_digest: bytes = b"",
    ) -> RoundParameters:
        """Return checked parameters.

        `alpha`: fraction of the model that each user sends. `clip`: the largest magnitude an update's coordinate may
        have. `neighbours`: degree of the graphs, rounded up to even; None for complete ones. `threshold`: more than
        half of a secret's holders by default, more than two thirds with a roster.
        """
        if not (isinstance(alpha, (int, float)) and 0 < alpha <= 1):
            raise InvalidInput("alpha", f"must lie in (0, 1], not {alpha}")
        degree = 0 if neighbours is None else neighbours + neighbours % 2
        if neighbours is not None and neighbours < 2:
            raise InvalidInput("neighbours", f"must be at least 2, not {neighbours}")
        if degree >= clients - 1:
            degree = 0
        params = RoundParameters(
            version=VERSION,
            round_number=round_number,
            clients=clients,
            dim=dim,
            pattern=pattern,
            alpha_q32=max(1, round(alpha * 2**32)),
            stripes=stripes,
            modulus_bits=modulus_bits,
            neighbours=degree,
            threshold=_least_threshold(degree + 1 if degree else clients, bool(roster_digest))
            if threshold is None
            else threshold,
            min_survivors=min_survivors,
            clip=float(clip),
            max_weight=max_weight,
            dropout=float(dropout),
            model_digest=model_digest or bytes(DIGEST_SIZE),
            session=session or bytes(SESSION_SIZE),
            roster_digest=roster_digest or bytes(DIGEST_SIZE),
        )
        params.check()
        return params

    def check(self) -> None:
        """Raise `InvalidInput` unless the parameters make sense; says what is allowed and the nearest remedy."""
        if self.version != VERSION:
            raise InvalidInput("version", f"must be {VERSION}, not {self.version}")
        _require(
            "clients",
            3 <= self.clients <= MAX_CLIENTS,
            f"must be from 3 to {MAX_CLIENTS}, not {self.clients}",
        )
        _require("dim", 1 <= self.dim <= MAX_DIM, f"must be from 1 to 2^40, not {self.dim}")
        _require("alpha", 0 < self.alpha_q32 <= 1 << 32, f"must lie in (0, 1], not {self.alpha}")
        _require("dropout", 0 <= self.dropout < 0.5, f"must lie in [0, 0.5), not {self.dropout}")
        _require(
            "stripes",
            1 <= self.stripes <= MAX_STRIPES,
            f"must be from 1 to {MAX_STRIPES}, not {self.stripes}",
        )
        _require("clip", SMALLEST_CLIP <= self.clip <= LARGEST_CLIP, f"must be from 1e-30 to 1e30, not {self.clip}")
        _require("max_weight", 0 <= self.max_weight <= MAX_WEIGHT, f"must be from 0 to 2^40, not {self.max_weight}")
        _require("round_number", 0 <= self.round_number < 1 << 63, "must be from 0 to 2^63 − 1")
        _require("model_digest", len(self.model_digest) == DIGEST_SIZE, f"must have {DIGEST_SIZE} bytes")
        _require("session", len(self.session) == SESSION_SIZE, f"must have {SESSION_SIZE} bytes")
        _require("roster_digest", len(self.roster_digest) == DIGEST_SIZE, f"must have {DIGEST_SIZE} bytes")
        if self.pattern not in PATTERNS:
            raise InvalidInput("pattern", f"must be one of {', '.join(PATTERNS)}, not {self.pattern!r}")
        even_and_sparse = self.neighbours % 2 == 0 and 0 <= self.neighbours < self.clients - 1
        _require("neighbours", even_and_sparse, f"must be even and less than clients − 1, not {self.neighbours}")
        if self.authenticated and self.neighbours:
            # Opening a neighbour's shares is what proves its keys genuine, so everybody must be a neighbour.
            raise InvalidInput(
                "neighbours", "must not be given with a roster: authenticated rounds need the complete graph"
            )
        holders, least = self.holders, _least_threshold(self.holders, self.authenticated)
        fraction = "two thirds" if self.authenticated else "half"
        _require(
            "threshold",
            least <= self.threshold <= holders,
            f"must be from {least} to {holders} (more than {fraction} of a secret's {holders} holders), "
            f"not {self.threshold}",
        )
        self._check_pattern()
        _ = self.quantizer, self.digits  # Raise if the word is too short.

    def _check_pattern(self) -> None:
        contributors = self.contributors
        smallest = smallest_committee(self.pattern_settings) if self.pattern == "committee" else self.clients
        if smallest < SMALLEST_COMMITTEE:
            enough = -(-1000 * SMALLEST_COMMITTEE // self.clients) / 1000
            raise InvalidInput(
                "alpha",
                f"of {self.alpha:g} gives committees of {smallest} among {self.clients} clients, and "
                f"{SMALLEST_COMMITTEE} are the least: use {enough:g} or more",
            )
        _require(
            "min_survivors",
            1 <= self.min_survivors <= contributors,
            f"must be from 1 to {contributors}, the most users that send one coordinate, not {self.min_survivors}",
        )
        if self.max_weight and not PATTERNS[self.pattern].public:
            raise InvalidInput(
                "max_weight",
                f"must be 0 with {self.pattern}, which has public weights: use committee or full",
            )

    @property
    def alpha(self) -> float:
        """The α that was asked for."""
        return self.alpha_q32 / 2**32

    @property
    def authenticated(self) -> bool:
        """Whether users prove who they are, by the keys of a roster."""
        return any(self.roster_digest)

    @property
    def view(self) -> bytes:
        """What every message carries to show which parameters its sender works with."""
        return self.digest[:VIEW_SIZE]

    @property
    def holders(self) -> int:
        """How many users hold a share of one secret, its owner included."""
        return self.neighbours + 1 if self.neighbours else self.clients

    @cached_property
    def pattern_settings(self) -> PatternSettings:
        """What the pattern needs to know."""
        return PatternSettings(
            self.clients,
            self.dim,
            self.alpha_q32,
            self.neighbours or None,
            self.stripes,
            disjoint=self.max_weight > 0,
        )

    @property
    def pattern_type(self) -> type[Pattern]:
        """The pattern's class."""
        return PATTERNS[self.pattern]

    @property
    def contributors(self) -> int:
        """The most users that may send one coordinate."""
        return self.pattern_type.contributors(self.pattern_settings)

    @property
    def selection_probability(self) -> float:
        """The probability that a user sends a given coordinate (p in the paper)."""
        return self.pattern_type.selection_probability(self.pattern_settings)

    @cached_property
    def layout(self) -> Layout:
        """How the coordinates are cut into blocks."""
        return self.pattern_type.make_layout(self.pattern_settings)

    @property
    def word(self) -> Word:
        """The word that values travel in."""
        return Word.of(self.modulus_bits)

    @cached_property
    def quantizer(self) -> Quantizer:
        """The rounding that all users share."""
        return Quantizer.fit(self.word, self.contributors, self.clip)

    @cached_property
    def digits(self) -> Digits:
        """Private integers beside the values of each block: the weight, and how many values were clipped.

        A pattern with secret locations has blocks of one coordinate and carries neither.
        """
        maxima = (self.max_weight, self.layout.length) if self.pattern_type.public else (0, 0)
        return Digits.fit(self.word, self.contributors, maxima)

    @cached_property
    def width(self) -> int:
        """Words per block."""
        return self.layout.length + self.digits.total

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(data: bytes) -> RoundParameters:
        """Read and check parameters that came over the wire."""
        try:
            params = msgspec.msgpack.decode(data, type=RoundParameters)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise MalformedMessage("the bytes are not round parameters") from None
        params.check()
        return params

    @cached_property
    def digest(self) -> bytes:
        """What everybody's masks are bound to."""
        return digest("parameters", self.encode())

    def replace(self, **changes: Any) -> RoundParameters:
        """Return changed, checked parameters."""
        changed = msgspec.structs.replace(self, **changes)
        changed.check()
        return changed


def _least_threshold(holders: int, authenticated: bool) -> int:
    """More than half of the holders, or more than two thirds where a server may show different users different sets."""
    return 2 * holders // 3 + 1 if authenticated else holders // 2 + 1


def _require(option: str, holds: bool, problem: str) -> None:
    if not holds:
        raise InvalidInput(option, problem)
