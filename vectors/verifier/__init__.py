"""Check the test vectors with an implementation of its own, written from docs/protocol.md alone.

It shares no line with the package `sparsesecagg`. It uses plain integers and lists: slow, and readable beside the page,
whose sections stand in brackets.

    errors         what must be refused (16)
    hashing        digest, derive, key streams (2), sets of users (1)
    keys           agreement, commitments, sealing, tags, rosters (4, 13, 14)
    messagepack    the arrays of parameters and messages (3, 5)
    sharing        Shamir's secret sharing (7)
    words          packing, mask streams, quantisation and digits (8, 9)
    graphs         permutations, the share graph, directory and members (6)
    parameters     fields, canonical bytes, refusals (3)
    patterns       who sends what, who masks what (10)
    locations      the two codes of positions (12)
    messages       the envelope and its fields (5)
    user, server   stage by stage (11, 13, 14)
    replay         a recorded round, exchanged again message by message
    comparing      a case of a file against what it should be
    blocks, rounds, failures    the three kinds of files (17)
"""
