"""Privacy that can be computed, planned and attacked.

    theory        the paper's p, p̃ and T, Theorems 1 and 2; who is singled out, who is truly revealed
    convergence   Lemma 2 and Theorem 4, for any pattern
    tails         exact tails in log space: honest survivors of committees
    graph_tails   the same for k-regular share graphs and mask graphs
    sharing       choose the share graph and the threshold
    plan          `Goal` and `Plan`: what the planner is asked and what it answers
    planner       `plan_round`: the smallest upload that keeps a promise
    audit         attack a real transcript with what server and colluders hold

This room only looks at rounds; no round depends on it.
"""
