"""The client's own policy: what it demands of a run, whatever the server says.

A server chooses the parameters, so a client that believed them would protect nobody. A policy is stated as what it
means: among how many honest users every opened sum must hide this one, if that part of the users helps the server, and
with which chance of failure per run. The client computes from the parameters whether they keep it, before it sends
anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from sparsesecagg.errors import InvalidInput, PolicyViolation
from sparsesecagg.field import WORD_BITS
from sparsesecagg.patterns.anonymity import Server, Structure, colluder_count, failure_log2, kept_anonymity
from sparsesecagg.protocol.parameters import Parameters

PROTECTING = frozenset({"committee", "full"})
"""`pairwise`, as published, gives single values away: only who asks for it by name takes part in it."""


@dataclass(frozen=True)
class Policy:
    """What a client demands. The default refuses any run in which the server could open the sum of a single user."""

    min_anonymity: int = 2
    """Honest users that every opened sum must have."""
    colluding: float = 0.0
    """The part of all users that may help the server."""
    failure_log2: float = -40.0
    """The chance per run that this may fail, as a power of two."""
    server: Server = "curious"
    """Follows the protocol and keeps everything it sees, or lies about anything; the latter takes a roster."""
    authenticated: bool = False
    """Take part only in runs that are bound to a roster of identities."""
    min_clients: int = 3
    """The smallest cohort."""
    min_survivors: int = 2
    """The smallest number of users, honest or not, whose sum may be opened."""
    max_exposure: float = inf
    """The most that α times this client's weight may be: how much of its influence one round may carry."""
    max_dim: int = 1 << 30
    max_clients: int = 1 << 17
    patterns: frozenset[str] = PROTECTING
    modulus_bits: frozenset[int] = frozenset(WORD_BITS)

    def __post_init__(self) -> None:
        """Refuse demands that no run could meet, with what could be met."""
        if not 0 <= self.colluding < 1:
            raise InvalidInput("colluding", f"must be in [0, 1), got {self.colluding}")
        if not self.min_clients <= self.max_clients:
            raise InvalidInput(
                "min_clients", f"must be at most max_clients, which is {self.max_clients}, got {self.min_clients}"
            )
        if not self.min_anonymity <= (most := _most_honest(self.max_clients, self.colluding)):
            raise InvalidInput(
                "min_anonymity",
                f"must be at most {most}, the honest users of the largest cohort that is allowed ({self.max_clients}), "
                f"got {self.min_anonymity}",
            )
        for name in ("patterns", "modulus_bits"):
            if not getattr(self, name):
                raise InvalidInput(name, "must allow at least one, or no run is good enough")

    def check_parameters(self, params: Parameters) -> None:
        """Raise `PolicyViolation`, with both figures, if the run's parameters keep less than this policy demands."""
        _demand(
            self.min_clients <= params.clients <= self.max_clients,
            f"the cohort has {params.clients} users, the policy allows {self.min_clients} to {self.max_clients}",
        )
        _demand(params.dim <= self.max_dim, f"the model has {params.dim} coordinates, the policy allows {self.max_dim}")
        _demand(
            params.authenticated or not (self.authenticated or self.server == "lying"),
            "the run is not authenticated, the policy demands a roster",
        )
        _demand(params.pattern in self.patterns, f"the pattern {params.pattern!r} is not allowed by the policy")
        _demand(
            params.modulus_bits in self.modulus_bits,
            f"words of {params.modulus_bits} bits are not allowed by the policy",
        )
        self.check_structure(params, params.structure)

    def check_structure(self, params: Parameters, structure: Structure) -> None:
        """Raise if groups of these sizes keep less anonymity than is demanded."""
        if params.pattern == "pairwise":
            return  # Whoever allows it knows that it keeps none.
        colluders = colluder_count(params.clients, self.colluding)
        found = _failure(structure, self.min_anonymity, colluders, self.server, params.confirm, params.dropout)
        if found <= self.failure_log2:
            return
        kept = kept_anonymity(
            structure,
            allowed_log2=self.failure_log2,
            colluders=min(colluders, structure.clients),
            server=self.server,
            confirm=params.confirm,
            dropout=params.dropout,
        )
        raise PolicyViolation(
            f"the run keeps an anonymity of {kept} at 2^{self.failure_log2:g} against a {self.server} server with "
            f"{self.colluding:g} colluding, the policy demands {self.min_anonymity}"
            + self._out_of_reach(params.clients)
        )

    def _out_of_reach(self, clients: int) -> str:
        """Return the end of a sentence if no groups of so many users could be enough."""
        most = _most_honest(clients, self.colluding)
        if self.min_anonymity <= most:
            return ""
        return f", and no run of {clients} users could keep more than {most}"

    def check_weight(self, params: Parameters, weight: int) -> None:
        """Raise if this client would put more into the round than it allows."""
        exposure = params.selection_probability * weight
        _demand(
            exposure <= self.max_exposure,
            # The weight is private, and this text may reach the server: no number.
            "α times this client's weight is more than its policy allows",
        )


@lru_cache(maxsize=64)  # All simulated users of a process ask the same.
def _failure(
    structure: Structure, anonymity: int, colluders: int, server: Server, confirm: bool, dropout: float
) -> float:
    return failure_log2(
        structure,
        anonymity=anonymity,
        colluders=min(colluders, structure.clients),
        server=server,
        confirm=confirm,
        dropout=dropout,
    )


def _most_honest(clients: int, colluding: float) -> int:
    """Return the honest users of a cohort: the most that any of its runs could hide one among, itself included."""
    return clients - colluder_count(clients, colluding)


def _demand(holds: bool, problem: str) -> None:
    if not holds:
        raise PolicyViolation(problem)
