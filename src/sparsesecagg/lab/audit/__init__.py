"""What a server and its colluders really learn from rounds, read out of real transcripts.

    adversary     a server that lies to one group in one round, and all that it and its colluders hold of it
    drawn         reading `pairwise`, where every coordinate has its own mask graph
    audit         run rounds, attack them, count
    audit_report  what an audit is asked and what it found
    canaries      how much privacy noise keeps at least, measured
    theory        the published pattern in closed form

This package only looks at rounds; no round depends on it.
"""
