"""Sparse secure aggregation for federated learning."""
