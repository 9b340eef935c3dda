"""What can be promised, as figures: pure functions of sizes and probabilities.

anonymity   how many honest users every sum of a group has; thresholds
tails       exact tail probabilities in log space
mechanism   differential privacy that users add themselves; skellam: its noise; accountant: what it costs
"""
