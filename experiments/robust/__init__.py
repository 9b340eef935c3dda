"""Accuracy with malicious users: the mean, and centred clipping over groups (docs/malicious-users.md)."""
