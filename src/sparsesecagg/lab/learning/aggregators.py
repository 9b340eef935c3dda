"""The aggregators we know by name."""

from __future__ import annotations

import math
from statistics import fmean

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.aggregation import Aggregator
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.models import Model
from sparsesecagg.lab.learning.models.base import Vector
from sparsesecagg.lab.learning.plain import PlainAggregator, RandomK, TopK
from sparsesecagg.lab.learning.secure import SecureAggregator, SecureSettings
from sparsesecagg.privacy.anonymity import availability
from sparsesecagg.privacy.tails import log_binomial_below
from sparsesecagg.lab.audit.exposure import expected_fraction
from sparsesecagg.lab.audit.graph_tails import log_holders_missing
from sparsesecagg.protocol import Parameters

AGGREGATORS = {
    "plain": "no protection: all values as 32-bit floats",
    "plain-randk": "no protection: a random fraction α of the values",
    "plain-topk": "no protection: the fraction α of largest magnitude, with locations",
    "secagg": "SecAgg (Bonawitz et al. 2017): everybody sends everything, masked",
    "secagg-plus": "SecAgg+ (Bell et al. 2020): the same with a sparse graph of masks and shares",
    "pairwise": "SparseSecAgg as published: for reproduction; it reveals values when users drop out",
    "committee": "ours: random committees that stay send a fraction α, masked inside the committee",
}

# 32 bits are what the published protocols use; committees are small enough for less.
DEFAULT_MODULUS_BITS = {"committee": 16}
PUBLISHED_MODULUS_BITS = 32

# SecAgg+ takes the fewest neighbours with which a round fails for want of shares at most this often.
FAILING_ROUNDS = 0.01

_IN_THE_CLEAR = "which sends values in the clear and has no users to tell apart"
_WITHOUT_IDENTITIES = {
    "plain": _IN_THE_CLEAR,
    "plain-randk": _IN_THE_CLEAR,
    "plain-topk": _IN_THE_CLEAR,
    "secagg-plus": "whose users share secrets with few others, and tags for all are the proof of one view",
}


def make_aggregator(config: TrainingConfig, model: Model, initial: Vector) -> Aggregator:
    """Return the aggregator that `config` names for updates of `model`, which begins with the parameters `initial`."""
    name, clients = config.aggregator, config.clients
    if name not in AGGREGATORS:
        raise InvalidInput("aggregator", f"must be one of {', '.join(AGGREGATORS)}, got {name!r}")
    if config.authenticated:
        _require_identities_possible(name)
    if name == "plain":
        return PlainAggregator(name, clients, model.dim)
    if name == "plain-randk":
        return RandomK(name, clients, model.dim, config.alpha, config.seed)
    if name == "plain-topk":
        return TopK(name, clients, model.dim, config.alpha)
    sparse = name in ("pairwise", "committee")
    neighbours = config.neighbours
    if name == "secagg":
        neighbours = None
    if name == "secagg-plus" and neighbours is None:
        neighbours = default_neighbours(clients, config.dropout)
    settings = SecureSettings(
        pattern=name if sparse else "full",
        alpha=config.alpha if sparse else 1.0,
        modulus_bits=config.modulus_bits or DEFAULT_MODULUS_BITS.get(name, PUBLISHED_MODULUS_BITS),
        dropout=config.dropout,
        committee_size=config.committee_size,
        pod_size=config.pod_size,
        neighbours=neighbours,
        threshold=config.threshold,
        min_survivors=config.min_survivors,
        normalisation=config.normalisation,
        weighted=config.weighting == "samples",
        authenticated=config.authenticated,
        first_clip=initial if config.first_clip is None else config.first_clip,
    )
    return SecureAggregator(name, clients, model.layers, settings, config.seed)


def _require_identities_possible(name: str) -> None:
    """Raise for aggregators that have no authenticated rounds."""
    able = [known for known in AGGREGATORS if known not in _WITHOUT_IDENTITIES]
    if name in _WITHOUT_IDENTITIES:
        raise InvalidInput(
            "authenticated", f"can't be had with {name}, {_WITHOUT_IDENTITIES[name]}: use one of {', '.join(able)}"
        )


def failing_pods(params: Parameters) -> float:
    """Return the fraction of pods that will have fewer users left than their threshold, at the expected dropout."""
    there = availability(params.dropout)
    if params.neighbours:
        return math.exp(log_binomial_below(params.clients, there, params.threshold))
    return fmean(math.exp(log_binomial_below(sum(pod), there, params.threshold_of(sum(pod)))) for pod in params.sizes)


def thin_committees(params: Parameters) -> float:
    """Return the fraction of committees that will have too few survivors, at the expected dropout."""
    there = availability(params.dropout)
    return fmean(
        math.exp(log_binomial_below(size, there, params.survivors_of(size))) for pod in params.sizes for size in pod
    )


def expected_exposure(config: TrainingConfig, aggregator: Aggregator) -> float | None:
    """Return the share of uploaded values that the server and `colluding` users are expected to read; None if all.

    `sparsesecagg audit` attacks real transcripts; this is what the theory says for the settings of a run.
    """
    if not isinstance(aggregator, SecureAggregator):
        return None
    return expected_fraction(aggregator.parameters, config.colluding, missing=1 - availability(config.dropout))


def default_neighbours(clients: int, dropout: float) -> int | None:
    """Return the degree of SecAgg+'s graphs; None is complete, where few users and many dropouts leave no less."""
    fewest = 2 * math.ceil(math.log2(clients))
    for degree in range(fewest, clients - 1, 2):
        threshold = (degree + 1) // 2 + 1
        if clients * math.exp(log_holders_missing(degree, dropout, threshold)) <= FAILING_ROUNDS:
            return degree
    return None
