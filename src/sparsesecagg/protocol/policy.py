"""The client's own policy: what it demands of a run, whatever the server says.

A server chooses the parameters, so a client that believed them would protect nobody. A policy is stated as what it
means: how many honest users every opened sum must have, if that fraction of the users helps the server, and with which
chance of failure per run. The client computes from group sizes and threshold whether they keep it, before it sends
anything. With a roster the default is a malicious server and a tenth of the users colluding; its owner may write less,
no field of the server's parameters can.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log2

from sparsesecagg.crypto.identity import USUAL_COLLUDING, Roster
from sparsesecagg.errors import PolicyViolation, PrivacyBudgetExhausted, require
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.patterns.groups import group_count
from sparsesecagg.privacy import anonymity
from sparsesecagg.privacy.accountant import Cost, require_epsilon, usable_delta
from sparsesecagg.privacy.anonymity import Promise, ServerModel
from sparsesecagg.privacy.mechanism import LARGEST_VARIANCE
from sparsesecagg.protocol.parameters import Parameters, check_kinds

_RUNS = 100
"""Runs of one ledger that δ must be able to pay for."""
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
    """With differential privacy: the most that this user spends, over all noisy runs of its ledger; None: no demand."""
    delta: float = 1e-5
    clip_norm: float | None = None
    """The largest 2-norm of an update, or of an example's part in it, that noise may be made for; None: any."""
    unit: str = "user"
    """What `max_epsilon` protects: all that this user sends, or each "example" of its data."""

    def __post_init__(self) -> None:
        """Refuse demands that no run could meet, with what could be met, and typos, which would demand nothing."""
        check_kinds(self, skip=("server", "patterns"))
        share, most_clients = self.colluding or 0.0, self.max_clients
        require("colluding", 0 <= share < 1, f"must be in [0, 1), got {share}")
        known = self.server is None or self.server in anonymity.SERVER_MODELS
        require("server", known, f"must be one of {', '.join(anonymity.SERVER_MODELS)}, got {self.server!r}")
        problem = f"must be from 0 to max_clients, which is {most_clients}, got {self.min_clients}"
        require("min_clients", 0 <= self.min_clients <= most_clients, problem)
        require("max_dim", self.max_dim >= 1, f"must be at least 1, got {self.max_dim}")
        most = most_clients - anonymity.colluder_count(most_clients, share)
        problem = f"must be from 0 to {most}, the honest users of the largest cohort that is allowed ({most_clients})"
        require("min_anonymity", 0 <= self.min_anonymity <= most, f"{problem}, got {self.min_anonymity}")
        if self.max_epsilon is not None:
            require_epsilon(self.max_epsilon, "max_epsilon")
        require("unit", self.unit in ("user", "example"), f"must be 'user' or 'example', got {self.unit!r}")
        # The groups of every run of a ledger may fail, and the budget is one for all of them.
        possible = _RUNS * 2**self.failure_log2 <= self.delta < 1
        lowest = f"2^{self.failure_log2 + log2(_RUNS):.3g}, {_RUNS} times the chance that the groups of a run fail"
        require("delta", possible, f"must be from {lowest}, to 1, got {self.delta}")
        norm = self.clip_norm
        require("clip_norm", norm is None or norm > 0, f"must be above 0, got {norm}")
        known = isinstance(self.patterns, set | frozenset) and set() < self.patterns <= PATTERNS.keys()
        require("patterns", known, f"must be a set of some of {', '.join(PATTERNS)}, got {self.patterns!r}")

    def check(self, params: Parameters, roster: Roster | None = None) -> Promise:
        """Return what a run keeps; raise `PolicyViolation`, with both figures, if that is less than is demanded."""
        clients, least, most, private = params.clients, self.min_clients, self.max_clients, self.max_epsilon is not None
        _demand(least <= clients <= most, f"the cohort has {clients} users, the policy allows {least} to {most}")
        _demand(params.dim <= self.max_dim, f"the model has {params.dim} coordinates, the policy allows {self.max_dim}")
        plain = not (self.authenticated or self.server == "malicious")
        _demand(plain or params.authenticated, "the run is not authenticated, the policy demands a roster")
        _demand(params.pattern in self.patterns, f"the pattern {params.pattern!r} is not allowed by the policy")
        if roster is not None:
            self._check_roster(params, roster)
        _demand(not private or params.mechanism is not None, "the run adds no noise, the policy demands it")
        _demand(
            not private or self.unit == "example" or not params.per_example,
            "the noise of the run protects single examples, the policy demands that it protects the user",
        )
        _demand(
            not private or self.delta < 1 / clients,
            f"the run has {clients} users, and delta must be below one over them, which {self.delta:g} is not",
        )
        _demand(
            self.clip_norm is None or params.clip_norm <= self.clip_norm,
            f"the run clips to a norm of {params.clip_norm:g}, the policy allows {self.clip_norm}",
        )
        server, colluding = self._adversary(roster)
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
        if params.mechanism is not None:
            sharing = sharing_noise(params, roster)
            _demand(min(kept, sharing) > 0, "the run adds noise but promises no honest user in every sum to share it")
            variance, largest = params.mechanism.variance, LARGEST_VARIANCE * sharing
            problem = f"the noise has a variance of {variance:g}, {sharing} users can share at most {largest:g}"
            _demand(variance <= largest, problem)
        return found

    def _adversary(self, roster: Roster | None) -> tuple[ServerModel, float]:
        """Return whom this policy is about: what the server does, and the fraction of the users that helps it."""
        server = self.server or ("malicious" if roster else "semi-honest")
        if self.colluding is not None:
            return server, self.colluding
        return server, max(USUAL_COLLUDING, roster.colluding) if roster else 0.0

    def check_budget(self, params: Parameters, spent: Cost, roster: Roster | None = None) -> None:
        """Raise `PrivacyBudgetExhausted` if one more upload would spend more than this user allows."""
        if self.max_epsilon is None or params.mechanism is None:
            return
        usable = usable_delta(self.delta, self.max_epsilon, self.failure_log2)
        after = (spent + self.cost(params, roster)).epsilon(usable)
        if after > self.max_epsilon:
            raise PrivacyBudgetExhausted(after, self.max_epsilon, self.delta)

    def cost(self, params: Parameters, roster: Roster | None = None) -> Cost:
        """Return what one upload costs, in this user's unit. What protects examples alone leaves a user no budget.

        An example decides about all of an upload that is clipped as a whole: without it the upload may be any other, so
        noise for users costs an example twice the norm. Who trusts fewer users than share the noise counts less of it.
        """
        if params.mechanism is None:
            return Cost()
        if params.per_example and self.unit == "user":
            return Cost(inf, inf)
        server, colluding = self._adversary(roster)
        kept = kept_by(params, server, colluding, self.failure_log2).anonymity
        counted = min(1.0, kept / max(1, sharing_noise(params, roster)))
        return params.mechanism.cost_of(counted, 2 if self.unit == "example" and not params.per_example else 1)

    def _check_roster(self, params: Parameters, roster: Roster) -> None:
        """Raise unless the run is cut as the roster says: another cut of the same draw is another draw."""
        _demand(roster.seed is not None, "the roster has no seed: build it with `sparsesecagg roster build`")
        cut = group_count(params.clients, roster.group_size)
        problem = f"the roster makes {cut} groups of {params.clients} users, the run has {params.groups}"
        _demand(params.groups in (1, cut), problem)


def kept_by(params: Parameters, server: ServerModel, colluding: float, failure_log2: float = -40.0) -> Promise:
    """Return what a run's groups and threshold keep."""
    colluders = anonymity.planned_colluders(params.clients, colluding) if colluding else 0
    if params.neighbours:  # Users see to it that survivors are joined by masks. Colluders may cut such a graph.
        kept = server == "semi-honest" and not colluders
        return Promise(params.quorum, 0, -inf) if kept else Promise(0, colluders, 0.0)
    return anonymity.promise(params.sizes, params.threshold, colluders, server, failure_log2)


def sharing_noise(params: Parameters, roster: Roster | None) -> int:
    """Return H: each user adds 1/H of a sum's noise.

    It follows from what all users know, and not from their policies, so that the noise of any H honest users is enough.
    """
    if roster is None:
        return kept_by(params, "semi-honest", params.colluding).anonymity
    return kept_by(params, "malicious", max(USUAL_COLLUDING, roster.colluding, params.colluding)).anonymity


def _demand(holds: bool, problem: str) -> None:
    if not holds:
        raise PolicyViolation(problem)
