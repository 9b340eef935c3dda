"""Cryptography, all of it from the `cryptography` package; sharp things, each in its own file.

secrets      secrets that never print
kdf          hashing and key derivation with named labels; a checksum against accidents on the way
keys         X25519 key pairs and agreement
identity     Ed25519 identities, run secrets, the roster with the seed of its groups
sealing      what a pair does with its secret of a round: seal shares, make tags
stream       mask streams: AES-256-CTR, sampled into the word's group without bias
shamir       secret sharing, vectorised, and arithmetic modulo 2^31 − 1
decoding     secrets from shares of which some are false
"""
