"""Audit a setting: run real rounds of real runs, attack their transcripts, compare with the truth.

A run draws its groups once and keeps them. Its colluders are ⌊γN⌉ random users, the same in all rounds, who stay to the
end, because they want to see it. Every other user drops out of each round independently with probability θ at UPLOAD,
the latest and worst moment: its masks are already in the others' uploads. Its packages of later rounds still arrive,
unless `drop_at` says otherwise. A committee that its clients do not open reveals nothing; its values are counted
apart.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.secrets import Entropy
from sparsesecagg.simulate import InProcessRun, Outcome, Transcript
from sparsesecagg.simulate.run import EntropyOf, MakeServer
from sparsesecagg.simulate.simulation import draw_dropouts, entropy_of_run, make_identities, seeded_entropy
from sparsesecagg.errors import ProtocolError, RoundRefused, ThresholdNotMet, TooLittleOpened
from sparsesecagg.lab.audit.attack import Findings, attack
from sparsesecagg.lab.audit.audit_report import AuditReport, AuditSettings, Tally
from sparsesecagg.lab.audit.lying import LyingServer
from sparsesecagg.lab.audit.truth import Truth, UpdateOf
from sparsesecagg.lab.audit.view import RunView, View
from sparsesecagg.protocol import Parameters, Policy, Server, Stage

STEPS = 32
"""Quantisation steps from 0 to 1; users' updates lie in [−1, 1], on whole steps.

The share of revealed values does not depend on it. Few steps beside q make the attacker of `pairwise` sure of what
it reads by size: a masked value passes for a bare one with probability 5e-8 in words of 32 bits.
"""

Progress = Callable[[int], None]
"""Told how many rounds are complete."""


# One round, one run


@dataclass(frozen=True)
class AttackedRound:
    """One round, what the attacker held and found, and the truth."""

    outcome: Outcome | None
    problem: str
    """Why the server opened nothing, if it did not; the attacker looks at the messages all the same."""
    view: View
    findings: Findings
    truth: Truth

    def tally(self) -> Tally:
        """Count values by component, and score the attacker's claims."""
        view, nodes, findings, truth = self.view, self.view.nodes, self.findings, self.truth
        per_size = np.bincount(truth.sizes, nodes.coordinates)
        senders = np.bincount(nodes.slice_number, minlength=view.params.slices.count)
        committees = {
            (pod.epoch.pod.first + int(pod.epoch.pod.committee_of[place]), number)
            for user, (pod, place) in view.place_of.items()
            for number in nodes.slices_of[user].tolist()
        }
        return Tally(
            rounds=int(len(nodes) > 0),
            unopened=int(len(nodes) == 0),
            sums=len(committees),
            coordinates=view.params.dim if len(nodes) else 0,
            by_size=Counter({size: int(count) for size, count in enumerate(per_size) if count}),
            closed=view.closed_values,
            singled_out=int(nodes.coordinates[senders[nodes.slice_number] == 1].sum()),
            read=truth.score_values(findings),
            pairs=truth.score_pairs(findings),
            weights=truth.score_weights(findings),
            wrong_values=findings.wrong_values,
            wrong_pairs=findings.wrong_pairs,
        )


class AttackedRun:
    """A real run, everything that was said and drawn in it, and an attacker that has the colluders' part of it."""

    def __init__(
        self,
        params: Parameters,
        *,
        colluders: Collection[int] = (),
        entropy_of: EntropyOf | None = None,
        identities: Sequence[Identity] | None = None,
        make_server: MakeServer = Server,
    ) -> None:
        self._draws_of: dict[int, list[bytes]] = {user: [] for user in range(params.clients + 1)}
        self._entropy_of = entropy_of
        self._transcript = Transcript()
        self.run = InProcessRun(
            params,
            # Settings that protect nobody are what an audit is for.
            policy=Policy(min_anonymity=1, min_survivors=1, patterns=frozenset({params.pattern})),
            entropy_of=self._recording,
            identities=identities,
            observer=self._transcript,
            make_server=make_server,
        )
        self.params = self.run.params
        self.view = RunView(
            self.params,
            {user: self._draws_of[user] for user in colluders},
            identities[0].roster if identities else None,
            {user: identities[user] for user in colluders} if identities else None,
        )

    def _recording(self, user: int) -> Entropy:
        source, drawn = self._entropy_of(user) if self._entropy_of else os.urandom, self._draws_of[user]

        def draw(size: int) -> bytes:
            drawn.append(source(size))
            return drawn[-1]

        return draw

    def round(
        self,
        update_of: UpdateOf,
        *,
        drops: Mapping[int, Stage] | None = None,
        weights: Sequence[int] | None = None,
    ) -> AttackedRound:
        """Run the next round and attack it, whether or not the server opens anything."""
        outcome, problem = None, ""
        try:
            outcome = self.run.round(update_of, weights=weights, drops=drops)
        except (RoundRefused, ThresholdNotMet, TooLittleOpened) as failure:
            problem = str(failure)
        number = self.run.server.round_number
        self.view.take(self._transcript.sent, self._transcript.received)
        self._transcript.sent.clear()
        self._transcript.received.clear()
        view = self.view.round(number)
        self.view.forget(number)
        truth = Truth(view, self._draws_of, update_of, dict(enumerate(weights or [])))
        return AttackedRound(outcome, problem, view, attack(view), truth)

    @property
    def stopped(self) -> int:
        """How many users have left the run, because they noticed that they were wrongly excluded."""
        return sum(bool(client.stopped) for client in self.run.clients.values())


def attack_run(settings: AuditSettings, run: int, tell: Callable[[], None] | None = None) -> tuple[Tally, str]:
    """Run and attack one run with everything random taken from the seed; return its counts and what went wrong last."""
    rng = np.random.default_rng([settings.seed, run])
    identities, params = _identified(settings, run)
    colluders = rng.choice(params.clients, settings.colluders, replace=False).tolist()
    weights = rng.integers(1, params.max_weight + 1, params.clients).tolist() if params.max_weight else None
    server: MakeServer = Server
    if settings.server == "lying":
        server = partial(LyingServer, colluders=colluders, last_round=settings.rounds)
    attacked = AttackedRun(
        params,
        colluders=colluders,
        entropy_of=entropy_of_run((settings.seed << 20) + run),
        identities=identities,
        make_server=server,
    )
    tally, problem = Tally(), ""
    for number in range(1, settings.rounds + 1):
        drawn = draw_dropouts(params.clients, params.dropout, [Stage.UPLOAD], rng)
        drops = {user: stage for user, stage in drawn.items() if user not in colluders}
        found = attacked.round(
            partial(_update, settings.seed, run, number, params),
            drops=drops,
            weights=weights,
        )
        if settings.drop_at is Stage.UPLOAD:
            attacked.run.deal(drops)
        tally, problem = tally + found.tally(), found.problem or problem
        if tell:
            tell()
    return tally + Tally(stopped=attacked.stopped), problem


def _identified(settings: AuditSettings, run: int) -> tuple[list[Identity] | None, Parameters]:
    """Return identities where a roster is wanted, and parameters with `STEPS` quantisation steps per unit."""
    params = settings.params.replace(clip=settings.params.quantizer.limit / STEPS)
    if not params.authenticated:
        return None, params
    identities = make_identities(params.clients, f"audit {run}", seeded_entropy(settings.seed, run))
    return identities, params.replace(roster_digest=identities[0].roster.digest)


def _update(seed: int, run: int, number: int, params: Parameters, user: int) -> NDArray[np.float64]:
    """Return a user's update: whole quantisation steps, all equally likely."""
    largest = min(STEPS, params.quantizer.limit)
    steps = np.random.default_rng([seed, run, number, user]).integers(-largest, largest + 1, params.dim)
    return steps / STEPS


# Several runs


def run_audit(settings: AuditSettings, workers: int = 1, progress: Progress | None = None) -> AuditReport:
    """Run and attack all runs, several at a time if there are `workers`. The result depends on the settings alone."""
    workers = min(workers, settings.runs)
    found = _one_by_one(settings, progress) if workers <= 1 else _side_by_side(settings, workers, progress)
    tally = sum((each for each, _ in found), Tally())
    if not tally.rounds:
        reasons = [problem for _, problem in found if problem]
        why = f": {reasons[0]}" if reasons else ""
        raise ProtocolError(f"none of {tally.unopened} rounds could be opened{why}")
    return AuditReport(settings, tally)


def _one_by_one(settings: AuditSettings, progress: Progress | None) -> list[tuple[Tally, str]]:
    done = 0

    def tell() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done)

    return [attack_run(settings, run, tell) for run in range(settings.runs)]


def _side_by_side(settings: AuditSettings, workers: int, progress: Progress | None) -> list[tuple[Tally, str]]:
    # Not forked: a progress bar's thread may be running.
    context = get_context("spawn")
    ticks = context.SimpleQueue()
    with ProcessPoolExecutor(workers, context, _listen, (ticks,)) as pool:
        futures = [pool.submit(_worker_run, settings, run) for run in range(settings.runs)]
        done, pending = 0, set(futures)
        while pending:
            _, pending = wait(pending, timeout=0.5)
            while not ticks.empty():
                ticks.get()
                done += 1
                if progress:
                    progress(done)
        return [future.result() for future in futures]


_ticks: Any = None
"""In a worker: where to say that a round is complete."""


def _listen(ticks: Any) -> None:
    global _ticks  # noqa: PLW0603  # A worker process has no other place for what its initialiser gives it.
    _ticks = ticks


def _worker_run(settings: AuditSettings, run: int) -> tuple[Tally, str]:
    return attack_run(settings, run, lambda: _ticks.put(1))


__all__ = [
    "STEPS",
    "AttackedRound",
    "AttackedRun",
    "AuditReport",
    "AuditSettings",
    "Tally",
    "attack_run",
    "run_audit",
]
