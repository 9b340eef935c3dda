"""Patterns: who sends which block, and which pairs mask it (10)."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache

from vectors.verifier.graphs import circle_graph, permutation, permutation_stream
from vectors.verifier.hashing import KeyStream
from vectors.verifier.parameters import Parameters

ONE = 2**64


def probability(alpha_q32: int, degree: int) -> int:
    """Return P, the probability of a one in units of 2^−64."""
    return alpha_q32 * 2**32 // degree


@lru_cache
def gap_table(p: int) -> tuple[int, ...]:
    """Return T[0] … T[size−1]."""
    none = ONE
    table = []
    for _ in range(min(4 * ONE // p + 1, 65536)):
        none = none * (ONE - p) // ONE
        table.append(ONE - none - 1)
    return tuple(table)


def sample_gaps(p: int, pattern_seed: bytes, dim: int) -> list[int]:
    """Return the coordinates where b_ij is 1."""
    table = gap_table(p)
    stream = KeyStream(pattern_seed)
    positions = []
    passed = 0
    while passed < dim:
        gap = bisect_left(table, stream.integer(8))  # How many entries are smaller: the table never falls.
        if gap == len(table):
            passed += len(table)
        else:
            passed += gap + 1
            if passed <= dim:
                positions.append(passed - 1)
    return positions


def committees_of(parameters: Parameters, context: bytes, members: Sequence[int]) -> list[list[int]]:
    """Return the committee of each block, in the order of its circle."""
    stream = permutation_stream(context, "committees")
    a, b = parameters.fraction
    larger = {step * a % b for step in range(len(members) % b)}
    committees = []
    for _ in range(parameters.used_stripes):
        order = permutation(members, stream)
        arcs = []
        for arc in range(b):
            size = len(members) // b + (arc in larger)
            arcs.append(order[:size])
            order = order[size:]
        for block in range(b):
            committees.append([user for step in range(a) for user in arcs[(block + step) % b]])
    return committees


class Pattern:
    """The pattern of a round whose members are known."""

    def __init__(
        self, parameters: Parameters, context: bytes, members: Sequence[int], neighbours: Mapping[int, Sequence[int]]
    ) -> None:
        self.parameters = parameters
        if parameters.pattern == "committee":
            self.senders = committees_of(parameters, context, members)
            self.graphs = [circle_graph(committee, parameters.neighbours) for committee in self.senders]
        else:
            self.senders = [list(members)] * parameters.blocks  # With `pairwise`: those who may send.
            self.graphs = [{u: [v for v in neighbours[u] if v in members] for u in members}]

    def peers(self, user: int) -> list[int]:
        """Return the users with whom this one masks, sorted."""
        return sorted({peer for graph in self.graphs for peer in graph.get(user, ())})

    def blocks_of_pair(self, user: int, peer: int, pattern_seed: bytes) -> list[int]:
        """Return the blocks that a pair of peers masks."""
        p = self.parameters
        if p.pattern == "full":
            return list(range(p.blocks))
        if p.pattern == "pairwise":
            return sample_gaps(probability(p.alpha_q32, p.neighbours or p.clients - 1), pattern_seed, p.dim)
        return [block for block, graph in enumerate(self.graphs) if peer in graph.get(user, ())]

    def public_blocks(self, user: int) -> list[int]:
        """Return the blocks that a user sends with a public pattern."""
        return [block for block, senders in enumerate(self.senders) if user in senders]
