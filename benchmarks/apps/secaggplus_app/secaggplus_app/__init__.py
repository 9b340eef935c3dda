"""Flower's own SecAgg+ in its legacy workflow, timed."""
