"""Hypotheses about the paper's training figures, each a way to average or to count, and the figures they must fit.

The paper saves 17.9× (Figure 5) and 12× (Figure 6) where a round saves u = 1/(p + 1/32) = 7.9×, and 7.8× in Figure 3.
A total is R·u, with R = SecAgg's rounds to the target over those of the sparse system. A hypothesis must fit all three
figures with one change; the wall clock then says which speed-up τ of a round it needs (the paper's, divided by R).

Rounds are counted without the protocol, whose sums are exact: users train, survivors' updates are averaged, and the
published pattern is drawn with its own law. Learning rate and dropouts are the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.common.training import DROPOUT, LEARNING_RATE
from sparsesecagg.lab.audit.theory import selection_probability

WORD_BITS = 32
PAPER_UPLOADS = {"fig3": 7.8, "fig5": 17.9, "fig6": 12.0}
PAPER_CLOCKS = {"fig3": 1.13, "fig5": 1.8, "fig6": 1.2}


@dataclass(frozen=True)
class Rule:
    """One way to average the survivors' updates."""

    key: str
    alpha: float | None = None
    """None: everything is sent."""
    by_everybody: bool = False
    """Divide by N, as if nobody dropped out."""
    whole_models: bool = False
    """Add up models instead of updates, so that dividing by N shrinks the weights too."""
    twice: bool = False
    """Scale by 1/(1−θ) twice."""


SECAGG, SPARSE = Rule("secagg"), Rule("sparse", alpha=0.1)
BY_EVERYBODY = Rule("secagg-by-everybody", by_everybody=True)
MODELS = Rule("secagg-models", by_everybody=True, whole_models=True)
SPARSER, SPARSE_05 = Rule("sparse-0.025", alpha=0.025), Rule("sparse-0.05", alpha=0.05)
LONG_STEPS = Rule("sparse-long", alpha=0.1, twice=True)
RULES = (SECAGG, SPARSE, BY_EVERYBODY, MODELS, SPARSER, SPARSE_05, LONG_STEPS)


@dataclass(frozen=True)
class Hypothesis:
    """What the paper might have run."""

    name: str
    says: str
    base: Rule = SECAGG
    sparse: Rule = SPARSE
    bits: int = WORD_BITS
    """Of a sparse value."""
    first_crossing: bool = False
    """Count rounds until the first crossing of the target, however soon the accuracy falls below it again."""

    def per_round(self, clients: int) -> float:
        """Return u, SecAgg's bits of a round over the sparse ones: values and one bit of location per coordinate."""
        assert self.sparse.alpha is not None
        return WORD_BITS / (self.bits * selection_probability(self.sparse.alpha, clients) + 1)


HYPOTHESES = (
    Hypothesis("as stated", "α = 0.1, SecAgg divides by survivors"),
    Hypothesis("H1", "SecAgg divides by N", base=BY_EVERYBODY),
    Hypothesis("H2", "SecAgg adds up models and divides by N", base=MODELS),
    Hypothesis("H3", "α = 0.025", sparse=SPARSER),
    Hypothesis("H3b", "α = 0.05", sparse=SPARSE_05),
    Hypothesis("H4", "sparse steps scaled by 1/(1−θ) twice", sparse=LONG_STEPS),
    Hypothesis("H5", "the first crossing of a noisy curve counts", first_crossing=True),
    Hypothesis("H6", "16-bit words in the sparse system only", bits=16),
)


@dataclass(frozen=True)
class Figure:
    """A figure's task."""

    name: str
    dataset: str
    partition: str
    target: float
    model: str | None
    lr: float | None = LEARNING_RATE
    cohorts: tuple[int, ...] = (25, 100)


@dataclass(frozen=True)
class Config:
    """Which figures are trained, with how many seeds."""

    figures: tuple[Figure, ...]
    rounds: int
    seeds: int = 1
    beyond: int = 3
    """Rounds that are trained after the first crossing; a target is held if the mean of so many rounds reaches it."""
    patience: int = 3
    """A rule is given up that has not reached the target in so many times SecAgg's rounds."""
    dropout: float = DROPOUT


SCALES = {
    "quick": Config((Figure("fig5", "digits", "iid", 0.8, None, None, (15,)),), rounds=6),
    "default": Config(
        (
            Figure("fig5", "mnist", "iid", 0.97, "strided-cnn"),
            Figure("fig6", "mnist", "shards", 0.94, "strided-cnn"),
            # A small network and a target that it reaches: what counts is the ratio of rounds, and Figure 3's own
            # network takes four times as long.
            Figure("fig3", "cifar10", "iid", 0.45, "strided-cnn", cohorts=(25,)),
        ),
        rounds=120,
    ),
}
