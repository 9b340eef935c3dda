"""Accuracy under differential privacy: groups, a trusted server, local noise (docs/differential-privacy.md)."""
