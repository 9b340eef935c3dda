"""Train a torch model of one's own on arrays of one's own, with sparse secure aggregation.

Run: .venv/bin/python examples/train_your_own.py
"""

from sklearn.datasets import load_digits
from torch import nn

from sparsesecagg.lab.learning import Dataset, train_federated

digits = load_digits()
data = Dataset.from_arrays(digits.data / 16, digits.target, name="my digits")


def make_net() -> nn.Module:
    """Return the model; a function, so that the seed decides its first weights."""
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


result = train_federated(
    data, make_net, clients=30, rounds=15, aggregator="sliced", alpha=0.25, dropout=0.1,
    modulus_bits=8, lr=0.1, batch=10,
    on_round=lambda done: print(f"round {done.round}: {done.accuracy:.1%}, {done.survivors} survivors"),
)  # fmt: skip
print(f"{result.accuracy:.1%} with uploads of {result.upload_bytes_per_client_round:,.0f} bytes; see {result.run_dir}")
