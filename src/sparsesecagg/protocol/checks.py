"""What a client checks before it does or releases anything. It believes nothing that the server says unchecked.

The rule of release: a holder's *own* survivors are itself and those declared ones whose tag over the holder's own
header is valid. Are they t or more, it releases the private-seed share of each of them and the mask-secret share of
every other member; are they fewer, nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparsesecagg.crypto import sealing
from sparsesecagg.crypto.identity import Identity
from sparsesecagg.crypto.keys import require_usable
from sparsesecagg.crypto.sealing import PairCipher
from sparsesecagg.crypto.shamir import decode_shares
from sparsesecagg.errors import InvalidInput, InvalidKey, PolicyViolation, WrongBinding, plural
from sparsesecagg.patterns.base import ArrayUpdate, UpdateSource
from sparsesecagg.protocol.epoch import Epoch, Header, KeyPackage, Tags, open_pair
from sparsesecagg.protocol.messages import SEALED_SIZE, RoundHeader, UnmaskRequest, decode_users, pieces, require_pieces
from sparsesecagg.protocol.parameters import Parameters

# What the owner of a client gives it: mistakes here are its own, not the server's


def checked_weight(weight: int, params: Parameters) -> int:
    """Return the weight as it counts: within the bounds, because a refusal would tell the server about it."""
    if params.max_weight == 0:
        if weight != 1:
            raise InvalidInput("weight", "must be 1 in a run without weights: set max_weight")
        return 1
    return 1 if weight < 0 else min(weight, params.max_weight)


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


def checked_identity(identity: Identity | None, user: int, params: Parameters) -> Identity | None:
    """Return the identity if it belongs to this user and this run; None where neither has one."""
    if not params.authenticated:
        if identity is not None:  # What a server could leave out would protect nobody.
            raise PolicyViolation("this client has an identity, but the run is not authenticated")
        return None
    if identity is None:
        raise PolicyViolation("the run is authenticated, but this client has no identity")
    if identity.user != user or identity.roster.digest != params.roster_digest:
        raise PolicyViolation("the run is bound to another roster, or this user has another number in it")
    if len(identity.roster.entries) != params.clients:
        raise PolicyViolation(f"the roster has {len(identity.roster.entries)} users, the run {params.clients}")
    return identity


# The epoch and the round


def require_keys(epoch: Epoch, index: int, sealing_key: bytes) -> None:
    """Raise unless the epoch has the sealing key that this user advertised, and enough others to hold its shares."""
    if epoch.sealing_key.get(index) != sealing_key:
        raise InvalidKey("the epoch has another sealing key for this user than it advertised, or none")
    holders = len(epoch.holders(index))
    if holders < epoch.params.threshold:
        some = f"only {holders} {plural(holders, 'user')} would hold shares"
        raise PolicyViolation(f"{some}, the threshold is {epoch.params.threshold}")


def check_header(epoch: Epoch, index: int, message: RoundHeader, package: KeyPackage, context: bytes) -> None:
    """Raise unless everything in the header that can be checked is right.

    `context` is this user's own digest of what it contributes to. Its own mask key must be the one that it dealt, else
    a server could put its own keys for all peers of one user into everybody's header.
    """
    if message.binding != epoch.binding:
        raise WrongBinding("the server")
    header, least = Header(epoch, message), epoch.params.threshold
    if not header.is_member[index]:
        raise PolicyViolation("asked to upload, but this user's keys are not part of the round")
    if not epoch.is_present[header.members].all():
        raise PolicyViolation("the round includes a user that never advertised a key")
    if header.mask_key[index] != package.mask_key:
        raise InvalidKey("the header has another mask key for this user than it shared")
    require_usable(*header.mask_key.values())
    if message.context != context:
        raise WrongBinding("the server")
    if len(header.members) < epoch.params.quorum:
        raise PolicyViolation(f"only {len(header.members)} users take part, {epoch.params.quorum} are needed")
    partners = header.partners(index)
    if len(partners) + 1 < least:  # In a sparse graph there are fewer partners than members.
        raise PolicyViolation(f"only {len(partners) + 1} users share masks with this one, {least} are needed")
    require_pieces(message.shares, len(partners), SEALED_SIZE, "the shares")


# The rule of release


def own_survivors(header: Header, index: int, message: UnmaskRequest, tags: Tags) -> set[int]:
    """Return this user and the declared survivors that have shown its header; raise if they are too few.

    In a sparse graph those with whom this user shares no secret count as declared, and enough of all must be joined by
    masks.
    """
    users = decode_users(message.survivors, len(header.epoch.group))
    if not header.is_member[users].all():
        raise PolicyViolation("a declared survivor is not part of the round")
    declared = set(users.tolist())
    if index not in declared:
        raise PolicyViolation("this user was declared dropped, but its shares are requested")
    partners = [partner for partner in header.partners(index).tolist() if partner in declared]
    made = pieces(message.tags, len(partners), sealing.TAG_SIZE, "the tags")
    bad = {partner for partner, tag in zip(partners, made, strict=True) if not tags.valid(partner, tag)}
    survivors, params = declared - bad, header.epoch.params
    near = len(partners) - len(bad) + 1
    if near < params.threshold:
        raise PolicyViolation(f"{near} survivors have valid tags for this round, {params.threshold} are needed")
    least = min((len(part) for part in header.components(survivors)), default=0)
    if least < params.quorum:
        raise PolicyViolation(f"masks join only {least} of the survivors, {params.quorum} are needed")
    return survivors


def held_shares(
    header: Header, index: int, message: RoundHeader, package: KeyPackage, ciphers: Mapping[int, PairCipher]
) -> dict[int, bytes]:
    """Return the pairs of shares that this user holds, by owner: its own, and those of the others that open."""
    partners = header.partners(index).tolist()
    sealed = pieces(message.shares, len(partners), SEALED_SIZE, "the shares")
    held = {index: package.own_shares.reveal()}
    for owner, each in zip(partners, sealed, strict=True):
        pair = open_pair(header.epoch, owner, index, each, ciphers[owner])
        if pair is not None:  # Otherwise the owner sealed rubbish; others may still restore its secrets.
            held[owner] = pair
    if decode_shares(b"".join(held.values())) is None:  # Nearly always they are all in the field.
        held = {owner: pair for owner, pair in held.items() if decode_shares(pair) is not None}
    return held
