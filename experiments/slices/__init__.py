"""Slices and gain: how bold a step may be, and how small a slice."""
