"""Audit a setting: run real rounds of real runs, attack their transcripts, compare with the truth.

A run draws its groups once and keeps them. Its colluders are ⌊γN⌉ random users who stay to the end. Every other user
drops out of each round with probability θ at UPLOAD, the latest and worst moment: its masks are already in the others'
uploads. A group that is not opened reveals nothing; its values are counted apart.
"""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.identity import Identity, Roster
from sparsesecagg.crypto.sealing import TAG_SIZE
from sparsesecagg.errors import ProtocolError, RoundRefused, ThresholdNotMet, TooLittleOpened
from sparsesecagg.lab.audit.adversary import Adversary, told_dropped
from sparsesecagg.lab.audit.audit_report import AuditReport, AuditSettings, Score, Tally
from sparsesecagg.lab.audit.drawn import DrawnValues, component_sizes
from sparsesecagg.protocol import Parameters, Policy, Server, Stage
from sparsesecagg.protocol.epoch import Epoch, Header
from sparsesecagg.protocol.ledger import ClientState, restore_state
from sparsesecagg.protocol.messages import (
    EpochKeys,
    RoundHeader,
    ShareKeys,
    Unmask,
    UnmaskRequest,
    Upload,
    decode_client_message,
    decode_server_message,
    encode,
    pieces,
)
from sparsesecagg.protocol.server_group import GroupRound
from sparsesecagg.simulate import InProcessRun, Observer, Outcome
from sparsesecagg.simulate.run import Cohort, EntropyOf, MakeServer
from sparsesecagg.simulate.simulation import draw_dropouts, entropy_of_run, make_identities, seeded_entropy

STEPS = 32
"""Quantisation steps from 0 to 1; users' updates lie in [−1, 1], on whole steps.

Few steps beside q make the attacker of `pairwise` sure of what it reads by size: a masked value passes for a bare one
with probability 5e-8 in words of 32 bits.
"""

UpdateOf = Callable[[int], NDArray[np.floating[Any]]]
Progress = Callable[[int], None]  # Told how many rounds are complete.


class MaliciousServer(Server):
    """A server that tells every honest holder another story about who survived, so that few stay in the sum."""

    def __init__(self, params: Parameters, roster: Roster | None = None, *, colluders: Collection[int] = ()) -> None:
        super().__init__(params, roster, threads=1)
        self._helpers = set(colluders)

    def close_stage(self) -> dict[int, bytes]:
        """Change the requests for shares when UPLOAD ends."""
        lies = self.stage is Stage.UPLOAD
        outbound = super().close_stage()
        for each in self.rounds if lies else ():
            if not each.lost:
                outbound |= self._lies(each, outbound)
        return outbound

    def _lies(self, each: GroupRound, requests: Mapping[int, bytes]) -> dict[int, bytes]:
        """Turn tags into rubbish: for the holder their senders have dropped out."""
        epoch, uploaded, changed = each.epoch, each.survivors, {}
        honest = [index for index in uploaded if epoch.user(index) not in self._helpers]
        helpers = sum(epoch.user(index) in self._helpers for index in epoch.present.tolist())
        for holder, gone in told_dropped(honest, len(uploaded), epoch.params.threshold, helpers).items():
            request = decode_server_message(requests[epoch.user(holder)])
            assert isinstance(request, UnmaskRequest)  # noqa: S101
            partners = [index for index in each.header.partners(holder).tolist() if index in uploaded]
            tags = dict(zip(partners, pieces(request.tags, len(partners), TAG_SIZE, "the tags"), strict=True))
            garbled = b"".join(bytes(TAG_SIZE) if index in gone else tag for index, tag in tags.items())
            changed[epoch.user(holder)] = encode(msgspec.structs.replace(request, tags=garbled))
        return changed

    def _exclude(self) -> dict[int, str]:
        return {}  # Those who miss the tags that it garbled are right.


@dataclass(frozen=True)
class AttackedRound:
    """One round and what the attacker knows of it, group by group."""

    outcome: Outcome | None
    problem: str  # Why the server opened nothing, if it did not; the attacker looks at the messages all the same.
    params: Parameters
    known: Sequence[Adversary]
    states: Mapping[int, ClientState]  # All users' before the round: the truth about masks.
    update_of: UpdateOf
    weights: Mapping[int, int]

    def tally(self) -> Tally:
        """Count values by component, and score the attacker's claims."""
        if self.params.shape.protects:
            return self._tally_groups()
        return sum((self._tally_drawn(each) for each in self.known), Tally())

    def _tally_groups(self) -> Tally:
        """Everybody in a group sends the same: a user's values are all in one sum."""
        senders, by_size = np.zeros(self.params.dim, np.int64), Counter[int]()
        read, weights, sums, closed = Score(), Score(), 0, 0
        for each in self.known:
            indices = [index for header in list(each.header_of.values())[:1] for index in header.masked_sum().indices()]
            length = sum(len(senders[index]) for index in indices)
            parts = each.sums()
            inside, sums = set().union(*parts), sums + len(parts)
            closed += length * len(each.uploads.keys() - each.colluders - inside)
            for index in indices:
                senders[index] += len(inside)
            for part in parts:
                by_size[len(part)] += length * len(part)
                if len(part) == 1:
                    values, weight = self._read(each, next(iter(part)))
                    read, weights = read + values, weights + weight
        return Tally(
            rounds=int(bool(by_size)),
            unopened=int(not by_size),
            sums=sums,
            coordinates=int(np.count_nonzero(senders)),
            by_size=by_size,
            closed=closed,
            singled_out=int(np.count_nonzero(senders == 1)),
            read=read,
            weights=weights,
        )

    def _read(self, each: Adversary, index: int) -> tuple[Score, Score]:
        """Read one user's values and weight, and compare: right means less than a step off, as rounding is."""
        found, user = each.read([index]), each.epoch.user(index)
        if found is None:
            return Score(), Score()
        scaled = self._scaled(user)
        error = np.concatenate([values - scaled[where] for where, values, _ in found.pieces()])
        right = int(self.weights.get(user) == found.weight)
        return Score(len(error), int(np.count_nonzero(np.abs(error) < 1))), Score(int(bool(self.weights)), right)

    def _tally_drawn(self, each: Adversary) -> Tally:
        """Every coordinate has its own graph."""
        nodes = DrawnValues(each)
        found, user = nodes.attack(), each.epoch.user
        number = each.round_number
        secrets = {index: self.states[user(index)].packages[number].for_upload().mask_secret for index in nodes.users}
        labels = nodes.components(secrets)
        sizes = component_sizes(labels)
        truth = np.zeros(len(nodes))
        for index in nodes.users:
            here = nodes.nodes_of(index)
            truth[here] = self._scaled(user(index))[nodes.coordinate[here]]
        one, other = found.pairs.T
        paired = (labels[one] == labels[other]) & (sizes[one] == 2)
        pair_error = found.pair_sums - truth[one] - truth[other]
        return Tally(
            rounds=int(len(nodes) > 0),
            unopened=int(len(nodes) == 0),
            sums=int(np.count_nonzero(nodes.senders)),
            coordinates=int(np.count_nonzero(nodes.senders)),
            by_size=Counter({size: int(count) for size, count in enumerate(np.bincount(sizes)) if count}),
            closed=nodes.closed,
            singled_out=int(np.count_nonzero(nodes.senders == 1)),
            read=Score(len(found.nodes), int(np.count_nonzero(np.abs(found.values - truth[found.nodes]) < 1))),
            pairs=Score(len(one), int(np.count_nonzero(paired & (np.abs(pair_error) < 2)))),
            wrong_values=found.wrong_values,
            wrong_pairs=found.wrong_pairs,
        )

    def _scaled(self, user: int) -> NDArray[np.float64]:
        """Return the user's update in quantisation steps, before rounding."""
        quantizer, largest = self.params.quantizer, self.params.max_weight
        factor = self.weights[user] / largest if largest else 1.0
        scaled = self.update_of(user).astype(np.float64) * (quantizer.scale * factor)
        return np.clip(scaled, -quantizer.limit, quantizer.limit)


class AttackedRun(Observer):
    """A real run, and an attacker that hears everything that is said in it and has the colluders' states."""

    def __init__(
        self,
        params: Parameters,
        *,
        colluders: Collection[int] = (),
        entropy_of: EntropyOf | None = None,
        identities: Sequence[Identity] | None = None,
        make_server: MakeServer = Server,
    ) -> None:
        self.params, self.colluders = params, set(colluders)
        self._epochs: dict[int, Epoch] = {}  # By group.
        self._heard: dict[tuple[type, int], dict[int, Any]] = defaultdict(dict)
        """Messages by kind and round, and then by user."""
        # Settings that protect nobody are what an audit is for.
        policy = Policy(min_anonymity=0, server="semi-honest", colluding=0.0, patterns=frozenset({params.pattern}))
        self._cohort = Cohort(policy, entropy_of, identities)
        self.run = InProcessRun(params, self._cohort, observer=self, make_server=make_server)

    def to_client(self, stage: Stage, user: int, data: bytes) -> None:  # noqa: ARG002
        match message := decode_server_message(data):
            case EpochKeys():
                epoch = Epoch.of_user(self.params, message, self._cohort.roster, user)
                self._epochs.setdefault(epoch.group.number, epoch)
            case RoundHeader():
                self._heard[RoundHeader, message.round_number][user] = message

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:  # noqa: ARG002
        message = decode_client_message(data)
        if isinstance(message, ShareKeys | Upload | Unmask):
            self._heard[type(message), message.round_number][user] = message

    def round(
        self, update_of: UpdateOf, *, drops: Mapping[int, Stage] | None = None, weights: Sequence[int] | None = None
    ) -> AttackedRound:
        """Run the next round and attack it, whether or not the server opens anything."""
        outcome, problem = None, ""
        states = {user: restore_state(client.save()) for user, client in self.run.clients.items()}
        try:
            outcome = self.run.round(update_of, weights=weights, drops=drops)
        except (RoundRefused, ThresholdNotMet, TooLittleOpened) as failure:
            problem = str(failure)
        number = self.run.server.round_number
        known = [self._known(number, epoch, states) for epoch in self._epochs.values()]
        self._heard = defaultdict(dict, {key: each for key, each in self._heard.items() if key[1] > number})
        return AttackedRound(outcome, problem, self.params, known, states, update_of, dict(enumerate(weights or [])))

    def _known(self, number: int, epoch: Epoch, states: Mapping[int, ClientState]) -> Adversary:
        """Return what is known of a group: messages, and what the colluders hand over. Nothing else goes in."""
        index_of = epoch.group.index_of
        packages, headers, uploads, unmask = (
            {index_of[user]: each for user, each in self._heard[kind, number].items() if user in index_of}
            for kind in (ShareKeys, RoundHeader, Upload, Unmask)
        )
        colluders = {index_of[user]: states[user] for user in self.colluders if user in index_of}
        adversary = Adversary(epoch, number, packages, colluders)
        for index, upload in uploads.items():
            adversary.take_upload(index, Header(epoch, headers[index]), upload)
        for index in unmask.keys() - colluders.keys():
            adversary.take_shares(index, unmask[index])
        adversary.restore()
        return adversary


def attack_run(settings: AuditSettings, run: int, tell: Callable[[], None] | None = None) -> tuple[Tally, str]:
    """Run and attack one run with everything random taken from the seed; return its counts and what went wrong last."""
    rng, identities = np.random.default_rng([settings.seed, run]), None
    if settings.authenticated:
        entropy = seeded_entropy(settings.seed, run)
        identities = make_identities(settings.clients, f"audit {run}", entropy, group_size=settings.options.group_size)
    roster, session = identities[0].roster if identities else None, seeded_entropy(settings.seed, run)(32)
    params = settings.params_of(roster, session)
    params = params.replace(clip=params.quantizer.limit / STEPS)
    colluders = rng.choice(params.clients, settings.colluders, replace=False).tolist()
    weights = rng.integers(1, params.max_weight + 1, params.clients).tolist() if params.max_weight else None
    attacked = AttackedRun(
        params,
        colluders=colluders,
        entropy_of=entropy_of_run((settings.seed << 20) + run),
        identities=identities,
        make_server=partial(MaliciousServer, colluders=colluders) if settings.server == "malicious" else Server,
    )
    tally, problem = Tally(), ""
    for number in range(1, settings.rounds + 1):
        drawn = draw_dropouts(params.clients, params.dropout, [Stage.UPLOAD], rng)
        drops = {user: stage for user, stage in drawn.items() if user not in colluders}
        found = attacked.round(partial(_update, settings.seed, run, number, params), drops=drops, weights=weights)
        if settings.drop_at is Stage.UPLOAD:
            attacked.run.share_keys(drops)
        tally, problem = tally + found.tally(), found.problem or problem
        if tell:
            tell()
    return tally, problem


def _update(seed: int, run: int, number: int, params: Parameters, user: int) -> NDArray[np.float64]:
    """Return a user's update: whole quantisation steps, all equally likely."""
    largest = min(STEPS, params.quantizer.limit)
    steps = np.random.default_rng([seed, run, number, user]).integers(-largest, largest + 1, params.dim)
    return steps / STEPS


# Several runs


def run_audit(settings: AuditSettings, workers: int = 1, progress: Progress | None = None) -> AuditReport:
    """Run and attack all runs, several at a time if there are `workers`. The result depends on the settings alone."""
    found = []
    if workers > 1 and settings.runs > 1:
        # Not forked: a progress bar's thread may be running. Ctrl-C reaches all processes, and we answer it.
        ours, number = (signal.SIGINT, signal.SIG_IGN), min(workers, settings.runs)
        with ProcessPoolExecutor(number, get_context("spawn"), initializer=signal.signal, initargs=ours) as pool:
            under_way = [pool.submit(attack_run, settings, run) for run in range(settings.runs)]
            try:
                for each in under_way:
                    found.append(each.result())
                    if progress:
                        progress(settings.rounds * len(found))
            except BaseException:
                for process in list(pool._processes.values()):  # Or the pool waits for the other runs.
                    process.terminate()
                raise
    else:
        done = count(1)
        for run in range(settings.runs):
            found.append(attack_run(settings, run, lambda: progress(next(done)) if progress else None))
    tally = sum((each for each, _ in found), Tally())
    if not tally.rounds:
        reasons = [problem for _, problem in found if problem]
        why = f": {reasons[0]}" if reasons else ""
        raise ProtocolError(f"none of {tally.unopened} rounds could be opened{why}")
    return AuditReport(settings, tally)
