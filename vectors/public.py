"""Vectors of what everybody can compute: patterns, graphs, quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.field import Word
from sparsesecagg.patterns import Committee, Full, PatternSettings, served_fraction
from sparsesecagg.patterns.gaps import GapTable, bernoulli_positions
from sparsesecagg.patterns.graphs import CircleGraph, permutations, share_graph
from sparsesecagg.patterns.pairwise import Pairwise
from sparsesecagg.quantize import Digits, Quantizer
from vectors.form import Vector, integers, named_bytes, wide


def gap_sampling() -> Vector:
    """Bernoulli patterns by their gaps."""
    tenth = round(0.1 * 2**32)
    cases = [
        ("the densest: α = 1 among 3 users", 1 << 32, 2, 60),
        ("a table of a few entries, so that skips occur", round(0.7 * 2**32), 4, 400),
        ("α = 0.1 among 100 users", tenth, 99, 20_000),
        ("a graph of degree 8", tenth, 8, 2_000),
        ("the table is cut at 2^16 entries, so most draws skip", round(0.001 * 2**32), 999, 3_000_000),
        ("an empty pattern", 1, 2, 50),
    ]
    return {
        "about": "The positions of the ones of b_ij. `probability` = ⌊alpha_q32 · 2^32 / degree⌋ in units of 2^−64; "
        "`table` has the first four entries and the last one.",
        "cases": [_gap_case(*case) for case in cases],
    }


def _gap_case(about: str, alpha_q32: int, degree: int, dim: int) -> dict[str, Any]:
    settings = PatternSettings(clients=degree + 1, dim=dim, alpha=alpha_q32, degree=None, stripes=1)
    probability = Pairwise.edge_probability(settings)
    table = integers(GapTable.of(probability).cumulative)
    seed = named_bytes(f"pattern seed: {about}", 32)
    (positions,) = bernoulli_positions([PatternSeed(seed)], dim, probability)
    return {
        "about": about,
        "alpha_q32": alpha_q32,
        "degree": degree,
        "probability": wide(probability),
        "table_size": len(table),
        "table": [wide(entry) for entry in (*table[:4], table[-1])],
        "pattern_seed": seed.hex(),
        "dim": dim,
        "positions": integers(positions),
    }


def share_graphs() -> Vector:
    """Random circles and the neighbours on them."""
    seed = named_bytes("directory digest", 32)
    cases = []
    for users, degree in (
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 4),
        ([0, 2, 3, 5, 8, 9], 4),
        ([1, 2, 4, 5], 4),
        ([0, 3, 4], 0),
    ):
        members = np.array(users, np.int64)
        (circle,) = permutations(seed, "share graph", members, 1)
        graph = share_graph(seed, members, degree or None)
        cases.append(
            {
                "seed": seed.hex(),
                "users": users,
                "neighbours": degree,
                "circle": integers(circle),
                "graph": [{"user": user, "neighbours": integers(graph.neighbours(user))} for user in users],
            }
        )
    return {"about": "Share graphs. `neighbours` is the degree, 0 for the complete graph.", "cases": cases}


def committees() -> Vector:
    """Layouts, committees and the blocks that pairs mask together."""
    half, two_fifths = 1 << 31, round(0.4 * 2**32)
    cases = [
        ("everybody is a member", 6, 45, half, 0, 3, [0, 1, 2, 3, 4, 5]),
        ("two users are gone, committees of unequal size", 9, 40, round(2**32 / 3), 0, 4, [0, 1, 2, 4, 5, 7, 8]),
        ("a circle inside the committee", 8, 20, 1 << 32, 4, 2, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("α = 0.4 among 8 users, one is gone", 8, 10, two_fifths, 0, 2, [1, 2, 3, 4, 5, 6, 7]),
        ("a model too small for its stripes", 6, 5, half, 0, 8, [0, 1, 2, 3, 4, 5]),
        ("α = 0.4 among 25 users: committees of ten", 25, 100, two_fifths, 0, 2, [*range(25)]),
        ("α = 0.3 among 23 users: committees of six and seven", 23, 60, round(0.3 * 2**32), 4, 1, [*range(23)]),
        ("2/13 would be nearest to α, but gives committees of two", 19, 30, round(0.158 * 2**32), 0, 1, [*range(19)]),
        ("a smaller α than 1/16", 70, 40, round(0.045 * 2**32), 0, 1, [*range(66)]),
        ("as near to 15/16 as to 1: the smaller b", 5, 7, 31 << 27, 0, 1, [0, 1, 3, 4]),
    ]
    return {"about": "Committees. `context` is the members' context.", "cases": [_committee(*case) for case in cases]}


def _committee(
    about: str, clients: int, dim: int, alpha_q32: int, degree: int, stripes: int, members: list[int]
) -> dict[str, Any]:
    context = named_bytes(f"members context: {about}", 32)
    settings = PatternSettings(clients, dim, alpha_q32, degree or None, stripes)
    users = np.array(members, np.int64)
    pattern = Committee(settings, users, context, CircleGraph(users, None))
    layout = pattern.layout
    return {
        "about": about,
        "clients": clients,
        "dim": dim,
        "alpha_q32": alpha_q32,
        "neighbours": degree,
        "stripes": stripes,
        "members": members,
        "context": context.hex(),
        "fraction": list(served_fraction(settings).as_integer_ratio()),
        "contributors": Committee.contributors(settings),
        "blocks": layout.blocks,
        "length": layout.length,
        "committees": [integers(pattern.committee(block)) for block in range(layout.blocks)],
        "users": [
            {
                "user": user,
                "selected": integers(np.asarray(pattern.selected(user, []))),
                "peers": [
                    {"peer": peer, "blocks": integers(np.asarray(blocks))}
                    for peer, blocks in zip(
                        pattern.peers(user), pattern.shared(user, pattern.peers(user), []), strict=True
                    )
                ],
            }
            for user in members[:2]
        ],
    }


def full_layouts() -> Vector:
    """The blocks of `full`."""
    cases = []
    for dim in (1, 24, 65536, 65537, 200_000):
        layout = Full.make_layout(PatternSettings(3, dim, 1 << 32, None, 1))
        cases.append({"dim": dim, "blocks": layout.blocks, "length": layout.length})
    return {"about": "How `full` cuts the coordinates into blocks.", "cases": cases}


def quantisation() -> Vector:
    """Headroom, digits and the way back."""
    fits = []
    for bits, contributors, clip, maxima in (
        (8, 3, 1.0, (64, 8)),
        (8, 120, 0.5, (1000, 4)),
        (12, 7, 0.1, (0, 100)),
        (16, 10, 2.0, (1 << 40, 65536)),
        (24, 1000, 1.0, (0, 1)),
        (32, 5, 0.03, (12345, 0)),
        (32, 65536, 1.0, (1 << 40, 1 << 24)),
    ):
        word = Word.of(bits)
        quantizer, digits = Quantizer.fit(word, contributors, clip), Digits.fit(word, contributors, maxima)
        values = [maximum * 2 // 3 for maximum in maxima]
        fits.append(
            {
                "modulus_bits": bits,
                "contributors": contributors,
                "clip": clip,
                "limit": quantizer.limit,
                "scale": quantizer.scale,
                "maxima": list(maxima),
                "digit_bits": digits.digit_bits,
                "digit_counts": list(digits.counts),
                "values": values,
                "digits": integers(digits.write(values)),
            }
        )
    lifts = []
    for bits in (8, 12, 16, 24, 32):
        word = Word.of(bits)
        edges = [0, 1, word.largest, word.largest + 1, word.modulus - 1]
        lifts.append({"modulus_bits": bits, "words": edges, "signed": integers(word.lift(np.array(edges, word.dtype)))})
    return {
        "about": "Headroom: the largest magnitude of one contribution, the scale, and how the weight and the count of "
        "clipped values are written as digits. `lift`: words as signed integers.",
        "fit": fits,
        "lift": lifts,
    }
