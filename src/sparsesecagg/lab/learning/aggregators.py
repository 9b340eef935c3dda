"""The aggregators we know by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from sparsesecagg.errors import InvalidInput, require
from sparsesecagg.lab.learning.aggregation import Aggregator
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.models import Model, Vector
from sparsesecagg.lab.learning.secure import WEIGHT_SCALE, SecureAggregator
from sparsesecagg.patterns import PATTERNS
from sparsesecagg.planning.noise import DifferentialPrivacy, with_noise
from sparsesecagg.privacy.anonymity import log_binomial_below
from sparsesecagg.protocol import Parameters, RoundOptions
from sparsesecagg.protocol.combine import SMALLEST_NUMBER

SLICED = "sliced"
PATTERN_OF = {
    "secagg": "full",  # Bonawitz et al. 2017
    "secagg-plus": "full",  # Bell et al. 2020: a sparse graph of masks and shares
    "pairwise": "pairwise",  # SparseSecAgg as published
    SLICED: "sliced",
}
AGGREGATORS = ("plain", *PATTERN_OF)
SPARSE = frozenset({SLICED, "pairwise"})

SLICED_MODULUS_BITS, PUBLISHED_MODULUS_BITS = 16, 32
"""32 are what the published protocols use; sums over groups average rounding out."""

# SecAgg+ takes the fewest neighbours with which a round fails for want of shares at most this often.
FAILING_ROUNDS = 0.01

_WITHOUT_IDENTITIES = {
    "plain": "which sends values in the clear and has no users to tell apart",
    "secagg-plus": "whose users share secrets with few others, and tags for all are the proof of one header",
}
_WITHOUT_GROUPS = {
    "plain": "which sends values in the clear",
    **dict.fromkeys(("secagg-plus", "pairwise"), "which may open sums of few users"),
}


def make_aggregator(config: TrainingConfig, model: Model, initial: Vector) -> Aggregator:
    """Return the aggregator that `config` names for updates of `model`, which begins with the parameters `initial`."""
    name = config.aggregator
    require("aggregator", name in AGGREGATORS, f"must be one of {', '.join(AGGREGATORS)}, got {name!r}")
    if config.authenticated:
        _require_possible("authenticated", name, _WITHOUT_IDENTITIES)
    if config.malicious or config.combine != "mean":
        option = "malicious" if config.malicious else "combine"
        _require_possible(option, name, _WITHOUT_GROUPS)
        if config.sample < 1 or config.dp_epsilon is not None:
            raise InvalidInput(option, "must not be given with --sample or --dp-epsilon, which is not simulated")
    if config.dp_epsilon is not None:
        _require_possible("dp_epsilon", name, _WITHOUT_GROUPS)
    if name == "plain":
        return Aggregator(config.cohort, model.dim)
    options = round_options(config)
    one_group = not PATTERNS[options.pattern].several_groups and options.group_size not in (None, config.cohort)
    require("group_size", not one_group, f"must not be given with {name}, which has one group")
    if config.combine != "mean":
        _require_possible("combine", name, {**_WITHOUT_GROUPS, "secagg": "which has one group"})
        options = replace(options, same_slices=True)
        if Parameters.create(config.cohort, model.dim, options).groups < SMALLEST_NUMBER:
            raise InvalidInput("combine", "compares groups, and there are fewer than three: set --group-size")
    if options.alpha * model.dim < 1:
        least = f"{1 / model.dim:.3g}"
        problem = f"of {options.alpha:g} sends nothing of a model of {model.dim} parameters: use {least} or more"
        raise InvalidInput("alpha", problem)
    first_clip = initial if config.first_clip is None else config.first_clip
    return SecureAggregator(config, noisy_options(options, config, model.dim), model.layers, first_clip)


def round_options(config: TrainingConfig) -> RoundOptions:
    """Return the options of a round as the aggregator means them."""
    name, options = config.aggregator, config.options
    neighbours = options.neighbours
    if name == "secagg":
        neighbours = None
    if name == "secagg-plus" and neighbours is None:
        neighbours = default_neighbours(config.cohort, options.dropout)
    return replace(
        options,
        pattern=PATTERN_OF[name],
        alpha=options.alpha if name in SPARSE else 1.0,
        neighbours=neighbours,
        modulus_bits=config.modulus_bits or (SLICED_MODULUS_BITS if name == SLICED else PUBLISHED_MODULUS_BITS),
        clip=1.0,  # Updates are divided by the clip of their layer.
        max_weight=0 if config.weights == "uniform" else WEIGHT_SCALE,
    )


def noisy_options(options: RoundOptions, config: TrainingConfig, dim: int) -> RoundOptions:
    """Return the options with as much noise as keeps (ε, δ) over all rounds, in the shortest word that holds it."""
    if config.dp_epsilon is None:
        return options
    if options.max_weight:
        raise InvalidInput("weights", "must be uniform with --dp-epsilon: weights would change what noise has to hide")
    goal = DifferentialPrivacy(config.dp_epsilon, config.rounds, config.dp_delta, config.dp_clip)
    options = replace(options, modulus_bits=config.modulus_bits or PUBLISHED_MODULUS_BITS)
    try:
        return with_noise(options, goal, config.cohort, dim)
    except InvalidInput as problem:
        named = {"epsilon": "dp_epsilon", "delta": "dp_delta"}
        raise InvalidInput(named.get(problem.option, problem.option), problem.problem) from None


def _require_possible(option: str, name: str, reasons: Mapping[str, str]) -> None:
    """Raise for an option that an aggregator can't have; say which ones can."""
    able = [known for known in AGGREGATORS if known not in reasons]
    if name in reasons:
        raise InvalidInput(option, f"must not be given with {name}, {reasons[name]}: use one of {', '.join(able)}")


def default_neighbours(clients: int, dropout: float) -> int | None:
    """Return the degree of SecAgg+'s graphs; None is complete, where few users and many dropouts leave no less.

    Bell et al., CCS 2020 (ePrint 2020/704), but with independent dropouts. A survivor has its own share too, a dropped
    user's is lost: the latter is the worse case and is taken for all.
    """
    fewest = 2 * math.ceil(math.log2(clients))
    for degree in range(fewest, clients - 1, 2):
        threshold = (degree + 1) // 2 + 1
        if clients * math.exp(log_binomial_below(degree, 1 - dropout, threshold)) <= FAILING_ROUNDS:
            return degree
    return None
