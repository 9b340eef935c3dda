"""What can be promised, as figures: pure functions of sizes and probabilities.

anonymity    how many honest users every sum of a group has; thresholds; exact tail probabilities
mechanism    differential privacy that users add themselves; accountant: what it costs
"""
