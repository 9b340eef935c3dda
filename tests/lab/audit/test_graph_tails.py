"""Holders of shares in a k-regular graph."""

import math

from sparsesecagg.lab.audit import graph_tails
from sparsesecagg.privacy import tails


def test_missing_holders_are_a_binomial_tail_over_the_neighbours() -> None:
    assert graph_tails.log_holders_missing(10, 0.3, 6) == tails.log_binomial_below(10, 0.7, 6)
    assert graph_tails.log_holders_missing(10, 0.0, 10) == -math.inf
    assert graph_tails.log_holders_missing(10, 0.0, 11) == 0.0
