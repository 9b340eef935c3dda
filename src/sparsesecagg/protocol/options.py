"""The choices of a round, in one value: `secure_sum`, `simulate`, `train`, `SecAgg` and the planner take or make it."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, fields
from typing import Any

from sparsesecagg.errors import InvalidInput

_KINDS: dict[str, tuple[str, type]] = {
    "bool": ("true or false", bool),
    "int": ("a whole number", numbers.Integral),
    "float": ("a number", numbers.Real),
    "str": ("a name", str),
}


def check_kinds(options: Any, skip: tuple[str, ...] = ()) -> None:
    """Raise unless every field of a dataclass holds a value of the type that it declares."""
    for field in fields(options):
        value, declared = getattr(options, field.name), str(field.type).split(" | ")
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
