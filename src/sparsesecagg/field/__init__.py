"""Words: the numbers that travel, their arithmetic and their packing.

    words      `Word`: modulus, lazy accumulation, signed mapping
    packing    words to exactly `bits` bits each, and back
    locations  which coordinates an upload carries, coded

This package knows nothing of keys, users or messages.
"""

from sparsesecagg.field.packing import pack, packed_size, unpack
from sparsesecagg.field.words import WORD_BITS, Word

__all__ = ["WORD_BITS", "Word", "pack", "packed_size", "unpack"]
