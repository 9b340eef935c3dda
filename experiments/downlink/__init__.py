"""Steps instead of models: bytes, seconds, accuracy, and other ways to round. `python -m experiments.downlink.run`."""
