"""Planning: which groups and threshold keep a promise, and what they cost.

planner         `plan_round`: from a `Goal` to a `Plan`; warnings about settings that protect little or fail often
noise           how much noise keeps (ε, δ), and whether a model is likely to learn under it
message_sizes   levels, words, and the bytes of a round
"""
