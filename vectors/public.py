"""Vectors of what everybody can compute: groups, slices, patterns, quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.crypto.stream import KeyStream
from sparsesecagg.field import Word
from sparsesecagg.patterns.gaps import GapTable, bernoulli_positions
from sparsesecagg.patterns.sliced import block_of
from sparsesecagg.privacy.mechanism import NoiseSeed, SkellamTable
from sparsesecagg.protocol import Parameters, RoundOptions
from sparsesecagg.rounding import Digits, Quantizer
from vectors.form import Vector, integers, named_bytes, wide


def groups() -> Vector:
    """Groups and partners, drawn from the seed of an epoch."""
    cases: list[tuple[str, int, RoundOptions, int]] = [
        ("one group", 6, RoundOptions(), 1),
        ("three groups of equal size", 12, RoundOptions(group_size=4), 1),
        ("sizes differ by one", 17, RoundOptions(group_size=5), 2),
        ("the last epoch that there may be", 17, RoundOptions(group_size=5), 16),
        ("the first cohort that is cut by default", 129, RoundOptions(), 1),
        ("one group has epochs without end", 5, RoundOptions(), 1000),
        ("a graph of degree 4", 9, RoundOptions(neighbours=4), 1),
    ]
    made = []
    for about, clients, options, epoch in cases:
        params = Parameters.create(clients, 10, options, session=named_bytes(f"session: {about}", 32))
        seed = params.epoch_seed(epoch, None)
        made.append(
            {
                "about": about,
                "parameters": params.encode().hex(),
                "epoch": epoch,
                "seed": seed.hex(),
                "groups": [
                    {
                        "users": integers(group.users),
                        "partners": integers(group.users[group.graph.neighbours(0)]),
                    }
                    for group in params.draw(seed).groups
                ],
            }
        )
    return {"about": "Groups of an epoch. `partners` are those of the group's first user.", "cases": made}


def slices() -> Vector:
    """How α becomes a part of a block, and which coordinates a group sends."""
    alphas = [1.0, 0.999, 0.5, 1 / 3, 0.3, 0.25, 0.2, 0.1, 0.095, 0.05, 0.037, 0.04, 0.02, 0.01, 0.00123, 2**-20]
    cases = []
    for about, dim, alpha, group_size, same, where in (
        ("one of ten, the last block is cut", 43, 0.1, None, False, [(0, 1), (0, 2), (0, 11)]),
        ("three of ten: they wrap around the end of a block", 57, 0.3, None, False, [(0, 1), (0, 4)]),
        ("three groups with different slices", 24, 0.25, 3, False, [(0, 1), (1, 1), (2, 1), (2, 1_000_003)]),
        ("three groups with the same slice", 24, 0.25, 3, True, [(0, 1), (2, 1)]),
        ("everything", 5, 1.0, None, False, [(0, 9)]),
    ):
        options = RoundOptions(alpha=alpha, group_size=group_size, same_slices=same)
        params = Parameters.create(9, dim, options, session=bytes(32))
        seed = named_bytes(f"epoch seed: {about}", 32)
        cases += [
            {
                "about": about,
                "parameters": params.encode().hex(),
                "seed": seed.hex(),
                "group": group,
                "round": number,
                "coordinates": _coordinates(params, seed, group, number),
            }
            for group, number in where
        ]
    return {
        "about": "Slices. `blocks`: a part of each block is sent. `cases`: the coordinates that a group sends.",
        "blocks": [
            {"alpha_q32": round(alpha * 2**32), "part": part, "block": block}
            for alpha, (part, block) in ((alpha, block_of(round(alpha * 2**32))) for alpha in alphas)
        ],
        "cases": cases,
    }


def _coordinates(params: Parameters, seed: bytes, group: int, number: int) -> list[int]:
    where = params.shape.masked_sum(group, number, seed, bytes(32)).indices()
    return [
        each
        for index in where
        for each in (range(index.start, index.stop) if isinstance(index, slice) else index.tolist())
    ]


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
    probability = (alpha_q32 << 32) // degree
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


def skellam() -> Vector:
    """The noise of one user."""
    cases = []
    for variance in (0.25, 5.484375, 40.0):
        table, seed = SkellamTable.of(variance), named_bytes(f"noise of variance {variance}", 32)
        thresholds = [int(high) << 64 | int(low) for high, low in zip(table.high, table.low, strict=True)]
        cases.append(
            {
                "variance": variance,
                "at_most": {str(k): f"0x{thresholds[k - table.smallest]:032x}" for k in range(-3, 4)},
                "noise_seed": seed.hex(),
                "draws": integers(table.draw(KeyStream(NoiseSeed(seed)), 24)),
            }
        )
    return {
        "about": "Skellam noise. `at_most`: the probability that it is at most k, in units of 2^−128; `draws`: the "
        "first from the stream of a noise seed.",
        "cases": cases,
    }


def quantisation() -> Vector:
    """Headroom, digits and the way back."""
    fits = []
    for bits, contributors, clip, maxima in (
        (4, 3, 1.0, (0, 8)),
        (5, 9, 0.125, (100, 1000)),
        (6, 4, 1.0, (64, 8)),
        (8, 3, 1.0, (64, 8)),
        (8, 120, 0.5, (1000, 4)),
        (12, 7, 0.1, (0, 100)),
        (16, 10, 2.0, (1 << 40, 65536)),
        (24, 1000, 1.0, (0, 1)),
        (32, 5, 0.03, (12345, 0)),
        (32, 1 << 20, 1.0, (1 << 40, 1 << 24)),
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
    for bits in (4, 5, 8, 12, 16, 17, 24, 31, 32):
        word = Word.of(bits)
        edges = [0, 1, word.largest, word.largest + 1, word.modulus - 1]
        lifts.append({"modulus_bits": bits, "words": edges, "signed": integers(word.lift(np.array(edges, word.dtype)))})
    return {
        "about": "Headroom: the largest magnitude of one contribution, the scale, and how the weight and the count of "
        "clipped values are written as digits. `lift`: words as signed integers.",
        "fit": fits,
        "lift": lifts,
    }
