"""Our four systems, one round in steady state each: real messages, real clients, one server.

The set-up of a run (sealing keys, groups, the key packages of the first two rounds) happens once and is reported apart.
A round then sends one package ahead of time, which counts: SHARE_KEYS, UPLOAD and UNMASK are what it costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.setting import ANYBODY, CLIP, Setting
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import WORD_BITS, Word
from sparsesecagg.protocol import Parameters, RoundOptions, Stage
from sparsesecagg.simulate import InProcessRun, run_round

OURS = ("secagg", "secagg_plus", "pairwise", "sliced")
NAMES = {
    "flower_secagg_plus": "Flower SecAgg+",
    "secagg": "our SecAgg",
    "secagg_plus": "our SecAgg+",
    "pairwise": "pairwise",
    "sliced": "sliced",
}
"""As readers see them."""
_SMALL = 1000
"""Coordinates of the round that warms up: keys, shares and tags are those of the real one."""


@dataclass(frozen=True)
class Measurement:
    """What one round of one system cost."""

    client_seconds: dict[str, float]
    """By stage: mean per client that took part, and their total."""
    server_seconds: dict[str, float]
    sent_bytes: float
    """Mean per client over all stages."""
    received_bytes: float
    """The same, without the model itself."""
    exact: bool
    """The aggregate is what the system promises: see the function that measured it."""
    settings: dict[str, Any]
    setup: dict[str, float] = field(default_factory=dict)
    """Once per run, per client: seconds, bytes sent and received. Empty where every round sets up anew."""


def parameters(system: str, setting: Setting, *, usual_threshold: bool = False, dim: int | None = None) -> Parameters:
    """Return the run of a system. All have more than half of the holders as threshold, unless the usual one is asked.

    A word too short for the sum of everybody is widened; that of a group may be shorter.
    """
    options = RoundOptions(dropout=setting.dropout, clip=CLIP, modulus_bits=32)
    bits = 32
    match system:
        case "secagg":
            options = replace(options, pattern="full")
        case "secagg_plus":
            options = replace(options, pattern="full", neighbours=setting.plus_degree())
        case _:
            options, bits = replace(options, pattern=system, alpha=setting.alpha), setting.modulus_bits
    Word.of(bits)  # Refuses a size that there is no word of.
    for width in (width for width in WORD_BITS if width >= bits):
        try:
            params = Parameters.create(setting.clients, dim or setting.dim, replace(options, modulus_bits=width))
        except InvalidInput as problem:
            if problem.option != "modulus_bits":
                raise
            continue
        return params if usual_threshold else params.replace(threshold=params.holders // 2 + 1)
    raise AssertionError("32 bits are enough for every cohort")


def measure(system: str, setting: Setting, *, usual_threshold: bool = False) -> Measurement:
    """Run one round; `exact` says that the sum equals the plain sum of the survivors' quantised values."""
    return measure_run(start(system, setting, usual_threshold=usual_threshold), setting)


def start(system: str, setting: Setting, *, usual_threshold: bool = False) -> InProcessRun:
    """Set a run up, after a small one that warms up."""
    params = parameters(system, setting, usual_threshold=usual_threshold)
    _ = setting.noise, setting.dropped  # Made now, so that nobody's stage pays for them.
    small = parameters(system, setting, usual_threshold=usual_threshold, dim=min(params.dim, _SMALL))
    few = dict.fromkeys(setting.dropped, Stage.UPLOAD)
    run_round(small, lambda user: setting.update(user)[: small.dim], ANYBODY, drops=few)
    return InProcessRun(params, ANYBODY)


def measure_run(run: InProcessRun, setting: Setting) -> Measurement:
    """Run the next round of a run."""
    outcome, params = run.round(setting.update, drops=dict.fromkeys(setting.dropped, Stage.UPLOAD)), run.params
    result = outcome.result
    return Measurement(
        client_seconds=dict(outcome.client_seconds),
        server_seconds=dict(outcome.server_seconds),
        sent_bytes=result.mean_bytes(result.sent_bytes)["total"],
        received_bytes=result.mean_bytes(result.received_bytes)["total"],
        exact=outcome.exact,
        settings={
            "modulus_bits": params.modulus_bits,
            "neighbours": params.holders - 1,
            "threshold": params.threshold,
            "alpha_effective": round(params.shape.fraction(), 6),
            "groups": params.groups,
            "groups_opened": result.groups_opened,
        },
        setup=setup_costs(run),
    )


def setup_costs(run: InProcessRun) -> dict[str, float]:
    """Return what the set-up of a run cost a client, once: its keys, and the first two key packages."""
    stages = (Stage.ADVERTISE_KEYS, Stage.SHARE_KEYS)
    return {
        "client_seconds": run.setup.client_seconds(stages)["total"],
        "server_seconds": run.setup.server_seconds(stages)["total"],
        "sent_bytes": sum(sum(sizes.values()) for sizes in run.setup_sent.values()) / run.params.clients,
        "received_bytes": sum(sum(sizes.values()) for sizes in run.setup_received.values()) / run.params.clients,
    }
