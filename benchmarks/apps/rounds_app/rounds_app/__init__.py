"""Secure rounds and rounds of plain FedAvg in turns, timed."""

PLAIN = "train.plain"
"""The message type of plain rounds; secure ones are of type "train"."""
