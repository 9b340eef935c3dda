"""How masks are laid and taken away (11)."""

from collections.abc import Iterable

from vectors.verifier import keys, words
from vectors.verifier.parameters import Parameters
from vectors.verifier.patterns import probability, sample_gaps

Words = dict[int, int]  # By position in the upload, or by coordinate with `pairwise`.


def lay_mask(sums: Words, over: Iterable[int], seed: bytes, sign: int, p: Parameters) -> None:
    """Add a mask to words, or take it out, in increasing order."""
    stream = words.MaskStream(seed, p.modulus_bits)
    for position in sorted(over):
        sums[position] = (sums[position] + sign * stream.word()) % p.modulus


def drawn_by(pattern_seed: bytes, p: Parameters) -> list[int]:
    """Return the coordinates that a pair has drawn."""
    degree = p.neighbours or p.clients - 1
    return sample_gaps(probability(p.alpha_q32, degree), pattern_seed, p.dim)


def lay_pair_mask(
    sums: Words, agreed: bytes, header_digest: bytes, user: int, peer: int, sign: int, p: Parameters
) -> None:
    """Lay the mask of a pair over what it covers."""
    mask_seed, pattern_seed = keys.pair_seeds(agreed, header_digest, user, peer)
    lay_mask(sums, sums if p.public_pattern else drawn_by(pattern_seed, p), mask_seed, sign, p)
