"""Privacy that can be computed, planned and attacked.

    theory        the paper's p, p̃ and T, Theorems 1 and 2; who is singled out, who is truly revealed
    convergence   Lemma 2 and Theorem 4, for any pattern
    graph_tails   holders of shares in a k-regular graph
    exposure      the share of values that theory says is revealed
    guarantee     the anonymity that given settings keep
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
