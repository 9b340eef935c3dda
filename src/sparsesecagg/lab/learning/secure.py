"""Averaging through the real protocol: real keys, shares and masks for every user, in one run over all rounds.

Key packages travel two rounds ahead, so a user that misses two rounds in a row has none for the third and misses that
too, unless `keys_arrive`. Where users are sampled, every round is a run of its own, and its bytes include the set-up.
Unlike in a deployment all randomness is drawn from the run's seed, by round and user, so that a run can be repeated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto.kdf import digest
from sparsesecagg.downlink.gain import Gain
from sparsesecagg.errors import ProtocolError, RoundRefused, ThresholdNotMet, TooLittleOpened, WrongRound, require
from sparsesecagg.lab.learning.aggregation import Aggregation, Aggregator, count_contributors
from sparsesecagg.lab.learning.config import AUTO, TrainingConfig
from sparsesecagg.lab.learning.models import Layer, Vector
from sparsesecagg.planning.noise import FAILURE_LOG2
from sparsesecagg.planning.planner import require_majority
from sparsesecagg.privacy.accountant import usable_delta
from sparsesecagg.privacy.anonymity import ServerModel
from sparsesecagg.protocol import STAGES, Parameters, Policy, RoundOptions, Stage
from sparsesecagg.protocol.combine import CentredClipping, Combine, Median, Normalisation, Sum
from sparsesecagg.protocol.policy import kept_by
from sparsesecagg.protocol.stages import ROUND_STAGES
from sparsesecagg.ranges import Ranges
from sparsesecagg.simulate import Cohort, InProcessRun, Observer, Outcome
from sparsesecagg.simulate.delivery import ROUND
from sparsesecagg.simulate.simulation import EntropyByRound, make_identities, seeded_entropy

# Weights travel as whole numbers up to this. A user of weight w uses w/max of its word, so that a larger scale costs
# the light users nothing in range, and a smaller one rounds their weights more coarsely.
WEIGHT_SCALE = 255
LEAST_HEADROOM, MOST_HEADROOM, STEPS = 3.0, 64.0, 64
_SETUP = (Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS)
"""What happens before the first round: keys are advertised once, the first two packages are sent."""


class AdaptiveClip:
    """The range of every layer, from one round to the next: `sparsesecagg.ranges` for the layers of a model.

    A round takes one clip for all coordinates, so users divide each layer by its own range, and the mean is multiplied
    by it. The first range is the largest magnitude of a layer's first weights, which all know. A headroom of 3 is
    enough where steps are scarce (8-bit words); it is larger as long as `STEPS` remain below the largest magnitude.
    """

    def __init__(self, layers: Sequence[Layer], first: float | Vector, steps: int) -> None:
        """`first`: the first range, or the model that it follows. `steps`: those of a user on either side of zero."""
        self.headroom = min(MOST_HEADROOM, max(LEAST_HEADROOM, steps / STEPS))
        self._layers = tuple(layers)
        ranges = self._largest(first) if isinstance(first, np.ndarray) else np.full(len(self._layers), first)
        # Layers that begin at zero, such as biases, take the widest range of the others.
        ranges[ranges == 0] = ranges.max() or 1.0
        self.ranges = Ranges(ranges, self.headroom)

    @property
    def clips(self) -> NDArray[np.float64]:
        """The ranges of the next round."""
        return self.ranges.values

    def per_coordinate(self) -> Vector:
        """Return the range of each coordinate: what updates are divided by, and means multiplied by."""
        return np.repeat(self.clips, [layer.stop - layer.start for layer in self._layers]).astype(np.float32)

    def follow(self, mean: Vector, updated: NDArray[np.bool_] | None = None, clipped: float = 0.0) -> None:
        """Set the next ranges from the public mean, where there is one (`updated`), and the part of values clipped."""
        known = updated is None or [updated[layer.start : layer.stop].any() for layer in self._layers]
        self.ranges.follow(self._largest(mean), known, clipped)

    def _largest(self, vector: Vector) -> NDArray[np.float64]:
        return np.array([np.abs(vector[layer.start : layer.stop]).max() for layer in self._layers], np.float64)


class SecureAggregator(Aggregator):
    """Runs the protocol on updates that were divided by public, adaptive clips.

    `options` are those of a round, as the aggregator means them. `first_clip` is the clip of the first round, or the
    first model, which it then follows.
    """

    exchanges = len(ROUND_STAGES)

    def __init__(
        self, config: TrainingConfig, options: RoundOptions, layers: Sequence[Layer], first_clip: float | Vector
    ) -> None:
        super().__init__(config.cohort, layers[-1].stop)
        self._config, self._malicious = config, config.malicious_users()
        self._sampled = config.sample < 1  # Every round has other users, so each is a separate run.
        self._combine: Combine = {"mean": Sum, "median": Median}.get(config.combine) or CentredClipping()
        identities = None
        if config.authenticated:
            colluding = {} if options.colluding is None else {"colluding": options.colluding}
            entropy = seeded_entropy(config.seed)
            identities = make_identities(config.cohort, "training", entropy, group_size=options.group_size, **colluding)
        self.parameters = params = Parameters.create(
            self.clients,
            self.dim,
            options,
            session=digest("training session", config.seed.to_bytes(16, "little")),
            roster=identities[0].roster if identities else None,
        )
        require_majority(params, options.threshold)
        weights_travel = params.shape.digits.total > 0
        usual = "observed" if weights_travel or not params.max_weight else "expected"
        self._normalisation: Normalisation = "expected" if (config.normalisation or usual) == "expected" else "observed"
        self._server: ServerModel = "malicious" if params.authenticated else "semi-honest"
        counted = not params.max_weight or weights_travel or self._normalisation == "expected"
        wanted = f"must be expected in {config.aggregator} with weights, which do not travel there"
        require("normalisation", counted, wanted)
        self._clip = AdaptiveClip(layers, first_clip, params.quantizer.limit)
        coverage, slices = params.shape.coverage, params.shape.protects and params.shape.sparse
        gain = 1.0 if not slices else None if config.gain == AUTO else float(config.gain)
        if gain is None and params.mechanism:
            gain = 1 / coverage  # Means with noise do not tell whether steps are too long: what is unbiased has to do.
        self._gain = Gain(1.0 if gain == 1.0 else coverage, gain)
        self._entropy, self._sizes = EntropyByRound(config.seed), _Sizes()
        # Simulated users accept the options of the run, whatever these protect; `train` says if it is little. With
        # noise at least one honest user must be in every sum: they share it.
        policy = Policy(
            min_anonymity=1 if params.mechanism else 0,
            server=self._server,
            colluding=params.colluding,
            patterns=frozenset({params.pattern}),
        )
        self._cohort = Cohort(policy, self._entropy.of, identities)
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
        self._sizes.sent.clear()
        self._sizes.received.clear()
        begins = self._run is None
        run = self._run or self._set_up(drops, round_number)
        if not self._sampled:
            self._run = run
            if round_number != run.server.round_number + 1:
                raise WrongRound(round_number, run.server.round_number + 1)
            self._entropy.begin(round_number)
        # With noise an update is clipped as a whole, by its 2-norm.
        clip = np.ones(run.params.dim, np.float32) if run.params.mechanism else self._clip.per_coordinate()
        heaviest = max(weights or [1])  # It has the scale, and nobody 0.
        scaled = None if weights is None else [max(1, round(WEIGHT_SCALE * each / heaviest)) for each in weights]
        updates = self._malicious.replace(updates, run.params.contributors, clip)
        outcome: Outcome | None = None
        reason = None
        try:
            outcome = run.round(
                lambda user: updates[user] / clip,
                weights=scaled,
                drops=drops,
                context=digest("training context", model_digest, self._clip.clips.tobytes()),
            )
        except (ThresholdNotMet, TooLittleOpened, RoundRefused) as problem:
            reason = str(problem)
        if self._config.keys_arrive:
            run.share_keys([user for user, stage in drops.items() if stage is Stage.UPLOAD])
        step = None
        if outcome is not None:
            if not outcome.exact and not self._malicious.users:  # Who sends too much may make a sum wrap.
                # A defect of ours, and nothing to train on.
                raise ProtocolError(f"the sum opened in round {round_number} is not that of the survivors' integers")
            result = outcome.result
            mean = result.mean(self._normalisation, sum(scaled) if scaled else None) * clip
            values = len(result.survivors) * int(np.count_nonzero(result.updated))
            self._clip.follow(mean, result.updated, (result.clipped or 0) / max(1, values))
            step = self._gain.step(mean, result.updated)
        return self._aggregation(run, outcome, step, reason, begins)

    def taking_part(self, clients: int, drops: Mapping[int, Stage]) -> list[int]:
        """Return those who are there and whose package for the next round has arrived."""
        there = super().taking_part(clients, drops)
        if self._run is None:
            return there
        shared = self._run.server.shared(self._run.server.round_number + 1)
        return [user for user in there if user in shared]

    def _set_up(self, drops: Mapping[int, Stage], round_number: int) -> InProcessRun:
        self._entropy.begin(round_number if self._sampled else 0)
        session = digest("sampled session", self.parameters.session, round_number.to_bytes(8, "little"))
        params = self.parameters.replace(session=session) if self._sampled else self.parameters
        run = InProcessRun(params, self._cohort, drops=drops, observer=self._sizes)
        return self._with_roles(run)

    def _with_roles(self, run: InProcessRun) -> InProcessRun:
        """Give the server its rule and malicious users their own reading of the parameters."""
        run.server.combine = self._combine
        for user in self._malicious.users & run.clients.keys():
            run.clients[user].params = self._malicious.parameters(run.params)
        return run

    def _aggregation(
        self, run: InProcessRun, outcome: Outcome | None, step: Vector | None, reason: str | None, begins: bool
    ) -> Aggregation:
        """Put together what came out and what it cost; the set-up counts in the round that it was made for."""
        result, uploads = outcome.result if outcome else None, self._sizes.sent[Stage.UPLOAD]
        nothing = dict.fromkeys((stage.name for stage in ROUND), 0.0)
        client, server = (outcome.client_seconds, outcome.server_seconds) if outcome else (nothing, nothing)
        if begins:
            client = _added(run.setup.client_seconds(_SETUP), client)
            server = _added(run.setup.server_seconds(_SETUP), server)
        return Aggregation(
            step=step,
            reason=reason,
            survivors=len(uploads),
            dropped={Stage.ADVERTISE_KEYS.name: run.params.clients - len(run.members)}
            | dict(result.dropped if result else run.server.dropped),
            upload_bytes=float(np.mean(list(uploads.values()) or [0])),
            uploads=len(uploads),
            sent_bytes=_means(self._sizes.sent),
            received_bytes=_means(self._sizes.received),
            client_seconds=_added(client),
            server_seconds=_added(server),
            **(count_contributors(result.contributors[result.updated]) if result else {}),
            clipped=outcome.clipped if outcome else 0,
            exact=True if outcome else None,
            exchanges=self.exchanges + (len(_SETUP) if begins else 0),
            coordinates_updated=result.coordinates_updated if result else 0.0,
            gain=self._gain.value,
            groups_opened=result.groups_opened if result else 0,
            lost=dict(Counter(result.lost.values())) if result else {},
        )

    def turns(self) -> NDArray[np.int32] | None:
        """Return the order in which rounds send the coordinates: a run has one epoch, a sampled one none."""
        params = self.parameters
        return None if self._sampled else params.shape.turns(params.epoch_seed(1, self._cohort.roster))

    def describe(self) -> dict[str, Any]:
        params = self.parameters
        noise = {"noise_multiplier": params.noise_multiplier} if params.mechanism else {}
        # Honest users in every sum that can be read; one where the pattern promises nothing.
        anonymity = kept_by(params, self._server, params.colluding).anonymity if params.shape.protects else 1
        return noise | {
            **{name: getattr(params, name) for name in ("pattern", "modulus_bits", "groups", "threshold")},
            "authenticated": params.authenticated,
            "alpha": params.shape.fraction(),
            "alpha_asked": float(f"{params.alpha:.9g}"),  # As it was typed: parameters hold multiples of 2^−32.
            "coverage": params.shape.coverage,
            "group_size": {"min": min(params.sizes), "max": max(params.sizes)},
            "neighbours": params.neighbours or None,
            "anonymity": anonymity,
            "exchanges": self.exchanges,
            "setup_exchanges": len(_SETUP),
            "levels": params.quantizer.limit,
            "normalisation": self._normalisation,
        }

    def epsilon(self, rounds: int, delta: float) -> float | None:
        """Return the ε that these rounds have cost each user, failed ones included."""
        mechanism = self.parameters.mechanism
        if mechanism is None:
            return None
        cost = mechanism.cost.times(rounds)
        return cost.epsilon(usable_delta(delta, cost.epsilon(delta), FAILURE_LOG2))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the clips and the gain of the next round, and all that users and server remember."""
        state: dict[str, NDArray[Any]] = {
            "clips": np.frombuffer(self._clip.ranges.save(), np.uint8),
            "gain": np.frombuffer(self._gain.save(), np.uint8),
        }
        if isinstance(self._combine, CentredClipping) and self._combine.last is not None:
            state["centre"] = self._combine.last
        if self._run is not None:
            state["run"] = np.frombuffer(self._run.save(), np.uint8)
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._clip.ranges = Ranges.restore(state["clips"].tobytes())
        self._gain.restore(state["gain"].tobytes())
        self._run = None
        if "run" in state:
            run = InProcessRun.restore(state["run"].tobytes(), self._cohort, observer=self._sizes)
            self._run = self._with_roles(run)
        if "centre" in state and isinstance(self._combine, CentredClipping):
            self._combine.last = np.array(state["centre"], np.float32)


def _added(*parts: Mapping[str, float]) -> dict[str, float]:
    """Add up by stage; the total comes last."""
    names = dict.fromkeys(name for part in parts for name in part if name != "total")
    stages = {name: sum(part.get(name, 0.0) for part in parts) for name in names}
    return {**stages, "total": sum(stages.values())}


class _Sizes(Observer):
    """Counts the bytes of each user's messages in a round, set-up included in the first."""

    def __init__(self) -> None:
        self.sent: dict[Stage, Counter[int]] = defaultdict(Counter)
        self.received: dict[Stage, Counter[int]] = defaultdict(Counter)

    def to_client(self, stage: Stage, user: int, data: bytes) -> None:
        self.received[stage][user] += len(data)

    def to_server(self, stage: Stage, user: int, data: bytes) -> None:
        self.sent[stage][user] += len(data)


def _means(sizes: Mapping[Stage, Counter[int]]) -> dict[str, float]:
    """Return the mean of each stage over those who sent (or got) something, and the total."""
    stages = [stage for stage in STAGES if stage in sizes or stage in ROUND]
    return _added({stage.name: float(np.mean(list(sizes.get(stage, {}).values()) or [0])) for stage in stages})
