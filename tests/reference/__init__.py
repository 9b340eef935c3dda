"""Slow, plain twins of the fast kernels, written from their description: Python integers, one at a time.

    words        residues, signed mapping, packing
    stream       AES-256 in counter mode by hand; words with rejection
    kdf          HKDF-SHA256 from hmac
    x25519       the ladder of RFC 7748
    shamir       polynomials over GF(2^31 − 1)
    decoding     false shares found by trying every set of holders
    slices       blocks and their coordinates, one by one
    gaps         the gap walk by bisection, and the literal Bernoulli sampler
    checksum     Poly1305 in plain integers
    steps        a step of the way down, bit by bit
    locations    bitmap and Rice code, bit by bit
    statistics   chi-square tests with a stated error rate

Nothing here imports the code that it checks.
"""
