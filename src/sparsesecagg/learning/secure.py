"""Averaging through the real protocol: real keys, shares and masks for every user, in every round.

The one thing that differs from a deployment: keys are drawn from the run's seed, so that a run can be repeated bit for
bit. The messages, their sizes and the computing are those of a deployment. In an authenticated run that goes for the
identities as well: they are enrolled once, when the run begins, and a resumed run enrols the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput, ProtocolError, RoundRefused, ThresholdNotMet
from sparsesecagg.learning.aggregation import Aggregation, Aggregator, ByStage, Contributors, count_dropped, uploaders
from sparsesecagg.learning.models.base import Layer, Vector
from sparsesecagg.learning.plain import kept_values
from sparsesecagg.learning.scaling import AdaptiveClip
from sparsesecagg.protocol import STAGES, Policy, RoundParameters, Stage, Transcript, run_round
from sparsesecagg.protocol.result import Normalisation
from sparsesecagg.protocol.simulation import entropy_of_round, make_identities, seeded_entropy
from sparsesecagg.protocol.stages import STAGES_WITH_ROSTER

# Weights travel as whole numbers up to this. A user of weight w uses w/max of its word, so that a larger scale costs
# the light users nothing in range, and a smaller one rounds their weights more coarsely.
WEIGHT_SCALE = 255
_ROUNDING = 1e-9


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
    neighbours: int | None = None
    threshold: int | None = None
    min_survivors: int = 2
    normalisation: str = "observed"
    weighted: bool = False
    authenticated: bool = False
    first_clip: float | Vector = 1.0
    """The clip of the first round, or the first model, which it then follows."""


class SecureAggregator(Aggregator):
    """Runs `run_round` on updates that were divided by public, adaptive clips."""

    def __init__(self, name: str, clients: int, layers: Sequence[Layer], settings: SecureSettings, seed: int) -> None:
        self.name = name
        self._settings, self._seed = settings, seed
        self._stages = STAGES_WITH_ROSTER if settings.authenticated else STAGES
        self.exchanges = len(self._stages)
        dim = layers[-1].stop
        kept_values(settings.alpha, dim)
        if settings.weighted and settings.normalisation == "expected":
            raise InvalidInput("normalisation", "must be observed where users have private weights")
        if settings.weighted and settings.pattern == "pairwise":
            raise InvalidInput("weighting", "must be uniform with pairwise, which can't hide weights")
        self._identities = (
            make_identities(clients, "training", seeded_entropy(seed)) if settings.authenticated else None
        )
        self.parameters = RoundParameters.create(
            clients=clients,
            dim=dim,
            pattern=settings.pattern,
            alpha=settings.alpha,
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
        self._clip = AdaptiveClip(layers, settings.first_clip, self.parameters.quantizer.limit)

    def aggregate(
        self,
        updates: Mapping[int, Vector],
        weights: Sequence[int] | None,
        drops: Mapping[int, Stage],
        round_number: int,
        model_digest: bytes,
    ) -> Aggregation:
        """Run one round. Too many dropouts are a result, not an error: the reason and the bytes spent are returned."""
        clip = self._clip.per_coordinate()
        params = self.parameters.replace(round_number=round_number, model_digest=model_digest)
        sizes = _Sizes(self._stages)
        try:
            outcome = run_round(
                params,
                lambda user: updates[user] / clip,
                weights=None if weights is None else scaled_weights(weights),
                drops=drops,
                policy=Policy(min_survivors=self._settings.min_survivors, authenticated=self._settings.authenticated),
                entropy_of=entropy_of_round(self._seed, round_number),
                identities=self._identities,
                transcript=Transcript(to_server=sizes.sent, to_clients=sizes.received),
            )
        except (ThresholdNotMet, RoundRefused) as problem:
            return self._failed(str(problem), drops, sizes)
        if not outcome.exact:
            raise InexactSum(round_number)
        result = outcome.result
        mean = result.mean(cast(Normalisation, self._settings.normalisation)) * clip
        self._clip.follow(mean)
        return Aggregation(
            mean=mean,
            reason=None,
            survivors=len(result.survivors),
            dropped=dict(result.dropped),
            upload_bytes=sizes.sent.means()[Stage.UPLOAD.name],
            uploads=sizes.sent.messages[Stage.UPLOAD.name],
            sent_bytes=sizes.sent.means(),
            received_bytes=sizes.received.means(),
            client_seconds=dict(outcome.client_seconds),
            server_seconds=dict(outcome.server_seconds),
            contributors=Contributors.count(result.contributors),
            clipped=outcome.clipped,
            exact=True,
        )

    def describe(self) -> dict[str, Any]:
        """Return the round parameters that follow from the options."""
        return {
            "pattern": self.parameters.pattern,
            "alpha": self.parameters.selection_probability,
            "contributors": self.parameters.contributors,
            "modulus_bits": self.parameters.modulus_bits,
            "neighbours": self.parameters.neighbours or None,
            "threshold": self.parameters.threshold,
            "authenticated": self.parameters.authenticated,
            "steps_per_user": self.parameters.quantizer.limit,
        }

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return the clips of the next round."""
        return {"clips": self._clip.clips}

    def restore(self, state: Mapping[str, NDArray[np.float64]]) -> None:
        """Go back to earlier clips."""
        self._clip.clips = np.array(state["clips"], np.float64)

    def _failed(self, reason: str, drops: Mapping[int, Stage], sizes: _Sizes) -> Aggregation:
        return Aggregation(
            mean=None,
            reason=reason,
            survivors=len(uploaders(self.parameters.clients, drops)),
            dropped=count_dropped(drops, self._stages),
            upload_bytes=sizes.sent.means()[Stage.UPLOAD.name],
            uploads=sizes.sent.messages[Stage.UPLOAD.name],
            sent_bytes=sizes.sent.means(),
            received_bytes=sizes.received.means(),
            client_seconds=dict.fromkeys((*(stage.name for stage in self._stages), "total"), 0.0),
            server_seconds=dict.fromkeys((*(stage.name for stage in self._stages), "total"), 0.0),
            contributors=None,
            clipped=0,
        )


def scaled_weights(weights: Sequence[int]) -> list[int]:
    """Return weights as whole numbers up to `WEIGHT_SCALE`, the heaviest user at the scale, nobody at 0."""
    heaviest = max(weights)
    return [max(1, round(WEIGHT_SCALE * weight / heaviest)) for weight in weights]


def _require_enough_survivors(params: RoundParameters, settings: SecureSettings) -> None:
    """Raise if more users drop out, on average, than the threshold of an authenticated round can spare."""
    left = (1 - settings.dropout) * params.clients
    if left >= params.threshold - _ROUNDING:
        return
    users = f"{left:.3g} of {params.clients} users on average, and these authenticated rounds need {params.threshold}"
    if settings.threshold is not None and params.threshold > 2 * params.clients // 3 + 1:
        raise InvalidInput(
            "threshold", f"of {params.threshold} is out of reach: a dropout of {settings.dropout:g} leaves {users}"
        )
    most = 1000 * (params.clients - params.threshold) // params.clients / 1000
    raise InvalidInput(
        "dropout",
        f"of {settings.dropout:g} leaves {users}, more than two thirds: use {most:g} or less, or rounds that are not "
        "authenticated",
    )


class _Messages(list[tuple[Stage, int, bytes]]):
    """Stands in for a transcript and keeps the sizes only: a round's messages can fill the memory."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.stages = stages
        self.bytes: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()

    def append(self, message: tuple[Stage, int, bytes]) -> None:
        stage, _, content = message
        self.bytes[stage.name] += len(content)
        self.messages[stage.name] += 1

    def means(self) -> ByStage:
        """Return the mean message of each stage over those who sent (or got) one, and the total."""
        means = {stage.name: self.bytes[stage.name] / max(1, self.messages[stage.name]) for stage in self.stages}
        return {**means, "total": sum(means.values())}


class _Sizes:
    def __init__(self, stages: Sequence[Stage]) -> None:
        self.sent, self.received = _Messages(stages), _Messages(stages)
