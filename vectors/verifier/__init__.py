"""Check the test vectors with an implementation of its own, written from docs/protocol.md alone.

It shares no line with the package `sparsesecagg`. It uses plain integers and lists: slow, and readable beside the page,
whose sections stand in brackets.

    errors                  what must be refused (19)
    hashing                 digest, derive, expand, key streams (2), sets of users (1)
    keys                    agreement, ratchets, sealing, mask keys, tags, rosters (4, 6, 7, 11, 13)
    messagepack             the arrays of parameters and messages (3, 5)
    parameters              fields, canonical bytes, refusals (3)
    groups                  seeds of epochs, groups, partners (4)
    messages                the envelope and its fields (5)
    sharing                 Shamir's secret sharing, and false shares (8)
    words                   packing, mask streams, quantisation and digits (9, 10)
    noise                   Skellam noise (10)
    slices, patterns        what `sliced` sends; what `pairwise` draws (10, 11)
    masks                   how masks are laid (11)
    locations               the two codes of positions (11)
    epochs                  one group in an epoch (6) and in a round (12)
    user                    a user, stage by stage (6, 7, 12 to 14, 17)
    server, group_round     the server, stage by stage (5 to 7, 12 to 16)
    replay                  a recorded run, made again step by step
    comparing               a case of a file against what it should be
    blocks, runs, failures  the three kinds of files (vectors/README.md)
"""
