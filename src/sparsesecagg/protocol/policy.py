"""The client's own policy: what it demands of a run, whatever the server says.

A server chooses the parameters, so a client that believed them would protect nobody. A policy is stated as what it
means: how many honest users every opened sum must have, if that fraction of the users helps the server, and with which
chance of failure per run. The client computes from group sizes and threshold whether they keep it, before it sends
anything. With a roster the default is a malicious server and a tenth of the users colluding; its owner may write less,
no field of the server's parameters can.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from sparsesecagg.crypto.identity import USUAL_COLLUDING, Roster
from sparsesecagg.errors import InvalidInput, PolicyViolation, PrivacyBudgetExhausted
from sparsesecagg.patterns import PATTERNS, group_count
from sparsesecagg.privacy.accountant import Cost, require_epsilon, usable_delta
from sparsesecagg.privacy.anonymity import (
    SERVER_MODELS,
    Promise,
    ServerModel,
    colluder_count,
    planned_colluders,
    promise,
    sparse_promise,
)
from sparsesecagg.protocol.parameters import Parameters

PROTECTING = frozenset(name for name, pattern in PATTERNS.items() if pattern.protects)
"""`pairwise`, as published, gives single values away: only who asks for it by name takes part in it."""


@dataclass(frozen=True)
class Policy:
    """What a client demands. The default refuses any run in which the server could open the sum of a single user."""

    min_anonymity: int = 2
    """Honest users that every opened sum must have."""
    colluding: float | None = None
    """The fraction of all users that may help the server; None: the roster's, at least a tenth, or none without one."""
    failure_log2: float = -40.0
    """The chance per run that this may fail, as a power of two."""
    server: ServerModel | None = None
    """Semi-honest or malicious; the latter takes a roster. None: malicious with a roster, semi-honest without."""
    authenticated: bool = False
    """Take part only in runs that are bound to a roster of identities."""
    min_clients: int = 3
    """The smallest cohort."""
    max_dim: int = 1 << 30
    max_clients: int = 1 << 17
    patterns: frozenset[str] = PROTECTING
    max_epsilon: float | None = None
    """With differential privacy: the most that this user spends, over all runs of its ledger; None: no demand."""
    delta: float = 1e-5
    clip_norm: float | None = None
    """The largest 2-norm of an update, or of an example's part in it, that noise may be made for; None: any."""
    unit: str = "user"
    """What `max_epsilon` protects: all that this user sends, or each "example" of its data."""

    def __post_init__(self) -> None:
        """Refuse demands that no run could meet, with what could be met."""
        if self.colluding is not None and not 0 <= self.colluding < 1:
            raise InvalidInput("colluding", f"must be in [0, 1), got {self.colluding}")
        if self.server is not None and self.server not in SERVER_MODELS:
            raise InvalidInput("server", f"must be one of {', '.join(SERVER_MODELS)}, got {self.server!r}")
        if not self.min_clients <= self.max_clients:
            raise InvalidInput(
                "min_clients", f"must be at most max_clients, which is {self.max_clients}, got {self.min_clients}"
            )
        most = self.max_clients - colluder_count(self.max_clients, self.colluding or 0.0)
        if not self.min_anonymity <= most:
            raise InvalidInput(
                "min_anonymity",
                f"must be at most {most}, the honest users of the largest cohort that is allowed ({self.max_clients}), "
                f"got {self.min_anonymity}",
            )
        if self.max_epsilon is not None:
            require_epsilon(self.max_epsilon, "max_epsilon")
        if self.unit not in ("user", "example"):
            raise InvalidInput("unit", f"must be 'user' or 'example', got {self.unit!r}")
        if not 2**self.failure_log2 < self.delta < 1:
            raise InvalidInput("delta", f"must be in (2^{self.failure_log2:g}, 1), got {self.delta}")
        if not self.patterns:
            raise InvalidInput("patterns", "must allow at least one, or no run is good enough")

    def check(self, params: Parameters, roster: Roster | None = None) -> Promise:
        """Return what a run keeps; raise `PolicyViolation`, with both figures, if that is less than is demanded."""
        _demand(
            self.min_clients <= params.clients <= self.max_clients,
            f"the cohort has {params.clients} users, the policy allows {self.min_clients} to {self.max_clients}",
        )
        _demand(params.dim <= self.max_dim, f"the model has {params.dim} coordinates, the policy allows {self.max_dim}")
        _demand(
            params.authenticated or not (self.authenticated or self.server == "malicious"),
            "the run is not authenticated, the policy demands a roster",
        )
        _demand(params.pattern in self.patterns, f"the pattern {params.pattern!r} is not allowed by the policy")
        if roster is not None:
            self._check_roster(params, roster)
        _demand(
            self.max_epsilon is None or params.mechanism is not None, "the run adds no noise, the policy demands it"
        )
        _demand(
            self.max_epsilon is None or self.unit == "example" or not params.per_example,
            "the noise of the run protects single examples, the policy demands that it protects the user",
        )
        _demand(
            self.max_epsilon is None or self.delta < 1 / params.clients,
            f"the run has {params.clients} users, and delta must be below one over them, which {self.delta:g} is not",
        )
        _demand(
            self.clip_norm is None or params.clip_norm <= self.clip_norm,
            f"the run clips to a norm of {params.clip_norm:g}, the policy allows {self.clip_norm}",
        )
        server = self.server or ("malicious" if roster else "semi-honest")
        colluding = self.colluding
        if colluding is None:
            colluding = max(USUAL_COLLUDING, roster.colluding) if roster else 0.0
        found = kept_by(params, server, colluding, self.failure_log2)
        if not params.shape.protects:
            return found  # An owner that allows it knows that it protects nothing.
        kept = found.anonymity
        _demand(
            kept >= self.min_anonymity,
            f"the run keeps {kept} honest users in every sum at 2^{self.failure_log2:g} against a {server} server with "
            f"{colluding:g} colluding (groups of {params.contributors}, threshold {params.threshold}), the policy "
            f"demands {self.min_anonymity}",
        )
        return found

    def check_budget(self, params: Parameters, spent: Cost) -> None:
        """Raise `PrivacyBudgetExhausted` if one more upload would spend more than this user allows."""
        if self.max_epsilon is None or params.mechanism is None:
            return
        usable = usable_delta(self.delta, self.max_epsilon, self.failure_log2)
        after = (spent + self.cost(params)).epsilon(usable)
        if after > self.max_epsilon:
            raise PrivacyBudgetExhausted(after, self.max_epsilon, self.delta)

    def cost(self, params: Parameters) -> Cost:
        """Return what one upload costs, in this user's unit. What protects examples alone leaves a user no budget."""
        if params.mechanism is None:
            return Cost()
        return Cost(inf, inf) if params.per_example and self.unit == "user" else params.mechanism.cost

    def _check_roster(self, params: Parameters, roster: Roster) -> None:
        """Raise unless the run is cut as the roster says: another cut of the same draw is another draw."""
        _demand(bool(roster.seed), "the roster has no seed: build it with `sparsesecagg roster build`")
        expected = group_count(params.clients, roster.group_size)
        _demand(
            params.groups in (1, expected),
            f"the roster makes {expected} groups of {params.clients} users, the run has {params.groups}",
        )


def kept_by(params: Parameters, server: ServerModel, colluding: float, failure_log2: float = -40.0) -> Promise:
    """Return what a run's groups and threshold keep."""
    colluders = planned_colluders(params.clients, colluding) if colluding else 0
    if params.neighbours:
        if server == "malicious":
            return Promise(0, colluders, 0.0)
        graph = params.neighbours, params.threshold
        return sparse_promise(params.clients, params.quorum, graph, colluders, failure_log2)
    return promise(params.sizes, params.threshold, colluders, server, failure_log2)


def _demand(holds: bool, problem: str) -> None:
    if not holds:
        raise PolicyViolation(problem)
