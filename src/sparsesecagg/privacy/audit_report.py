"""What an audit is asked and what it answers: `AuditSettings`, the counts of its rounds, and `AuditReport`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sparsesecagg.errors import InvalidInput
from sparsesecagg.patterns.anonymity import colluder_count
from sparsesecagg.privacy.truth import Score
from sparsesecagg.protocol import RoundParameters


@dataclass(frozen=True)
class AuditSettings:
    """What to audit."""

    params: RoundParameters
    colluding: float = 0.0
    """Fraction of users that help the server (γ)."""
    rounds: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.colluding < 1:
            raise InvalidInput("colluding", f"must lie in [0, 1), not {self.colluding:g}")
        if self.rounds < 1:
            raise InvalidInput("rounds", f"must be at least 1, not {self.rounds}")
        if self.params.clients - self.colluders < 1:
            raise InvalidInput("colluding", f"of {self.colluding:g} leaves no honest user among {self.params.clients}")

    @property
    def colluders(self) -> int:
        """How many users collude."""
        return colluder_count(self.params.clients, self.colluding)

    @property
    def claimed_anonymity(self) -> float:
        """The paper's T = p(1−θ)(1−γ)N: honest contributors per coordinate, on average."""
        params = self.params
        return params.selection_probability * (1 - params.dropout) * (1 - self.colluding) * params.clients


@dataclass(frozen=True)
class Tally:
    """Counts of one round or of several; all of values (coordinate × user) of honest survivors unless it says more."""

    rounds: int = 0
    blocks: int = 0
    """Blocks that honest survivors sent, over all rounds."""
    coordinates: int = 0
    by_size: Counter[int] = field(default_factory=Counter)
    """Values by the size of their component."""
    singled_out: int = 0
    """Values of coordinates that a single honest survivor sent."""
    read: Score = field(default_factory=Score)
    pairs: Score = field(default_factory=Score)
    weights: Score = field(default_factory=Score)
    wrong_values: float = 0.0
    wrong_pairs: float = 0.0
    """Bounds on the expected number of wrong claims."""
    refused: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.rounds + other.rounds,
            self.blocks + other.blocks,
            self.coordinates + other.coordinates,
            self.by_size + other.by_size,
            self.singled_out + other.singled_out,
            self.read + other.read,
            self.pairs + other.pairs,
            self.weights + other.weights,
            self.wrong_values + other.wrong_values,
            self.wrong_pairs + other.wrong_pairs,
            self.refused + other.refused,
        )

    @property
    def values(self) -> int:
        """All values that honest survivors uploaded."""
        return self.by_size.total()


@dataclass(frozen=True)
class AuditReport:
    """What an audit found."""

    settings: AuditSettings
    tally: Tally

    @property
    def revealed_fraction(self) -> float:
        """Share of the honest survivors' values that the attacker read out of the transcripts."""
        return self.tally.read.count / max(1, self.tally.values)

    @property
    def unmasked_fraction(self) -> float:
        """Share of values in components of one: what the mask graph says is revealed."""
        return self.histogram.get(1, 0.0)

    @property
    def histogram(self) -> dict[int, float]:
        """Share of values by the size of their component."""
        values = max(1, self.tally.values)
        return {size: count / values for size, count in sorted(self.tally.by_size.items())}

    @property
    def smallest_component(self) -> int:
        """The size of the smallest component."""
        return min(self.tally.by_size, default=0)

    @property
    def mean_component(self) -> float:
        """The mean size of the component that a value sits in."""
        return sum(size * fraction for size, fraction in self.histogram.items())

    @property
    def contributors_mean(self) -> float:
        """Honest survivors who sent a coordinate, on average: what the paper's T promises."""
        return self.tally.values / max(1, self.tally.coordinates)

    @property
    def singled_out_fraction(self) -> float:
        """Share of values whose coordinate no other honest survivor sent: what the paper counts."""
        return self.tally.singled_out / max(1, self.tally.values)

    def as_json(self) -> dict[str, Any]:
        """Return the contract's keys first, then what else was counted."""
        params, tally = self.settings.params, self.tally
        return {
            "revealed_fraction": self.revealed_fraction,
            "honest_component": {
                "min": self.smallest_component,
                "mean": self.mean_component,
                "histogram": {str(size): fraction for size, fraction in self.histogram.items()},
            },
            "contributors_mean": self.contributors_mean,
            "claimed_T": self.settings.claimed_anonymity,
            "singled_out_fraction": self.singled_out_fraction,
            "values_recovered": {"count": tally.read.count, "correct": tally.read.correct},
            "pairs_found": {"count": tally.pairs.count, "correct": tally.pairs.correct},
            "weights_recovered": {"count": tally.weights.count, "correct": tally.weights.correct},
            "unmasked_fraction": self.unmasked_fraction,
            "wrong_expected_at_most": {"values": tally.wrong_values, "pairs": tally.wrong_pairs},
            "values": tally.values,
            "blocks": tally.blocks,
            "rounds": tally.rounds,
            "refused_rounds": tally.refused,
            "pattern": params.pattern,
            "clients": params.clients,
            "dim": params.dim,
            "alpha": params.alpha,
            "alpha_effective": params.selection_probability,
            "dropout": params.dropout,
            "colluding": self.settings.colluding,
            "colluders": self.settings.colluders,
            "threshold": params.threshold,
            "neighbours": params.neighbours or None,
            "min_survivors": params.min_survivors,
            "modulus_bits": params.modulus_bits,
            "max_weight": params.max_weight,
            "seed": self.settings.seed,
        }
