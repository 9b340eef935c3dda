"""Digits under chaos: nodes and server write down what each round can be checked against (tests/chaos.py reads it)."""
