"""Test vectors of the protocol, and what makes them.

v3/                  the vectors; README.md says how to read them
generate             writes v3/ again: `python -m vectors.generate`
blocks               keys, hashes, shares, seals, mask streams, rosters
public               groups, slices, patterns, quantisation: what everybody can compute
wire                 parameters, messages, packed words, locations
plans, runs          whole runs: who takes part; every message recorded
failures             what must be refused, and with which error
forging, refused_*   how those failures are made
form                 how a vector looks, and where its bytes come from
verify, verifier     check all of it without the package: `python -m vectors.verify`
"""
