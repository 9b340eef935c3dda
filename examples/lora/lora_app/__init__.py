"""Adapters (LoRA) of a small transformer with Flower and secure aggregation."""
