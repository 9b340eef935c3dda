"""Rounds drawn at random, and how to compare a sampled frequency with a bound."""

import math

import numpy as np

from sparsesecagg.privacy import tails

FALSE_ALARM = 1e-6
"""A bound that holds is reported as broken with at most this probability, per sampled test."""


def assert_not_exceeded(bound: float, hits: int, draws: int) -> None:
    """Assert that `hits` of `draws` do not contradict a true probability of at most `bound`.

    P[Bin(draws, bound) ≥ hits] below FALSE_ALARM would: P[Bin ≥ hits] = P[draws − Bin < draws − hits + 1].
    """
    assert tails.log_binomial_below(draws, 1 - min(1.0, bound), draws - hits + 1) >= math.log(FALSE_ALARM)


def sampled_rounds(clients: int, groups: int, stripes: int, dropout: float, *, draws: int, seed: int):
    """Return, per stripe, the group of each user; and who survived. All of shape (draws, clients)."""
    rng = np.random.default_rng(seed)
    sizes = [len(part) for part in np.array_split(np.arange(clients), groups)]
    order = np.tile(np.repeat(np.arange(groups), sizes), (draws, 1))
    survives = rng.random((draws, clients)) >= dropout
    return [rng.permuted(order, axis=1) for _ in range(stripes)], survives


def thinnest(group_of, counted, groups: int):
    """Return per round the smallest number of counted users in any group."""
    return np.min([(counted & (group_of == group)).sum(axis=1) for group in range(groups)], axis=0)
