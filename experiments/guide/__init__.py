"""The table of the decision guide: what the planner answers from 3 to 10,000 users."""
