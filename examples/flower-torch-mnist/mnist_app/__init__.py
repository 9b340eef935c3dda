"""MNIST with Flower, PyTorch and secure aggregation."""
