"""Averaging through the real protocol: real keys, shares and masks for every user, in one run over all rounds.

The set-up happens before the first round; groups are kept, and packages of keys travel two rounds ahead. So a user that
misses one round takes part in the next, and one that misses two in a row has no package for the third and misses that
too. Committees with too few survivors lose their slices for the round, and training continues without them.

The one thing that differs from a deployment: all randomness is drawn from the run's seed, by round and user, so that a
run can be repeated bit for bit. What users and server remember between rounds is part of the checkpoint, so a resumed
run has the same keys, the same groups and the same packages as one that was never stopped. The messages, their sizes
and the computing are those of a deployment.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.simulate import InProcessRun, Observer, Outcome
from sparsesecagg.simulate.simulation import EntropyByRound, make_identities, seeded_entropy
from sparsesecagg.errors import InvalidInput, ProtocolError, RoundRefused, ThresholdNotMet, TooLittleOpened, WrongRound
from sparsesecagg.lab.learning.aggregation import Aggregation, Aggregator, ByStage, Contributors
from sparsesecagg.lab.learning.models.base import Layer, Vector
from sparsesecagg.lab.learning.plain import kept_values
from sparsesecagg.lab.learning.scaling import AdaptiveClip
from sparsesecagg.privacy.anonymity import availability
from sparsesecagg.protocol import Parameters, Policy, Result, Stage
from sparsesecagg.protocol.stages import round_stages

# Weights travel as whole numbers up to this. A user of weight w uses w/max of its word, so that a larger scale costs
# the light users nothing in range, and a smaller one rounds their weights more coarsely.
WEIGHT_SCALE = 255
_ROUNDING = 1e-9
_SETUP = (Stage.ADVERTISE_KEYS, Stage.DRAW)
"""What happens once, before the first round; the first two packages are dealt then, too."""


class InexactSum(ProtocolError):
    """The opened sum is not that of the survivors' values: a defect of ours, and nothing to train on."""

    def __init__(self, round_number: int) -> None:
        self.round_number = round_number
        super().__init__(f"the sum opened in round {round_number} is not that of the survivors' quantised values")


@dataclass(frozen=True)
class SecureSettings:
    """What is the same in every round."""

    pattern: str
    alpha: float
    modulus_bits: int
    dropout: float
    committee_size: int | None = None
    pod_size: int | None = None
    neighbours: int | None = None
    threshold: int | None = None
    min_survivors: int | None = None
    normalisation: str = "observed"
    weighted: bool = False
    authenticated: bool = False
    first_clip: float | Vector = 1.0
    """The clip of the first round, or the first model, which it then follows."""


class SecureAggregator(Aggregator):
    """Runs the protocol on updates that were divided by public, adaptive clips."""

    def __init__(self, name: str, clients: int, layers: Sequence[Layer], settings: SecureSettings, seed: int) -> None:
        self.name = name
        self._settings = settings
        dim = layers[-1].stop
        kept_values(settings.alpha, dim)
        if settings.weighted and settings.normalisation != "observed":
            raise InvalidInput("normalisation", "must be observed where users have private weights")
        if settings.weighted and settings.pattern == "pairwise":
            raise InvalidInput(
                "weighting",
                "must be uniform with pairwise: the published protocol can't hide weights, and the paper gives all "
                "users equally many samples",
            )
        self._identities = (
            make_identities(clients, "training", seeded_entropy(seed)) if settings.authenticated else None
        )
        self.parameters = Parameters.create(
            clients=clients,
            dim=dim,
            pattern=settings.pattern,
            alpha=settings.alpha,
            committee_size=settings.committee_size,
            pod_size=settings.pod_size,
            dropout=settings.dropout,
            modulus_bits=settings.modulus_bits,
            neighbours=settings.neighbours,
            threshold=settings.threshold,
            min_survivors=settings.min_survivors,
            max_weight=WEIGHT_SCALE if settings.weighted else 0,
            clip=1.0,
            roster_digest=self._identities[0].roster.digest if self._identities else b"",
        )
        if settings.authenticated:
            _require_enough_survivors(self.parameters, settings)
        self._stages = (Stage.SHARE_KEYS, *round_stages(self.parameters.confirm))
        self.exchanges = len(round_stages(self.parameters.confirm))
        self._clip = AdaptiveClip(layers, settings.first_clip, self.parameters.quantizer.limit)
        self._entropy, self._sizes = EntropyByRound(seed), _Sizes()
        self._run: InProcessRun | None = None

    def aggregate(
        self,
        updates: Mapping[int, Vector],
        weights: Sequence[int] | None,
        drops: Mapping[int, Stage],
        round_number: int,
        model_digest: bytes,
    ) -> Aggregation:
        """Run one round. Too many dropouts are a result, not an error: the reason and the bytes spent are returned."""
        self._sizes.forget()
        begins = self._run is None
        run = self._run = self._run or self._set_up(drops)
        if round_number != run.server.round_number + 1:
            raise WrongRound(round_number, run.server.round_number + 1)
        self._entropy.begin(round_number)
        clip = self._clip.per_coordinate()
        outcome: Outcome | None = None
        reason = None
        try:
            outcome = run.round(
                lambda user: _Divided(updates[user], clip),
                weights=None if weights is None else scaled_weights(weights),
                drops=drops,
                terms=digest("training terms", model_digest, self._clip.clips.tobytes()),
            )
        except (ThresholdNotMet, TooLittleOpened, RoundRefused) as problem:
            reason = str(problem)
        mean = None
        if outcome is not None:
            if not outcome.exact:
                raise InexactSum(round_number)
            mean = self._mean(outcome.result) * clip
            self._clip.follow(mean, outcome.result.updated)
        return self._aggregation(run, outcome, mean, reason, begins)

    def taking_part(self, clients: int, drops: Mapping[int, Stage]) -> list[int]:
        """Return those who are there and whose package for the next round has arrived."""
        there = super().taking_part(clients, drops)
        if self._run is None:
            return there
        dealt = self._run.server.dealt(self._run.server.round_number + 1)
        return [user for user in there if user in dealt]

    def _set_up(self, drops: Mapping[int, Stage]) -> InProcessRun:
        self._entropy.begin(0)
        return InProcessRun(
            self.parameters,
            **self._given(),
            absent={user for user, stage in drops.items() if stage is Stage.ADVERTISE_KEYS},
            late={user for user, stage in drops.items() if stage is Stage.SHARE_KEYS},
        )

    def _given(self) -> dict[str, Any]:
        # Simulated users accept the options of the run, whatever these protect; `train` says if it is little.
        policy = Policy(
            min_anonymity=1,
            min_survivors=1,
            authenticated=self._settings.authenticated,
            patterns=frozenset({self.parameters.pattern}),
        )
        return {
            "policy": policy,
            "entropy_of": self._entropy.of,
            "identities": self._identities,
            "observer": self._sizes,
        }

    def _mean(self, result: Result) -> Vector:
        if self._settings.normalisation == "observed":
            return result.mean()
        # The paper divides by p(1−θ)N. Of N users only those with a package can take part in a round.
        members = len(result.survivors) + result.dropped[Stage.UPLOAD.name]
        expected = result.params.selection_probability * members
        if self._settings.normalisation == "expected":
            expected *= 1 - result.params.dropout
        # Otherwise "everybody": as if nobody dropped out, so steps are too short by 1 − θ on average.
        return (result.sum() / expected).astype(np.float32)

    def _aggregation(
        self, run: InProcessRun, outcome: Outcome | None, mean: Vector | None, reason: str | None, begins: bool
    ) -> Aggregation:
        """Put together what came out and what it cost; the set-up counts in the round that it was made for."""
        names = [stage.name for stage in self._stages]
        client, server = (
            (outcome.client_seconds, outcome.server_seconds) if outcome else (dict.fromkeys(names, 0.0),) * 2
        )
        if begins:
            setup = (*_SETUP[: 2 if self.parameters.authenticated else 1], Stage.SHARE_KEYS)
            client = _added(run.setup_clock.client_means(setup), client)
            server = _added(run.setup_clock.server_totals(setup), server)
        result = outcome.result if outcome else None
        sent = self._sizes.sent[Stage.UPLOAD.name]
        dropped = result.dropped if result else run.server.dropped
        return Aggregation(
            mean=mean,
            reason=reason,
            survivors=len(sent),
            dropped={Stage.ADVERTISE_KEYS.name: run.params.clients - len(run.members)} | dict(dropped),
            upload_bytes=float(np.mean(list(sent.values()) or [0])),
            uploads=len(sent),
            sent_bytes=self._sizes.means(self._sizes.sent, names),
            received_bytes=self._sizes.means(self._sizes.received, names),
            client_seconds=_with_total(client),
            server_seconds=_with_total(server),
            contributors=Contributors.count(result.contributors) if result else None,
            clipped=outcome.clipped if outcome else 0,
            exact=True if outcome else None,
            exchanges=self.exchanges + (self.setup_exchanges if begins else 0),
            coordinates_updated=result.coordinates_updated if result else 0.0,
            committees_opened=result.committees_opened if result else 0,
            lost=dict(Counter(result.lost.values())) if result else {},
        )

    @property
    def setup_exchanges(self) -> int:
        """Exchanges before the first round: keys, the jury's draw if there is a roster, and the first packages."""
        return 3 if self.parameters.authenticated else 2

    def describe(self) -> dict[str, Any]:
        """Return the parameters that follow from the options."""
        params = self.parameters
        sizes = [size for pod in params.sizes for size in pod]
        return {
            "pattern": params.pattern,
            "alpha": params.selection_probability,
            "alpha_asked": params.alpha,
            "contributors": params.contributors,
            "modulus_bits": params.modulus_bits,
            "committees": params.committees,
            "committee_size": {"min": min(sizes), "max": max(sizes)},
            "slices_per_committee": params.served,
            "pods": params.pods,
            "neighbours": params.neighbours or None,
            "threshold": params.threshold,
            "min_survivors": params.min_survivors,
            "authenticated": params.authenticated,
            "confirm": params.confirm,
            "exchanges": self.exchanges,
            "setup_exchanges": self.setup_exchanges,
            "steps_per_user": params.quantizer.limit,
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the clips of the next round, and all that users and server remember."""
        state: dict[str, NDArray[Any]] = {"clips": self._clip.clips}
        if self._run is not None:
            state["run"] = np.frombuffer(self._run.save(), np.uint8)
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go back to what `state` gave."""
        self._clip.clips = np.array(state["clips"], np.float64)
        self._run = InProcessRun.restore(state["run"].tobytes(), **self._given()) if "run" in state else None


def scaled_weights(weights: Sequence[int]) -> list[int]:
    """Return weights as whole numbers up to `WEIGHT_SCALE`, the heaviest user at the scale, nobody at 0."""
    heaviest = max(weights)
    return [max(1, round(WEIGHT_SCALE * weight / heaviest)) for weight in weights]


def _require_enough_survivors(params: Parameters, settings: SecureSettings) -> None:
    """Raise if more users drop out, on average, than the threshold of an authenticated run can spare."""
    share = params.threshold / params.holders
    if availability(settings.dropout) >= share - _ROUNDING:
        return
    left = availability(settings.dropout) * params.clients
    needed = -(-params.threshold * params.clients // params.holders)
    users = f"{left:.3g} of {params.clients} users on average, and these authenticated rounds need {needed}"
    if settings.threshold is not None and params.threshold > 2 * params.holders // 3 + 1:
        raise InvalidInput(
            "threshold", f"of {params.threshold} is out of reach: a dropout of {settings.dropout:g} leaves {users}"
        )
    most = max((rate / 1000 for rate in range(500) if availability(rate / 1000) >= share), default=0.0)
    raise InvalidInput(
        "dropout",
        f"of {settings.dropout:g} leaves {users}, more than two thirds: use {most:g} or less, or rounds that are not "
        "authenticated",
    )


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> ByStage:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in dict.fromkeys((*one, *other))}


def _with_total(by_stage: Mapping[str, float]) -> ByStage:
    stages = {name: seconds for name, seconds in by_stage.items() if name != "total"}
    return {**stages, "total": sum(stages.values())}


class _Divided:
    """A user's update divided by the clips, computed where it is read."""

    def __init__(self, update: Vector, clip: Vector) -> None:
        self.dim = len(update)
        self._update, self._clip = update, clip

    def read(self, start: int, stop: int) -> Vector:
        """Return a stretch."""
        return self._update[start:stop] / self._clip[start:stop]

    def take(self, coordinates: NDArray[np.int64]) -> Vector:
        """Return some coordinates."""
        return self._update.take(coordinates) / self._clip.take(coordinates)


class _Sizes(Observer):
    """Counts the bytes of each user's messages in a round, set-up included in the first."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin with the next round."""
        self.sent: dict[str, Counter[int]] = defaultdict(Counter)
        self.received: dict[str, Counter[int]] = defaultdict(Counter)

    def to_client(self, stage: Stage, user: int, data: bytes) -> None:
        """Count what a user receives."""
        self.received[stage.name][user] += len(data)

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:
        """Count what a user sends."""
        self.sent[stage.name][user] += len(data)

    @staticmethod
    def means(sizes: Mapping[str, Counter[int]], stages: Sequence[str]) -> ByStage:
        """Return the mean of each stage over those who sent (or got) something, and the total."""
        names = dict.fromkeys((*(name for name in sizes if name not in stages), *stages))
        means = {name: float(np.mean(list(sizes.get(name, {}).values()) or [0])) for name in names}
        return {**means, "total": sum(means.values())}
