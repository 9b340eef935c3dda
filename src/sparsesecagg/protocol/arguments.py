"""What the owner of a client gives it, checked before anything happens: mistakes here are its own, not the server's."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsesecagg.crypto.identity import Identity
from sparsesecagg.errors import InvalidInput, PolicyViolation
from sparsesecagg.protocol.ledger import Ledger, MemoryLedger
from sparsesecagg.protocol.parameters import Parameters
from sparsesecagg.protocol.work import ArrayUpdate, UpdateSource


def checked_weight(weight: int, params: Parameters) -> int:
    """Return the weight as it counts; one above the bound is clamped, since a refusal would tell the server."""
    if params.max_weight == 0:
        if weight != 1:
            raise InvalidInput("weight", "must be 1 in a run without weights: set max_weight")
        return 1
    if weight < 0:
        raise InvalidInput("weight", "must not be negative")
    return min(weight, params.max_weight)


def checked_update(update: Any, params: Parameters) -> UpdateSource:
    """Return where the update is read from."""
    if isinstance(update, np.ndarray):
        if update.dtype.kind != "f":
            raise InvalidInput("update", f"must be a NumPy array of floats, got {update.dtype}")
        if update.shape != (params.dim,):
            raise InvalidInput("update", f"must have shape ({params.dim},), got {update.shape}")
        return ArrayUpdate(update)
    if getattr(update, "dim", None) != params.dim:
        raise InvalidInput("update", f"must be a NumPy array or a source of {params.dim} floats, got {type(update)}")
    source: UpdateSource = update
    return source


def checked_ledger(ledger: Ledger | None, params: Parameters) -> Ledger:
    """Return the ledger. What a roster promises rests on it, so a client with an identity does not start without."""
    if ledger is None and params.authenticated:
        raise InvalidInput(
            "ledger", "must be given in a run with a roster: SqliteLedger on a node, MemoryLedger in a simulation"
        )
    return ledger or MemoryLedger()


def checked_identity(identity: Identity | None, user: int, params: Parameters) -> Identity | None:
    """Return the identity if it belongs to this user and this run; None in a run without authentication."""
    if not params.authenticated:
        return None
    if identity is None:
        raise PolicyViolation("the run is authenticated, and this client was given no identity")
    if identity.user != user or identity.roster.digest != params.roster_digest:
        raise PolicyViolation("the run is bound to another roster, or this user has another number in it")
    if len(identity.roster.entries) != params.clients:
        raise PolicyViolation(f"the roster has {len(identity.roster.entries)} users, the run {params.clients}")
    return identity
