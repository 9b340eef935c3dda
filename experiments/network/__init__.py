"""Rounds among processes whose lines are really limited, beside the model of the wall clock."""
