"""Accepting an epoch's keys, a round's order, a stage's request: what a client checks before it answers anything."""

from __future__ import annotations

import numpy as np

from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.errors import InvalidKey, PolicyViolation, WrongRound, WrongStage, WrongView
from sparsesecagg.protocol.client_state import ClientState
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.messages import HEAD_SIZE, SEALED_SIZE, Order, decode_users, pieces, require_pieces
from sparsesecagg.protocol.order import OrderView
from sparsesecagg.protocol.stages import ROUND_STAGES, Stage


def require_keys(epoch: Epoch, place: int, sealing_key: bytes) -> None:
    """Raise unless the epoch has the sealing key that this user advertised, and enough others to hold its shares."""
    if place not in epoch or epoch.sealing_key(place) != sealing_key:
        raise InvalidKey("the epoch has another sealing key for this user than it advertised, or none")
    holders = len(epoch.holders(place))
    if holders < epoch.threshold:
        raise PolicyViolation(f"only {holders} users would hold shares, the threshold is {epoch.threshold}")


def view_order(epoch: Epoch, message: Order, chain: bytes) -> OrderView:
    """Return the order that a message describes to someone who knows this chain of declared survivors."""
    members = decode_users(message.members, len(epoch.pod))
    order = OrderView(epoch, message.round_number, members, message.terms, chain)
    order.settle(message.committees)
    return order


def accept_order(
    epoch: Epoch, message: Order, *, place: int, head: bytes, terms: bytes, chain: bytes, min_survivors: int
) -> tuple[OrderView, dict[int, bytes]]:
    """Return the order and the heads of the own committee, if everything that can be checked is right.

    `head` is what this member dealt, `terms` its own digest of what it contributes to, `min_survivors` what its policy
    demands of a committee.
    """
    order = view_order(epoch, message, chain)
    if not order.is_member[place]:
        raise PolicyViolation("this user's package is not used, and yet it is to upload")
    if not np.isin(order.members, epoch.present).all():
        raise PolicyViolation("the order counts on a user that advertised no key")
    if len(order.members) < epoch.threshold:
        raise PolicyViolation(f"only {len(order.members)} packages are used, the threshold is {epoch.threshold}")
    if message.terms != terms:
        raise WrongView("the server")
    own = int(epoch.pod.committee_of[place])
    heads = _checked_heads(order, message, place, own, head)
    require_company(order, place, own, min_survivors)
    require_pieces(message.shares, len(order.partners(place)), SEALED_SIZE, "the shares")
    return order, heads


def _checked_heads(order: OrderView, message: Order, place: int, own: int, head: bytes) -> dict[int, bytes]:
    """Return the heads of the own committee: those that the order's digest is about, and the own one as it was dealt.

    Otherwise a server could put mask keys of its own for all peers of one user into everybody's order.
    """
    members = order.committee(own).tolist()
    heads = dict(zip(members, pieces(message.heads, len(members), HEAD_SIZE, "the heads"), strict=True))
    if heads[place] != head:
        raise InvalidKey("the order has another head for this user than it dealt")
    committees = len(order.epoch.pod.committees)
    if pieces(message.committees, committees, DIGEST_SIZE, "the digests")[own] != order.heads_digest(own, heads):
        raise WrongView("the server")
    return heads


def require_company(order: OrderView, place: int, own: int, min_survivors: int) -> None:
    """Raise unless enough others of the committee take part, and share masks with this user."""
    least = max(order.epoch.min_survivors[own], min_survivors)
    members = order.committee(own)
    if len(members) < least:
        raise PolicyViolation(f"only {len(members)} packages of the committee are used, {least} are needed")
    # In a sparse graph there are fewer peers than members; nobody may be left with none.
    if len(order.mask_peers(place)) + 1 < min(least, order.epoch.threshold):
        raise PolicyViolation("too few of those with whom this user shares masks are left")


def require_turn(state: ClientState, round_number: int, stage: Stage, *, confirm: bool) -> None:
    """Raise unless it is the turn of this stage, after UPLOAD, in the round that the user is at."""
    if round_number != state.round_number:
        raise WrongRound(round_number, state.round_number)
    due = Stage.UPLOAD
    if state.order:
        after_upload = state.answered == ROUND_STAGES.index(Stage.UPLOAD)
        due = Stage.CONFIRM if confirm and after_upload else Stage.UNMASK
    if due is not stage:
        raise WrongStage(stage.name, due.name)
