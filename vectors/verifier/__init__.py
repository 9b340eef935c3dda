"""Check the test vectors with an implementation of its own, written from docs/protocol.md alone.

It shares no line with the package `sparsesecagg`. It uses plain integers and lists: slow, and readable beside the page,
whose sections stand in brackets.

    errors              what must be refused (21)
    hashing             digest, derive, expand, key streams (2), sets of users (1)
    keys                agreement, pair chains, sealing, heads, tags, rosters (5, 7, 8, 12, 15, 16)
    messagepack         the arrays of parameters and messages (3, 6)
    parameters          fields, canonical bytes, refusals, sizes of groups (3, 4)
    groups, draws       pods, committees, partners (4); who draws them (5)
    messages            the envelope and its fields (6)
    sharing             Shamir's secret sharing, and false shares (9)
    words               packing, mask streams, quantisation and digits (10, 11)
    patterns, masks     what `pairwise` draws; how masks are laid (12)
    locations           the two codes of positions (13)
    pods                one pod in an epoch (7) and in a round (14)
    user                a user, stage by stage (7, 8, 14 to 17, 19, 20)
    server, pod_round   the server, stage by stage (5, 7, 8, 14 to 18)
    replay              a recorded run, made again step by step
    comparing           a case of a file against what it should be
    blocks, runs, failures    the three kinds of files (22)
"""
