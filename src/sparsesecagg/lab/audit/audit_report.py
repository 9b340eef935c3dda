"""What an audit is asked and what it answers: `AuditSettings`, the counts of its rounds, and `AuditReport`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.anonymity import colluder_count
from sparsesecagg.lab.audit.exposure import expected_fraction
from sparsesecagg.lab.audit.truth import Score
from sparsesecagg.protocol import Parameters, Stage

SERVERS = ("curious", "lying")
DROP_STAGES = (Stage.UPLOAD, Stage.SHARE_KEYS)


@dataclass(frozen=True)
class AuditSettings:
    """What to audit."""

    params: Parameters
    colluding: float = 0.0
    """Fraction of users that help the server (γ)."""
    rounds: int = 30
    """Of one run."""
    seed: int = 0
    runs: int = 1
    """Each with groups and colluders of its own."""
    server: str = "curious"
    """Curious: follows the protocol and looks at everything. Lying: chooses who is declared dropped."""
    drop_at: Stage = Stage.UPLOAD
    """UPLOAD: who drops out of a round sends no update. SHARE_KEYS: no package of a later round either."""

    def __post_init__(self) -> None:
        if not 0 <= self.colluding < 1:
            raise InvalidInput("colluding", f"must be in [0, 1), got {self.colluding:g}")
        if self.rounds < 1:
            raise InvalidInput("rounds", f"must be at least 1, got {self.rounds}")
        if self.runs < 1:
            raise InvalidInput("runs", f"must be at least 1, got {self.runs}")
        if self.server not in SERVERS:
            raise InvalidInput("server", f"must be one of {', '.join(SERVERS)}, got {self.server!r}")
        if self.drop_at not in DROP_STAGES:
            raise InvalidInput("drop_at", f"must be one of UPLOAD, SHARE_KEYS, got {self.drop_at.name}")
        if self.params.clients - self.colluders < 1:
            raise InvalidInput("colluding", f"of {self.colluding:g} leaves no honest user among {self.params.clients}")
        if self.server == "lying" and self.params.neighbours:
            # The fewest honest users would be those of a part that the server cuts out of the graph.
            raise InvalidInput(
                "server", "must be curious with neighbours: which lie is best is not known for such graphs"
            )

    @property
    def colluders(self) -> int:
        """How many users collude."""
        return colluder_count(self.params.clients, self.colluding)

    @property
    def claimed_anonymity(self) -> float:
        """The paper's T = p(1−θ)(1−γ)N: honest contributors per coordinate, on average."""
        params = self.params
        return params.selection_probability * (1 - params.dropout) * (1 - self.colluding) * params.clients

    @property
    def expected_fraction(self) -> float | None:
        """The share of values that theory says is revealed, on average over many runs; None where it does not say."""
        params = self.params
        if self.server == "lying" or self.drop_at is not Stage.UPLOAD or params.neighbours:
            return None
        if self.colluders >= params.threshold_of(params.holders):
            return None
        return expected_fraction(params, self.colluding)


@dataclass(frozen=True)
class Tally:
    """Counts of one round or of several; all of values (coordinate × user) of honest survivors unless it says more."""

    rounds: int = 0
    """In which something was opened."""
    unopened: int = 0
    """Rounds in which nothing was."""
    sums: int = 0
    """Sums of one slice over one committee that were opened and have an honest user in them."""
    coordinates: int = 0
    by_size: Counter[int] = field(default_factory=Counter)
    """Values by the size of their component."""
    closed: int = 0
    """Values that were uploaded and are in no sum that can be opened."""
    singled_out: int = 0
    """Values of coordinates that a single honest survivor sent."""
    read: Score = field(default_factory=Score)
    pairs: Score = field(default_factory=Score)
    weights: Score = field(default_factory=Score)
    wrong_values: float = 0.0
    wrong_pairs: float = 0.0
    """Bounds on the expected number of wrong claims."""
    stopped: int = 0
    """Users that noticed a lie and left the run."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.rounds + other.rounds,
            self.unopened + other.unopened,
            self.sums + other.sums,
            self.coordinates + other.coordinates,
            self.by_size + other.by_size,
            self.closed + other.closed,
            self.singled_out + other.singled_out,
            self.read + other.read,
            self.pairs + other.pairs,
            self.weights + other.weights,
            self.wrong_values + other.wrong_values,
            self.wrong_pairs + other.wrong_pairs,
            self.stopped + other.stopped,
        )

    @property
    def values(self) -> int:
        """All values of honest users that are in a sum that can be opened."""
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
            "revealed_in_theory": self.settings.expected_fraction,
            "values": tally.values,
            "values_not_opened": tally.closed,
            "sums": tally.sums,
            "rounds": tally.rounds,
            "rounds_not_opened": tally.unopened,
            "runs": self.settings.runs,
            "users_stopped": tally.stopped,
            "server": self.settings.server,
            "drop_at": self.settings.drop_at.name,
            "pattern": params.pattern,
            "clients": params.clients,
            "dim": params.dim,
            "alpha": params.alpha,
            "alpha_effective": params.selection_probability,
            "dropout": params.dropout,
            "colluding": self.settings.colluding,
            "colluders": self.settings.colluders,
            "pods": params.pods,
            "committees": params.committees,
            "committee_size": params.smallest_committee,
            "threshold": params.threshold,
            "neighbours": params.neighbours or None,
            "min_survivors": params.min_survivors,
            "authenticated": params.authenticated,
            "confirm": params.confirm,
            "modulus_bits": params.modulus_bits,
            "max_weight": params.max_weight,
            "seed": self.settings.seed,
        }
