"""Theorem 4 and Lemma 2's bound: training through real rounds on a strongly convex problem.

G² and σ_i² can't be known beforehand. They are estimated as what the assumptions call them: the largest mean over a
user's samples at any point that any user's training visited, in any repeat.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.common.rounds import cohort, majority, parameters
from experiments.common.summaries import t_limit
from experiments.theory.bounds import Problem, convergence_bound, lemma_2_bound
from experiments.theory.checks import check
from experiments.theory.config import ERROR_RATE, Convergence
from experiments.theory.formulas import pairwise_moments
from experiments.theory.logistic import LogisticProblem, User, Vector
from sparsesecagg.protocol import Parameters, RoundOptions, Stage
from sparsesecagg.simulate import run_round

CLIP = 1.0
"""Far above any local update; that nothing is clipped is checked."""


class Visited:
    """The largest gradients and noise that were met."""

    def __init__(self, users: int) -> None:
        self.squared_gradient = 0.0
        self.noise = np.zeros(users)

    def see(self, number: int, gradients: Vector) -> None:
        """Take note of one user's gradients, one per sample, at one point."""
        squares = float((gradients**2).sum(axis=1).mean())
        mean = gradients.mean(axis=0)
        self.squared_gradient = max(self.squared_gradient, squares)
        self.noise[number] = max(self.noise[number], squares - float(mean @ mean))


def round_of(config: Convergence, dim: int, *names: int) -> Parameters:
    """Return the parameters of one round."""
    options = RoundOptions(
        pattern="pairwise",
        alpha=config.alpha,
        threshold=majority(config.clients),
        dropout=config.dropout,
        clip=CLIP,
    )
    return parameters(config.clients, dim, options, *names)


def train(config: Convergence, local_steps: int, repeat: int, seed: int) -> dict[str, Any]:
    """Train once; return the loss above the optimum after every round, Lemma 2's deviations, and what was visited."""
    task = LogisticProblem.digits(config.clients, config.penalty, seed)
    rates = Problem(task.smoothness, config.penalty, 0.0, local_steps)
    weights, best = np.zeros(task.dim), task.together.loss(task.optimum)
    visited = Visited(config.clients)
    losses, deviations, clipped = [task.together.loss(weights) - best], [], 0
    for number in range(config.rounds):
        updates = []
        for place, user in enumerate(task.users):
            rng = np.random.default_rng([seed, repeat, number, place])
            updates.append(_descend(user, weights, rates, number * local_steps, rng, visited, place))
        everybody = weights + np.mean(updates, axis=0)
        params = round_of(config, task.dim, seed, repeat, number)
        outcome = run_round(
            params,
            updates,
            cohort(seed, repeat * config.rounds + number),
            drops=dict.fromkeys(_silent(params, np.random.default_rng([seed, repeat, number])), Stage.UPLOAD),
        )
        clipped += outcome.clipped
        weights = weights + outcome.result.mean("expected").astype(np.float64)
        losses.append(task.together.loss(weights) - best)
        deviations.append(float(((weights - everybody) ** 2).sum()))
    return {
        "losses": losses,
        "deviations": deviations,
        "squared_gradient": visited.squared_gradient,
        "noise": visited.noise.tolist(),
        "clipped": clipped,
    }


def _descend(
    user: User,
    start: Vector,
    rates: Problem,
    step: int,
    rng: np.random.Generator,
    visited: Visited,
    place: int,
) -> Vector:
    """Take E steps of one random sample each; return how far they led."""
    weights = start
    for further in range(rates.local_steps):
        gradients = user.sample_gradients(weights)
        visited.see(place, gradients)
        weights = weights - rates.learning_rate(step + further) * gradients[rng.integers(len(gradients))]
    return weights - start


def _silent(params: Parameters, rng: np.random.Generator) -> list[int]:
    """Let everybody drop out with probability θ; drawn again in the rare case that too few would be left."""
    while True:
        silent: list[int] = np.flatnonzero(rng.random(params.clients) < params.dropout).tolist()
        if len(silent) <= params.clients - params.threshold:
            return silent


def summarise(config: Convergence, local_steps: int, runs: list[dict[str, Any]], seed: int) -> Any:
    """Put the repeats' means beside the bounds."""
    task = LogisticProblem.digits(config.clients, config.penalty, seed)
    problem = Problem(
        smoothness=task.smoothness,
        convexity=config.penalty,
        gradient_bound=max(run["squared_gradient"] for run in runs) ** 0.5,
        local_steps=local_steps,
        divergence=task.divergence,
        initial_distance=float(task.optimum @ task.optimum),
    )
    params = round_of(config, task.dim)
    taking_part = pairwise_moments(config.alpha, config.clients, config.dropout)
    weights = np.full(config.clients, 1 / config.clients)
    noise = np.max([run["noise"] for run in runs], axis=0)
    # The paper scales by 1/(p′N) before it rounds at level c; we round first, at this level divided by p′N.
    level = params.quantizer.scale * taking_part.participation * config.clients
    losses = np.array([run["losses"] for run in runs])
    deviations = np.array([run["deviations"] for run in runs])
    return {
        "local_steps": local_steps,
        "loss": losses.mean(axis=0).tolist(),
        "loss_deviation": losses.std(axis=0, ddof=1).tolist(),
        "bound": [
            convergence_bound(
                problem,
                taking_part,
                weights,
                noise,
                dim=task.dim,
                quantisation_level=level,
                steps=number * local_steps,
            )
            for number in range(config.rounds + 1)
        ],
        "deviation": deviations.mean(axis=0).tolist(),
        "deviation_deviation": deviations.std(axis=0, ddof=1).tolist(),
        "deviation_bound": [
            lemma_2_bound(
                problem, taking_part, weights, dim=task.dim, quantisation_level=level, step=number * local_steps
            )
            for number in range(config.rounds)
        ],
        "clipped": sum(run["clipped"] for run in runs),
        "constants": {
            "L": problem.smoothness,
            "mu": problem.convexity,
            "G_squared": problem.gradient_bound**2,
            "sigma_squared_largest": float(noise.max()),
            "Gamma": problem.divergence,
            "initial_distance_squared": problem.initial_distance,
            "nu": problem.offset,
            "E": local_steps,
            "c": level,
            "p_prime": taking_part.participation,
            "p_tilde": taking_part.joint,
            "dim": task.dim,
        },
    }


def checks(config: Convergence, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hold the mean of all repeats against the bound, after every round: a mean that is surely above it fails."""
    found = []
    for run in runs:
        name = f"E = {run['local_steps']}"
        for source, what, values, spread, bounds in (
            ("Theorem 4", "loss above the optimum", run["loss"], run["loss_deviation"], run["bound"]),
            (
                "Lemma 2",
                "squared distance from everybody's mean",
                run["deviation"],
                run["deviation_deviation"],
                run["deviation_bound"],
            ),
        ):
            # One-sided, for all rounds together.
            limit = t_limit(config.repeats, 2 * ERROR_RATE, len(values)) / config.repeats**0.5
            surely = np.array(values) - limit * np.array(spread)
            nearest = int(np.argmax(np.array(values) / np.array(bounds)))
            found.append(
                check(
                    source,
                    f"{name}: {what}, mean of {config.repeats} runs, where nearest to its bound (round {nearest})",
                    values[nearest],
                    bound=bounds[nearest],
                    holds=bool((surely <= np.array(bounds)).all()) and run["clipped"] == 0,
                    error_rate=ERROR_RATE,
                    note=f"at most {values[nearest] / bounds[nearest]:.2g} of the bound in any round",
                )
            )
    return found
