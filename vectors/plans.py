"""The rounds that are recorded: their parameters, and who falls silent where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparsesecagg.crypto.identity import Identity, IdentityKey, Roster, RunSecret, enrol
from sparsesecagg.protocol import RoundParameters, Stage
from vectors.form import Vector, named_bytes


@dataclass
class Round:
    """A round on paper: who takes part and who falls silent where."""

    about: str
    params: RoundParameters
    drops: Mapping[int, Stage]
    weights: Sequence[int] | None = None
    identities: Sequence[Identity] | None = None
    secrets: Vector = field(default_factory=dict)
    """Secrets beyond those of a round: the identities' private keys."""


def make_rounds() -> dict[str, Round]:
    """Return all rounds by the name of their file."""
    everyone = {"clients": 6, "dim": 45, "alpha": 0.5, "stripes": 3}
    identities, secrets = _enrolled(7)
    return {
        "round_full": Round(
            "SecAgg: everybody sends everything. One user falls silent at UPLOAD, one at UNMASK.",
            _params(clients=5, dim=24, pattern="full", modulus_bits=32, scale_bits=28),
            {4: Stage.UPLOAD, 1: Stage.UNMASK},
        ),
        "round_full_neighbours": Round(
            "SecAgg+: shares and masks along a graph of degree 4. Users fall silent at SHARE_KEYS and UPLOAD.",
            _params(clients=7, dim=20, pattern="full", modulus_bits=24, neighbours=4, scale_bits=20),
            {2: Stage.SHARE_KEYS, 5: Stage.UPLOAD},
        ),
        "round_pairwise": Round(
            "SparseSecAgg as published; locations travel as coded gaps. One user falls silent at UPLOAD.",
            _params(clients=5, dim=400, pattern="pairwise", alpha=0.1, modulus_bits=32, scale_bits=28),
            {3: Stage.UPLOAD},
        ),
        "round_pairwise_neighbours": Round(
            "The published pattern on a graph of degree 4; locations travel as bitmaps; words of 12 bits.",
            _params(clients=7, dim=40, pattern="pairwise", alpha=0.8, modulus_bits=12, neighbours=4, scale_bits=8),
            {0: Stage.UPLOAD, 6: Stage.UNMASK},
        ),
        "round_committee": Round(
            "Committees of three, two per stripe; the last block is padded. Silence at UPLOAD and UNMASK.",
            _params(**everyone, modulus_bits=16, scale_bits=10),
            {5: Stage.UPLOAD, 0: Stage.UNMASK},
        ),
        "round_committee_dropouts": Round(
            "Users fall silent at ADVERTISE_KEYS, SHARE_KEYS and UPLOAD; words of 8 bits.",
            _params(clients=8, dim=40, alpha=0.5, stripes=2, modulus_bits=8, scale_bits=5),
            {3: Stage.ADVERTISE_KEYS, 6: Stage.SHARE_KEYS, 1: Stage.UPLOAD},
        ),
        "round_committee_neighbours": Round(
            "One committee per stripe, masks along a circle of degree 4 inside it; words of 12 bits.",
            _params(clients=7, dim=30, alpha=1.0, stripes=2, modulus_bits=12, neighbours=4, scale_bits=7),
            {2: Stage.UPLOAD, 5: Stage.UPLOAD},
        ),
        "round_committee_fraction": Round(
            "Everybody sends three blocks of each five, so pairs mask several of them; committees of unequal size.",
            _params(clients=7, dim=40, alpha=0.6, stripes=2, modulus_bits=16, scale_bits=9),
            {3: Stage.SHARE_KEYS, 6: Stage.UPLOAD, 1: Stage.UNMASK},
        ),
        "round_committee_weights": Round(
            "Private weights in two digits beside the values of each block; some values are clipped. Nobody serves two "
            "blocks: one stripe of two, though α = 0.4 and three stripes were asked for.",
            _params(**everyone | {"alpha": 0.4, "stripes": 3}, modulus_bits=8, max_weight=64, scale_bits=5),
            {2: Stage.UPLOAD},
            weights=[64, 32, 16, 48, 0, 8],
        ),
        "round_authenticated": Round(
            "With a roster: users confirm the survivors to each other. Silence at UPLOAD and CONFIRM.",
            _params(
                clients=7,
                dim=26,
                alpha=0.5,
                stripes=2,
                modulus_bits=16,
                round_number=12,
                session=named_bytes("session", 16),
                model_digest=named_bytes("model", 32),
                roster_digest=identities[0].roster.digest,
                scale_bits=10,
            ),
            {1: Stage.UPLOAD, 4: Stage.CONFIRM},
            identities=identities,
            secrets=secrets,
        ),
    }


def _params(*, scale_bits: int, **settings: Any) -> RoundParameters:
    """Return parameters whose scale is 2^scale_bits, so that dyadic updates need no rounding."""
    limit = RoundParameters.create(**settings).quantizer.limit
    return RoundParameters.create(**settings, clip=limit / 2**scale_bits)


def _enrolled(clients: int) -> tuple[list[Identity], Vector]:
    run = "vectors"
    identities = [named_bytes(f"vectors/identity/{user}", 32) for user in range(clients)]
    run_secrets = [named_bytes(f"vectors/run secret/{user}", 32) for user in range(clients)]
    entries = [enrol(IdentityKey(i), run, RunSecret(s)) for i, s in zip(identities, run_secrets, strict=True)]
    roster = Roster(run, tuple(entries))
    secrets = {
        "run": run,
        "users": [
            {
                "identity_private": identity.hex(),
                "run_secret": run_secret.hex(),
                **entry.as_json(),
            }
            for identity, run_secret, entry in zip(identities, run_secrets, entries, strict=True)
        ],
    }
    return [Identity(user, RunSecret(secret), roster) for user, secret in enumerate(run_secrets)], secrets
