"""Privacy that can be computed, planned and attacked.

    theory        the paper's p, p̃ and T, Theorems 1 and 2; who is singled out, who is truly revealed
    convergence   Lemma 2 and Theorem 4, for any pattern
    tails         exact tails in log space: honest survivors of committees
    graph_tails   the same for k-regular share graphs and mask graphs
    sharing       choose the share graph and the threshold
    plan          `Goal` and `Plan`: what the planner is asked and what it answers
    planner       `plan_round`: the smallest upload that keeps a promise
    advice        warnings about settings that protect little
    view          all that server and colluders hold after a round
    components    the mask graph of each block, cut into connected components
    attack        read every value that follows from a view
    truth         what really was sent, to score the attack by
    audit         run rounds, attack them, count
    audit_report  what an audit found

This room only looks at rounds; no round depends on it.
"""
