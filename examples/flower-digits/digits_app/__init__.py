"""Handwritten digits with Flower and secure aggregation."""
