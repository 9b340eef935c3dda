"""Audit a setting: run real rounds, attack their transcripts, compare with the truth.

Colluders are ⌊γN⌉ random users who stay to the end, because they want to see it. Every other user drops out
independently with probability θ at UPLOAD, the latest and worst moment: its masks are already in the others'
uploads. A round that its clients refuse to open reveals nothing; it is counted and replaced by another one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import ProtocolError, RoundRefused, ThresholdNotMet
from sparsesecagg.privacy.attack import Findings, attack
from sparsesecagg.privacy.audit_report import AuditReport, AuditSettings, Tally
from sparsesecagg.privacy.truth import Truth, UpdateOf
from sparsesecagg.privacy.view import View
from sparsesecagg.protocol import Outcome, Policy, RoundParameters, Stage, Transcript, run_round
from sparsesecagg.protocol.client import Entropy
from sparsesecagg.protocol.run_round import EntropyOf
from sparsesecagg.protocol.simulation import entropy_of_round

STEPS = 32
"""Quantisation steps from 0 to 1; users' updates lie in [−1, 1], on whole steps.

The share of revealed values does not depend on it. Few steps beside q make the attacker of `pairwise` sure of what
it reads by size: a masked value passes for a bare one with probability 5e-8 in words of 32 bits.
"""

LARGEST_REFUSALS = 10
"""Per wanted round: beyond that many refusals the setting can't be audited."""


def run_audit(settings: AuditSettings, workers: int = 1, progress: Callable[[int], None] | None = None) -> AuditReport:
    """Run and attack `settings.rounds` completed rounds, several at a time if there are `workers`.

    The result depends on the settings alone. `progress` is told how many rounds are complete.
    """
    tally, attempts = Tally(), 0
    with _mapper(min(workers, settings.rounds)) as run_all:
        while tally.rounds < settings.rounds:
            missing = settings.rounds - tally.rounds
            for outcome in run_all(partial(_attempt, settings), range(attempts, attempts + missing)):
                attempts += 1
                if isinstance(outcome, Tally):
                    tally += outcome
                    if progress:
                        progress(tally.rounds)
                    continue
                tally += Tally(refused=1)
                if tally.refused > LARGEST_REFUSALS * settings.rounds:
                    raise ProtocolError(f"{tally.refused} of {attempts} rounds were refused: {outcome}")
    return AuditReport(settings, tally)


Mapper = Callable[[Callable[[int], "Tally | str"], Iterable[int]], Iterable["Tally | str"]]


@contextmanager
def _mapper(workers: int) -> Iterator[Mapper]:
    """Give a map that keeps the order, in this process or in several."""
    if workers <= 1:
        yield map
        return
    # Not forked: a progress bar's thread may be running.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield pool.map


def _attempt(settings: AuditSettings, attempt: int) -> Tally | str:
    """Run one round with everything random taken from the seed; return its counts, or why it was refused."""
    params = settings.params
    params = params.replace(round_number=attempt, clip=params.quantizer.limit / STEPS)
    rng = np.random.default_rng([settings.seed, attempt])
    colluders = rng.choice(params.clients, settings.colluders, replace=False).tolist()
    silent = np.flatnonzero(rng.random(params.clients) < params.dropout).tolist()
    weights = rng.integers(1, params.max_weight + 1, params.clients).tolist() if params.max_weight else None

    def update_of(user: int) -> NDArray[np.float64]:
        largest = min(STEPS, params.quantizer.limit)
        steps = np.random.default_rng([settings.seed, attempt, user]).integers(-largest, largest + 1, params.dim)
        return steps / STEPS

    try:
        attacked = attack_round(
            params,
            update_of,
            colluders=colluders,
            drops={user: Stage.UPLOAD for user in silent if user not in colluders},
            weights=weights,
            entropy_of=entropy_of_round(settings.seed, attempt),
        )
    except (RoundRefused, ThresholdNotMet) as refusal:
        return str(refusal)
    return attacked.tally()


@dataclass(frozen=True)
class AttackedRound:
    """One round, what the attacker held and found, and the truth."""

    outcome: Outcome
    view: View
    findings: Findings
    truth: Truth

    def tally(self) -> Tally:
        """Count values by component, and score the attacker's claims."""
        nodes, findings, truth = self.view.nodes, self.findings, self.truth
        per_size = np.bincount(truth.sizes, nodes.coordinates)
        senders = np.bincount(nodes.block, minlength=self.view.params.layout.blocks)
        return Tally(
            rounds=1,
            blocks=int(np.count_nonzero(senders)),
            coordinates=self.view.params.dim,
            by_size=Counter({size: int(count) for size, count in enumerate(per_size) if count}),
            singled_out=int(nodes.coordinates[senders[nodes.block] == 1].sum()),
            read=truth.score_values(findings),
            pairs=truth.score_pairs(findings),
            weights=truth.score_weights(findings),
            wrong_values=findings.wrong_values,
            wrong_pairs=findings.wrong_pairs,
        )


def attack_round(
    params: RoundParameters,
    update_of: UpdateOf,
    *,
    colluders: Collection[int] = (),
    drops: Mapping[int, Stage] | None = None,
    weights: Sequence[int] | None = None,
    entropy_of: EntropyOf | None = None,
) -> AttackedRound:
    """Run a real round, keep what each user drew, and attack it with the draws of the colluders only."""
    draws_of: dict[int, list[bytes]] = {}

    def recording(user: int) -> Entropy:
        source, drawn = entropy_of(user) if entropy_of else os.urandom, draws_of.setdefault(user, [])

        def draw(size: int) -> bytes:
            drawn.append(source(size))
            return drawn[-1]

        return draw

    transcript = Transcript()
    outcome = run_round(
        params,
        update_of,
        weights=weights,
        drops=drops,
        policy=Policy(min_survivors=params.min_survivors),
        entropy_of=recording,
        transcript=transcript,
    )
    view = View(transcript, {user: draws_of[user] for user in colluders})
    return AttackedRound(outcome, view, attack(view), Truth(view, draws_of, update_of, dict(enumerate(weights or []))))


__all__ = ["STEPS", "AttackedRound", "AuditReport", "AuditSettings", "Tally", "attack_round", "run_audit"]
