"""An app whose every aggregate is known beforehand."""

DIM = 1000


def step(partition: int, server_round: int) -> float:
    """Return how far a node moves every parameter in a round."""
    return 0.01 * (partition + 1) * server_round


def weight(partition: int) -> int:
    """Return a node's number of examples: a power of two, so that rounding weights changes nothing."""
    return int(2 ** (1 + partition % 4))
