"""Planning: which groups and threshold keep a promise, and what they cost.

plan            `Goal` and `Plan`: what the planner is asked and what it answers
planner         `plan_round`
noise           how much noise keeps (ε, δ), and whether anything can be learnt under it
message_sizes   levels, words, and the bytes of a round
advice          warnings about settings that protect little or fail often
"""
