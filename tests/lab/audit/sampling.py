"""Rounds drawn at random, and how to compare a sampled frequency with a bound."""

import math
from fractions import Fraction

import numpy as np

from sparsesecagg.patterns import tails
from sparsesecagg.patterns.sizes import even_parts

FALSE_ALARM = 1e-6
"""A bound that holds is reported as broken with at most this probability, per sampled test."""


def assert_not_exceeded(bound: float, hits: int, draws: int) -> None:
    """Assert that `hits` of `draws` do not contradict a true probability of at most `bound`.

    P[Bin(draws, bound) ≥ hits] below FALSE_ALARM would: P[Bin ≥ hits] = P[draws − Bin < draws − hits + 1].
    """
    assert tails.log_binomial_below(draws, 1 - min(1.0, bound), draws - hits + 1) >= math.log(FALSE_ALARM)


def sampled_rounds(clients: int, share: Fraction, stripes: int, dropout: float, *, draws: int, seed: int):
    """Return, per stripe, the arc of each user; and who survived. All of shape (draws, clients)."""
    rng = np.random.default_rng(seed)
    order = np.tile(np.repeat(np.arange(share.denominator), even_parts(clients, share.denominator)), (draws, 1))
    survives = rng.random((draws, clients)) >= dropout
    return [rng.permuted(order, axis=1) for _ in range(stripes)], survives


def in_committees(arc_of, counted, share: Fraction):
    """Return how many of the counted users are in each committee, shape (b, draws): a arcs, round the circle."""
    arcs = [(counted & (arc_of == arc)).sum(axis=1) for arc in range(share.denominator)]
    return np.array([np.sum((arcs * 2)[k : k + share.numerator], axis=0) for k in range(share.denominator)])


def thinnest(arc_of, counted, share: Fraction):
    """Return per round the smallest number of counted users in any committee."""
    return in_committees(arc_of, counted, share).min(axis=0)
