"""Vectors of what everybody can compute: draws, groups, patterns, quantisation."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from sparsesecagg.crypto.identity import Identity, Roster, RunSecret
from sparsesecagg.crypto.secrets import PatternSeed
from sparsesecagg.field import Word
from sparsesecagg.patterns import Slices
from sparsesecagg.patterns.gaps import GapTable, bernoulli_positions
from sparsesecagg.patterns.jury import jury_size
from sparsesecagg.patterns.pairwise import edge_probability
from sparsesecagg.protocol import Parameters
from sparsesecagg.protocol.draw import Statement, jury, named_needed, verify_draw
from sparsesecagg.protocol.draw_messages import DrawProof, DrawRequest, DrawReveal, decode_draw, encode_draw
from sparsesecagg.protocol.juror import JurorState, answer_draw
from sparsesecagg.protocol.messages import encode_users
from sparsesecagg.rounding import Digits, Quantizer
from vectors.form import Vector, integers, named_bytes, wide


def juries() -> Vector:
    """How large juries are, and who is in them."""
    roster_digest = named_bytes("roster digest", 32)
    sizes = [(3, 1), (25, 0), (50, 5), (100, 10), (100, 49), (1000, 100), (10_000, 1000)]
    return {
        "about": "Juries: their size, and the first users of the roster by a hash, in that order.",
        "sizes": [{"clients": n, "colluders": c, "size": jury_size(n, c)} for n, c in sizes],
        "juries": [
            {
                "roster_digest": roster_digest.hex(),
                "draw": draw,
                "clients": clients,
                "colluders": colluders,
                "jury": list(jury(roster_digest, draw, clients, colluders)),
            }
            for draw, clients, colluders in ((1, 9, 2), (2, 9, 2), (16, 40, 6))
        ],
    }


class DrawnRoster:
    """The users of the file `roster`, to draw with."""

    def __init__(self, content: Vector, roster: Roster) -> None:
        self.roster = roster
        self.people = [
            Identity(user, RunSecret(bytes.fromhex(each["run_secret"])), roster)
            for user, each in enumerate(content["users"])
        ]
        self.params = Parameters.create(
            clients=len(self.people), dim=4, pattern="full", colluders=1, roster_digest=roster.digest
        )
        self.jury = jury(roster.digest, 3, len(self.people), 1)

    def request(self, draw: int = 3, **changes: Any) -> DrawRequest:
        """Return a request that is allowed, but for the changes."""
        jurors = jury(self.roster.digest, draw, len(self.people), 1)
        named = encode_users(np.array(jurors[: named_needed(len(jurors))]), len(self.people))
        request = DrawRequest(draw, self.roster.digest, self.everybody, named)
        return msgspec.structs.replace(request, **changes)

    @property
    def everybody(self) -> bytes:
        """All users as a set."""
        return encode_users(np.arange(len(self.people)), len(self.people))

    def answer(self, user: int, request: DrawRequest) -> bytes:
        """Return what a juror answers."""
        return answer_draw(self.people[user], self.params, JurorState(), request)[1]

    def proof(self, draw: int = 3) -> DrawProof:
        """Return a proof that is right."""
        request, reveals = self.request(draw), b""
        jurors = jury(self.roster.digest, draw, len(self.people), 1)
        for user in sorted(jurors[: named_needed(len(jurors))]):
            message = decode_draw(self.answer(user, request))
            assert isinstance(message, DrawReveal)
            reveals += message.reveal
        return DrawProof(draw, request.population, request.named, reveals)


def draws(drawn: DrawnRoster) -> Vector:
    """A jury's draw: the request, what the jurors answer, the proof and the seed."""
    cases = []
    for draw in (1, 3, 16):
        request, proof = drawn.request(draw), drawn.proof(draw)
        named = sorted(jury(drawn.roster.digest, draw, len(drawn.people), 1)[:3])
        cases.append(
            {
                "parameters": drawn.params.encode().hex(),
                "draw": draw,
                "request": encode_draw(request).hex(),
                "statement": Statement.of(request, drawn.roster, drawn.params).digest.hex(),
                "nonces": [drawn.people[user].reveal(draw).hex() for user in named],
                "reveals": [drawn.answer(user, request).hex() for user in named],
                "proof": encode_draw(proof).hex(),
                "seed": verify_draw(drawn.roster, drawn.params, proof).seed.hex(),
            }
        )
    return {"about": "Draws by a jury of three among the users of the file `roster`.", "cases": cases}


def groups() -> Vector:
    """Pods, committees and partners, drawn from a seed."""
    cases: list[tuple[str, dict[str, Any], list[int]]] = [
        ("one pod, committees of equal size", {"clients": 12, "committees": 3}, []),
        ("sizes differ by one", {"clients": 17, "committees": 5, "pods": 2}, []),
        ("three pods, users left out: as many pods", {"clients": 31, "committees": 7, "pods": 3}, [4, 30]),
        ("a fifth is left out: fewer pods", {"clients": 30, "committees": 6, "pods": 3}, [0, 5, 6, 9, 20, 29]),
        ("too few for one pod of the planned size", {"clients": 15, "committees": 4, "pods": 1}, [2, 3, 11]),
        ("full", {"clients": 6, "pattern": "full"}, []),
        ("a graph of degree 4", {"clients": 9, "pattern": "full", "neighbours": 4}, []),
    ]
    made = []
    for about, settings, excluded in cases:
        params = Parameters.create(**settings, dim=10, served=1)
        seed = named_bytes(f"draw seed: {about}", 32)
        structure = params.structure.among(params.clients - len(excluded)) if excluded else params.structure
        drawn = params.groups(seed, structure, frozenset(excluded))
        made.append(
            {
                "about": about,
                "parameters": params.encode().hex(),
                "excluded": excluded,
                "seed": seed.hex(),
                "pods": [
                    {
                        "users": integers(pod.users),
                        "committees": [integers(pod.users[members]) for members in pod.committees],
                        "partners": integers(pod.users[pod.graph.neighbours(0)]),
                    }
                    for pod in drawn.pods
                ],
            }
        )
    return {"about": "Groups from a draw seed. `partners` are those of the pod's first user.", "cases": made}


def slices() -> Vector:
    """Which slices a committee sends in a round, and where they are."""
    cases = []
    for dim, count, served in ((10, 3, 1), (45, 4, 2), (5, 8, 3), (7, 1, 1)):
        cut = Slices(dim, count, served)
        cases.append(
            {
                "dim": dim,
                "committees": count,
                "served": served,
                "length": cut.length,
                "bounds": [list(cut.bounds(number)) for number in range(count)],
                "sent": [
                    {"committee": committee, "round": number, "slices": cut.of(committee, number)}
                    for committee, number in ((0, 1), (count - 1, 1), (count // 2, 2), (0, 1_000_003))
                ],
            }
        )
    return {"about": "Slices of the model, and who sends which of them in a round.", "cases": cases}


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
    probability = edge_probability(alpha_q32, degree)
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
