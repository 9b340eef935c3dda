"""The rule of release: which shares a client gives away, per committee, all or nothing.

Shares of a committee leave only if every declared survivor of it has shown, by a tag, that it worked under the
holder's own order, if all of them are members of that order, and if they are enough, in every part that masks still
join where the mask graph is sparse; otherwise neither private seeds nor mask secrets of that committee do.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparsesecagg.crypto import sealing, shamir
from sparsesecagg.errors import PolicyViolation
from sparsesecagg.protocol.client_state import ClientState
from sparsesecagg.protocol.member import Member
from sparsesecagg.protocol.messages import Order, UnmaskRequest, decode_users, pieces
from sparsesecagg.protocol.order import OrderView
from sparsesecagg.protocol.tags import CONFIRM_TAG, ORDER_TAG, Tags, confirmed


def shares_to_release(
    order: OrderView, message: UnmaskRequest, received: Order, member: Member, state: ClientState, min_survivors: int
) -> dict[int, bytes]:
    """Return the shares to release, by owner, as the rule allows; raise if there are none.

    `received` is the order's message, with the shares of others. `min_survivors` is what the user's policy demands.
    """
    secrets, package = state.secrets[order.round_number], state.packages[order.round_number]
    survivors, tags = checked_survivors(order, member.place, message.survivors), member.tags(secrets)
    if order.epoch.params.confirm:
        require_confirmations(order, message, tags, state.confirmed)
    shown = shown_survivors(order, member.place, message, survivors, tags)
    held = member.held_shares(order, received, package, secrets)
    return released_shares(order, survivors, shown, held, min_survivors)


def checked_survivors(order: OrderView, place: int, bitmap: bytes) -> set[int]:
    """Return the declared survivors, if they can be the survivors of this order at all."""
    users = decode_users(bitmap, len(order.epoch.pod))
    if not order.is_member[users].all():
        raise PolicyViolation("the server names a survivor whose package is not used")
    survivors = set(users.tolist())
    if place not in survivors:
        raise PolicyViolation("the server counts this user as dropped and yet asks for its shares")
    if len(survivors) < order.epoch.threshold:
        raise PolicyViolation(f"only {len(survivors)} users survive, {order.epoch.threshold} are needed")
    return survivors


def require_confirmations(order: OrderView, message: UnmaskRequest, tags: Tags, settled: bytes) -> None:
    """Raise unless `threshold` users, this one included, have confirmed the survivors that it has confirmed."""
    if message.survivors != settled:
        raise PolicyViolation("the survivors are not those that this user has confirmed")
    confirmers = decode_users(message.confirmers, len(order.epoch.pod)).tolist() if message.confirmers else []
    made = pieces(message.confirmations, len(confirmers), sealing.TAG_SIZE, "the confirmations")
    statement = confirmed(order.digest, message.survivors)
    agreeing = 1 + sum(
        tags.valid(CONFIRM_TAG, peer, statement, tag) for peer, tag in zip(confirmers, made, strict=True)
    )
    if agreeing < order.epoch.threshold:
        raise PolicyViolation(
            f"only {agreeing} users have confirmed the same survivors, {order.epoch.threshold} are needed: "
            "the server may have told others differently"
        )


def shown_survivors(order: OrderView, place: int, message: UnmaskRequest, survivors: set[int], tags: Tags) -> set[int]:
    """Return the survivors that have shown this order by a tag; those that share no secret with this user count."""
    partners = [partner for partner in order.partners(place).tolist() if partner in survivors]
    made = pieces(message.tags, len(partners), sealing.TAG_SIZE, "the tags")
    return survivors.difference(
        partner
        for partner, tag in zip(partners, made, strict=True)
        if not tags.valid(ORDER_TAG, partner, order.digest, tag)
    )


def released_shares(
    order: OrderView, survivors: set[int], shown: set[int], held: Mapping[int, bytes], min_survivors: int
) -> dict[int, bytes]:
    """Return the shares to release, by owner: of the private seed if the owner survived, else of the mask secret.

    `held` are the pairs of shares that this user holds, its own included.
    """
    released: dict[int, bytes] = {}
    for number, least in enumerate(order.epoch.min_survivors):
        members = order.committee(number).tolist()
        left = survivors.intersection(members)
        needed = max(least, min_survivors)
        if len(left) < needed or not left <= shown or any(len(part) < needed for part in order.joined(left)):
            continue
        for owner in members:
            if owner in held:
                mask_share, seed_share = held[owner][: shamir.SHARE_SIZE], held[owner][shamir.SHARE_SIZE :]
                released[owner] = seed_share if owner in survivors else mask_share
    if not released:
        raise PolicyViolation("no committee has enough survivors that show the same order")
    return dict(sorted(released.items()))
