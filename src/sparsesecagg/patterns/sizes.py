"""Sizes of the groups of a run: integers that every user computes alike.

N users are cut into G committees whose sizes differ by one at most, and the committees into pods that differ by one
committee at most. Both cuts are at ⌊i·N/G⌋, so that larger committees are spread evenly: pods with the same number of
committees differ by one user at most.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from sparsesecagg.errors import InvalidInput


def group_sizes(clients: int, committees: int, pods: int) -> list[list[int]]:
    """Return, for each pod, the sizes of its committees."""
    if not 1 <= committees <= clients:
        raise InvalidInput("committees", f"must be from 1 to the {clients} clients, got {committees}")
    if not 1 <= pods <= committees:
        raise InvalidInput("pods", f"must be from 1 to the {committees} committees, got {pods}")
    sizes = even_parts(clients, committees)
    parts = even_parts(committees, pods)
    return [sizes[end - part : end] for part, end in zip(parts, accumulate(parts), strict=True)]


def even_parts(whole: int, parts: int) -> list[int]:
    """Cut `whole` into `parts` integers that differ by one at most, the larger ones spread evenly."""
    cuts = [i * whole // parts for i in range(parts + 1)]
    return [end - start for start, end in pairwise(cuts)]


def scaled(least: int, size: int, smallest: int) -> int:
    """Return what a group of `size` needs if the smallest one needs `least`: the same fraction, rounded up."""
    return -(-least * size // smallest)
