"""What the server chooses itself while the run is under way: groups for the nodes at hand, and clips.

Where `SecAgg` is told no α, it asks the planner for groups that hide every node among enough others. The planner knows
the number of nodes only when the first round begins, so the choice is made then, and logged. A cohort that is too small
for any plan gets one committee of all nodes, with the highest thresholds that its dropouts allow, and the log says what
that keeps.

The clips of the next round come from what the server may know anyway: the last means and how many values were clipped.
`quantize/clips.py` has the rule: some headroom times the largest magnitude in the last mean. Every array has a clip of
its own, since the statistics of a normalisation layer move by whole numbers where weights move by thousandths. No
single update is known, but the mean is, and a user's values are rarely many times larger than the mean's largest. Where
they were, the count of clipped values tells, and the clips grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Any, Final

from sparsesecagg.errors import InvalidInput
from sparsesecagg.privacy.anonymity import SERVERS, Server, availability, colluder_count, kept_anonymity
from sparsesecagg.planning.candidates import FAILED_POD, THIN_COMMITTEE, highest_demand
from sparsesecagg.planning.message_sizes import LONGEST_WORD, default_levels, message_bytes, shortest_word
from sparsesecagg.planning.plan import DEFAULT_FAILURE_LOG2, SMALLEST_COHORT, Goal
from sparsesecagg.planning.planner import plan_round
from sparsesecagg.protocol import Parameters
from sparsesecagg.rounding import next_clips

EXTRA_LEVELS: Final = 8
"""Levels beyond the planner's: clips leave room for single updates, and weights are seldom near their limit."""

GROWTH = 4.0
"""How much a clip grows after a round in which values were clipped, and changes at most after others."""
CEILING = 1024.0
"""Beyond this multiple of the mean's largest value a wider clip is no help: what is clipped then is an outlier."""
MEMORY = 0.7
"""How much of an earlier round's size counts: a mean may come close to zero by chance."""


# Groups


@dataclass(frozen=True)
class Wish:
    """What the groups must keep where no α is given: `min_anonymity` honest nodes in every sum."""

    min_anonymity: int = 5
    colluding: float = 0.1
    failure_log2: float = DEFAULT_FAILURE_LOG2
    server: Server = "lying"

    def __post_init__(self) -> None:
        """Refuse what no cohort could keep."""
        if isinstance(self.min_anonymity, bool) or not isinstance(self.min_anonymity, int) or self.min_anonymity < 1:
            raise InvalidInput("min_anonymity", f"must be a whole number of at least 1, got {self.min_anonymity!r}")
        if not isinstance(self.colluding, int | float) or not 0 <= self.colluding < 0.5:
            raise InvalidInput("colluding", f"must be at least 0 and below 0.5, got {self.colluding!r}")
        if self.server not in SERVERS:
            raise InvalidInput("server", f"must be one of {', '.join(SERVERS)}, got {self.server!r}")

    def goal(self, clients: int, dim: int, dropout: float, *, confirm: bool | None) -> Goal:
        """Return the wish as a goal of the planner, for a cohort that is large enough to have one."""
        return Goal(
            clients=clients,
            dim=dim,
            dropout=dropout,
            colluding=self.colluding,
            min_anonymity=self.min_anonymity,
            failure_log2=self.failure_log2,
            server=self.server,
            confirm=confirm,
        )


def choose(
    wish: Wish, clients: int, dim: int, dropout: float, *, roster: bool, confirm: bool | None = None
) -> dict[str, Any]:
    """Return groups for a cohort, as arguments of `Parameters.create`.

    CONFIRM, a third exchange, only helps against a server that lies, and without a roster such a server has other
    ways. So it is planned only where there is a roster, or where it is asked for.
    """
    if confirm is None and not roster:
        confirm = False
    if clients >= max(SMALLEST_COHORT, wish.min_anonymity):
        plan = plan_round(wish.goal(clients, dim, dropout, confirm=confirm))
        if plan.feasible:
            names = ("committees", "pods", "served", "threshold", "min_survivors", "confirm")
            return {name: plan.round_options()[name] for name in names}
    available = availability(dropout)
    survivors = max(2, ceil(clients / 2), highest_demand(available, THIN_COMMITTEE, (clients,)))
    threshold = max((2 if roster else 1) * clients // (3 if roster else 2) + 1, _threshold(clients, available))
    options = {"committees": 1, "pods": 1, "served": 1, "min_survivors": survivors, "threshold": threshold}
    return {**options, "confirm": confirm}


def _threshold(clients: int, available: float) -> int:
    return highest_demand(available, FAILED_POD, (clients,))


def word_bits(members: int, max_weight: int | None) -> int:
    """Return the bits of a word for committees of so many: short ones if the largest weight is known or all are alike.

    A weight scales an update before it is rounded. Where nobody knows how large weights are, only a long word has
    levels enough for small ones.
    """
    if max_weight is None:
        return LONGEST_WORD
    return shortest_word(members, EXTRA_LEVELS * default_levels(members), 1.0)


def smallest_number(clients: int, online: int) -> str:
    """Return the sentence for a cohort that is too small for any secure aggregation."""
    why = "with two, each would learn the other's update from the sum" if clients == 2 else "a sum needs others"
    if online >= SMALLEST_COHORT:
        remedy = f"{online} are online, so raise fraction_train or min_train_nodes=3 of the strategy"
    else:
        remedy = (
            "set num-supernodes of the simulation to 3 or more (or start more SuperNodes), and min_available_nodes=3 "
            "of the strategy, so that it waits for them"
        )
    return f"must choose 3 nodes or more, and chose {clients} ({why}): {remedy}"


def described(params: Parameters, wish: Wish, max_weight: int | None) -> list[str]:
    """Return what was chosen for a cohort: groups, anonymity, α asked and used, bytes; a sentence each."""
    largest = max(size for size, _ in params.structure.kinds)
    members = f"{params.smallest_committee}" + (f" or {largest}" if largest > params.smallest_committee else "")
    groups = f"{params.committees} committees of {members}" if params.committees > 1 else "one committee of all"
    sent, received = round_bytes(params)
    colluders = colluder_count(params.clients, wish.colluding)
    lines = [
        f"no alpha was asked for, {params.selection_probability:.3g} is used: {params.clients} nodes in {groups}, "
        f"words of {params.modulus_bits} bits; each node sends about {_kilobytes(sent)} per round and receives "
        f"{_kilobytes(received)} besides the model",
        f"anonymity: every sum holds {anonymity(params, wish)} honest nodes or more, with {colluders} of the "
        f"{params.clients} colluding {_against(params, wish)}",
    ]
    if params.committees == 1:
        enough = _sparse_from(params, wish)
        lines.append(
            f"{params.clients} nodes are too few to split into committees for an anonymity of {wish.min_anonymity}, so "
            "each sends the whole model" + (f"; from {enough} nodes on each would send less" if enough else "")
        )
    short = word_bits(largest, 0)
    if max_weight is None and short < params.modulus_bits:
        less, _ = round_bytes(params.replace(modulus_bits=short, max_weight=0))
        lines.append(
            f"words are long because the largest weight is not known: max_weight=… (the most examples of a node) or "
            f'weights="uniform" would make them {short} bits, {_kilobytes(less)} per round'
        )
    return lines


def anonymity(params: Parameters, wish: Wish) -> int:
    """Return how many honest nodes every sum of a run keeps, against the wished server or the one that is possible."""
    colluders = min(colluder_count(params.clients, wish.colluding), params.clients)
    return kept_anonymity(
        params.structure,
        allowed_log2=wish.failure_log2,
        colluders=colluders,
        server=_server(params, wish),
        confirm=params.confirm,
        dropout=params.dropout,
    )


def round_bytes(params: Parameters) -> tuple[int, int]:
    """Return the bytes that a node of the largest groups sends and receives in a round in steady state."""
    groups = params.structure
    sizes = message_bytes(
        dim=params.dim,
        committees=params.committees,
        served=params.served,
        modulus_bits=params.modulus_bits,
        committee_size=max(size for size, _ in groups.kinds),
        pod_size=groups.largest_pod,
        pod_committees=max(map(len, groups.sizes)),
        confirm=params.confirm,
        dropout=params.dropout,
    )
    return sum(sizes.sent.values()), sum(sizes.received.values())


def _server(params: Parameters, wish: Wish) -> Server:
    return wish.server if params.authenticated else "curious"


def _against(params: Parameters, wish: Wish) -> str:
    if _server(params, wish) == "lying":
        return "and the server lies"
    also = "; against one that lies nodes need a roster" if wish.server == "lying" else ""
    return f"with a server that follows the protocol{also}"


def _sparse_from(params: Parameters, wish: Wish) -> int | None:
    """Return how many nodes could be split into committees; None if not even many more could."""
    for clients in range(max(params.clients, wish.min_anonymity), 8 * max(params.clients, wish.min_anonymity)):
        confirm = params.confirm if params.confirm or not params.authenticated else None
        plan = plan_round(wish.goal(clients, params.dim, params.dropout, confirm=confirm))
        if (plan.committees or 1) > 1:
            return clients
    return None


def _kilobytes(count: int) -> str:
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


# Clips


def headroom(parameters: int) -> float:
    """Return how much larger than the mean's largest value a single update may be before it is clipped.

    The largest of thousands of parameters is a steady figure; the largest of a few may be small by chance.
    """
    return 8.0 * (1 + 6 / sqrt(parameters))


@dataclass
class Clips:
    """The largest change of a parameter that is sent, for each array of the model."""

    first: float
    """What all arrays begin with."""
    adaptive: bool = True
    values: list[float] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    _seen: list[float] = field(default_factory=list)

    def of(self, sizes: Sequence[int]) -> tuple[float, ...]:
        """Return the clips of a model whose arrays have so many parameters; another model begins anew."""
        if list(sizes) != self._sizes:
            self._sizes = list(sizes)
            self.values, self._seen = [self.first] * len(sizes), [0.0] * len(sizes)
        return tuple(self.values)

    def save(self) -> tuple[list[float], list[int], list[float]]:
        """Return what the next clips depend on."""
        return self.values, self._sizes, self._seen

    def restore(self, state: tuple[list[float], list[int], list[float]]) -> None:
        """Go back to what `save` returned."""
        self.values, self._sizes, self._seen = (list(each) for each in state)  # type: ignore[assignment]

    def learn(self, largest: Sequence[float], clipped: int | None) -> None:
        """Adapt to a completed round, given the largest magnitude in each array of its mean."""
        if not self.adaptive:
            return
        usable = [size if size < float("inf") else 0.0 for size in largest]  # Also for what is not a number.
        self._seen = [max(now, MEMORY * before) for now, before in zip(usable, self._seen, strict=True)]
        known = [seen > 0 for seen in self._seen]
        if not clipped:
            headrooms = [headroom(size) for size in self._sizes]
            self.values = next_clips(self.values, self._seen, headrooms, fastest=GROWTH, known=known).tolist()
            return
        # Only the number of clipped values is known. Suspects are arrays whose mean has come near its clip; without
        # any, all arrays are.
        near = [8 * seen > value for seen, value in zip(self._seen, self.values, strict=True)]
        for place, value in enumerate(self.values):
            if known[place] and (near[place] or not any(near)) and value < CEILING * self._seen[place]:
                self.values[place] = value * GROWTH
