"""Planning: which groups keep a promise, and what they cost.

plan          `Goal` and `Plan`: what the planner is asked and what it answers
planner       `plan_round`
candidates, nearest, message_sizes, advice
"""
