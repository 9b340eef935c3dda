"""What an audit is asked and what it answers: `AuditSettings`, the counts of its rounds, and `AuditReport`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final

from sparsesecagg.crypto.identity import Roster
from sparsesecagg.errors import require
from sparsesecagg.lab.audit.theory import expected_fraction
from sparsesecagg.privacy.anonymity import ServerModel, colluder_count, require_server
from sparsesecagg.protocol import Parameters, RoundOptions, Stage
from sparsesecagg.protocol.policy import kept_by

DROP_STAGES: Final = (Stage.UPLOAD, Stage.SHARE_KEYS)
_OF_SETTINGS = ("runs", "server", "colluding", "colluders", "authenticated", "seed")
_OF_PARAMETERS = ("pattern", "clients", "dim", "dropout", "groups", "threshold", "modulus_bits", "max_weight")


@dataclass(frozen=True)
class AuditSettings:
    """What to audit."""

    clients: int
    dim: int
    options: RoundOptions
    colluding: float = 0.0
    """Fraction of users that help the server (γ)."""
    rounds: int = 30
    """Of one run."""
    seed: int = 0
    runs: int = 1
    """Each has its own groups and colluders."""
    server: ServerModel = "semi-honest"
    """Semi-honest: follows the protocol and looks at everything. Malicious: tells every holder another story."""
    drop_at: Stage = Stage.UPLOAD
    """UPLOAD: who drops out of a round sends no update. SHARE_KEYS: no package of a later round either."""
    authenticated: bool = False

    def __post_init__(self) -> None:
        require("colluding", 0 <= self.colluding < 1, f"must be in [0, 1), got {self.colluding:g}")
        for name in ("rounds", "runs"):
            require(name, getattr(self, name) >= 1, f"must be at least 1, got {getattr(self, name)}")
        require_server(self.server)
        require("drop_at", self.drop_at in DROP_STAGES, f"must be one of UPLOAD, SHARE_KEYS, got {self.drop_at.name}")
        honest = self.colluders < self.params.clients
        require("colluding", honest, f"of {self.colluding:g} leaves no honest user among {self.clients}")
        # The fewest honest users would be those of a part that a malicious server cuts out of the graph.
        counted = self.server == "semi-honest" or not self.params.neighbours
        require("server", counted, "must be semi-honest with neighbours, which promise nothing against more")

    def params_of(self, roster: Roster | None = None, session: bytes | None = None) -> Parameters:
        """Return the parameters of a run. A malicious server takes a threshold that is made for the colluders."""
        options = self.options
        if options.colluding is None:
            made_for = min(self.colluding, 0.49) if self.server == "malicious" else 0.0
            options = replace(options, colluding=made_for)
        return Parameters.create(self.clients, self.dim, options, session=session, roster=roster)

    @cached_property
    def params(self) -> Parameters:
        """The parameters, but for session and roster."""
        return self.params_of(session=bytes(32))

    @property
    def colluders(self) -> int:
        """How many users collude."""
        return colluder_count(self.clients, self.colluding)

    @property
    def claimed_anonymity(self) -> float:
        """The paper's T, p(1−θ)(1−γ)N, at a coordinate that anybody sends: honest contributors on average."""
        params = self.params
        honest = (1 - params.dropout) * (1 - self.colluding) * params.clients
        return params.shape.fraction() / params.shape.coverage * honest

    @property
    def promised(self) -> int:
        """Honest users in every sum, as the planner promises them against this server."""
        return kept_by(self.params, self.server, self.colluding).anonymity if self.params.shape.protects else 0

    @property
    def expected_fraction(self) -> float | None:
        """The share of values that theory says is revealed, on average over many runs; None where it does not say."""
        if self.server == "malicious" or self.drop_at is not Stage.UPLOAD or self.params.neighbours:
            return None
        return None if self.colluders >= self.params.threshold else expected_fraction(self.params, self.colluding)


@dataclass(frozen=True)
class Score:
    """Claims, and how many of them are true."""

    count: int = 0
    correct: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(self.count + other.count, self.correct + other.correct)


@dataclass(frozen=True)
class Tally:
    """Counts of one round or of several; all of values (coordinate × user) of honest survivors unless it says more."""

    rounds: int = 0
    """In which something was opened."""
    unopened: int = 0
    """Rounds in which nothing was."""
    sums: int = 0
    """Sums that can be read and have an honest user in them."""
    coordinates: int = 0
    """That some honest survivor sent, summed over the rounds."""
    by_size: Counter[int] = field(default_factory=Counter)
    """Values by the size of their component."""
    closed: int = 0
    """Values that were uploaded and are in no sum that can be read."""
    singled_out: int = 0
    """Values of coordinates that a single honest survivor sent."""
    read: Score = field(default_factory=Score)
    pairs: Score = field(default_factory=Score)
    weights: Score = field(default_factory=Score)
    wrong_values: float = 0.0
    wrong_pairs: float = 0.0
    """Bounds on the expected number of wrong claims."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    @property
    def values(self) -> int:
        """All values of honest users that are in a sum that can be read."""
        return self.by_size.total()


class AuditReport:
    """What an audit found. Values are those of honest survivors."""

    def __init__(self, settings: AuditSettings, tally: Tally) -> None:
        self.settings, self.tally = settings, tally
        values = max(1, tally.values)
        self.revealed_fraction = tally.read.count / values
        """Share of the values that the attacker read out of the transcripts."""
        self.histogram = {size: count / values for size, count in sorted(tally.by_size.items())}
        """Share of values by the size of their component."""
        self.unmasked_fraction = self.histogram.get(1, 0.0)
        """Share of values in components of one: what the mask graph says is revealed."""
        self.smallest_component = min(tally.by_size, default=0)
        self.mean_component = sum(size * fraction for size, fraction in self.histogram.items())
        """The mean size of the component that a value sits in."""
        self.contributors_mean = tally.values / max(1, tally.coordinates)
        """Honest survivors who sent a coordinate, on average over those that one sent. The paper's T is over all."""
        self.singled_out_fraction = tally.singled_out / values
        """Share of values whose coordinate no other honest survivor sent: what the paper counts."""

    def as_json(self) -> dict[str, Any]:
        """Return the contract's keys first, then what else was counted."""
        settings, params, tally = self.settings, self.settings.params, self.tally
        return {
            "revealed_fraction": self.revealed_fraction,
            "honest_component": {
                "min": self.smallest_component,
                "mean": self.mean_component,
                "histogram": {str(size): fraction for size, fraction in self.histogram.items()},
            },
            "contributors_mean": self.contributors_mean,
            "claimed_T": settings.claimed_anonymity,
            "singled_out_fraction": self.singled_out_fraction,
            "values_recovered": vars(tally.read),
            "pairs_found": vars(tally.pairs),
            "weights_recovered": vars(tally.weights),
            "unmasked_fraction": self.unmasked_fraction,
            "promised": settings.promised,
            "wrong_expected_at_most": {"values": tally.wrong_values, "pairs": tally.wrong_pairs},
            "revealed_in_theory": settings.expected_fraction,
            "values": tally.values,
            "values_not_opened": tally.closed,
            "sums": tally.sums,
            "rounds": tally.rounds,
            "rounds_not_opened": tally.unopened,
            **{name: getattr(settings, name) for name in _OF_SETTINGS},
            **{name: getattr(params, name) for name in _OF_PARAMETERS},
            "drop_at": settings.drop_at.name,
            "alpha": float(f"{params.alpha:.9g}"),  # As it was typed: parameters hold multiples of 2^−32.
            "alpha_effective": params.shape.fraction(),
            "group_size": {"min": min(params.sizes), "max": max(params.sizes)},
            "neighbours": params.neighbours or None,
        }
