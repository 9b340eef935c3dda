"""Privacy that can be computed, planned and attacked.

    theory        the paper's p, p̃ and T, Theorems 1 and 2; who is singled out, who is truly revealed
    convergence   Lemma 2 and Theorem 4, for any pattern
    plan          `Goal` and `Plan`: what the planner is asked and what it answers
    planner       `plan_round`: the groups with the fewest bytes that keep a promise
    candidates    groups that come into question, their thresholds, how safe they are
    nearest       what would be feasible where a goal is not
    message_sizes bytes of every message of a round, and the word that values travel in
    graph_tails   holders of shares in a k-regular graph
    guarantee     the anonymity that given settings keep
    advice        warnings about settings that protect little
    view          all that server and colluders hold of a run; colluder, pooling: where its secrets come from
    components    the mask graph, cut into connected components
    attack        read every value that follows from a view
    truth         what really was sent, to score the attack by
    lying         a server that chooses whom it declares dropped
    audit         run rounds, attack them, count
    audit_report  what an audit found
    many_rounds   what the sums of many rounds tell about single users

This package only looks at rounds; no round depends on it.
"""
