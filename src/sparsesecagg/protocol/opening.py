"""Opening the sum: restore one secret per member from the shares in the UNMASK messages.

Every secret is checked against what its owner published, so a false share is noticed instead of spoiling the sum. Where
more holders have answered than are needed, the false shares are found and left out; their number decides how long that
may take, so the search is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.crypto import shamir
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import PrivateKey, PrivateSeed
from sparsesecagg.errors import InvalidShare, ThresholdNotMet
from sparsesecagg.patterns.graphs import Users
from sparsesecagg.protocol.membership import Members, seed_commitment
from sparsesecagg.protocol.messages import ShareKeys, Unmask, decode_users
from sparsesecagg.protocol.stages import Stage

_BATCH_ELEMENTS = 1 << 18
"""Elements of shares that are combined at a time."""

_MOST_TRIES = 300
"""Sets of holders that are tried for one secret. They leave out any single share of 299 for certain, and any three of a
hundred (51 are needed) but for one case in 10^15."""

Restorable = PrivateSeed | PrivateKey


class Secrets(dict[int, Restorable]):
    """The private seed of each survivor, the private mask key of each dropped member."""

    false_shares: tuple[tuple[int, int], ...] = ()
    """Holder and owner of shares that had to be left out. Which of the two is to blame can't be told: one may have
    sent, or the other dealt, a false one. No more are looked for than the opening needs."""


def restore_secrets(
    members: Members, survivors: set[int], shared: Mapping[int, ShareKeys], unmask: Mapping[int, Unmask]
) -> Secrets:
    """Restore the private seed of each survivor and the mask key of each other member.

    Raises `ThresholdNotMet` if a secret has too few shares, `InvalidShare` if no set of its holders that was tried
    restores it.
    """
    threshold = members.directory.params.threshold
    held = _HeldShares(unmask, members.directory.params.clients)
    first, behind = (np.searchsorted(held.owners, members.users, side) for side in ("left", "right"))
    fewest = int((behind - first).min())
    if fewest < threshold:
        raise ThresholdNotMet(Stage.UNMASK.name, fewest, threshold)

    secrets = Secrets()
    false_shares: list[tuple[int, int]] = []
    combined = held.combine(first[:, None] + np.arange(threshold))  # From the first holders of each owner.
    for place, (owner, found) in enumerate(zip(members.users.tolist(), combined, strict=True)):
        check = partial(_genuine, owner=owner, members=members, shared=shared[owner] if owner in survivors else None)
        secret = check(found)
        if secret is None:
            rows = np.arange(first[place], behind[place])
            # Whoever gave a false share of another secret comes last.
            suspected = np.isin(held.holders[rows], [holder for holder, _ in false_shares])
            secret, false_holders = _search(held, rows[np.argsort(suspected, kind="stable")], threshold, check)
            false_shares += [(holder, owner) for holder in false_holders]
        if secret is None:
            raise InvalidShare(
                f"the shares of user {owner}'s secret do not fit together: a holder or the owner gave a false one"
            )
        secrets[owner] = secret
    secrets.false_shares = tuple(sorted(false_shares))
    return secrets


def _search(
    held: _HeldShares, rows: NDArray[np.int64], threshold: int, check: Callable[[bytes | None], Restorable | None]
) -> tuple[Restorable | None, list[int]]:
    """Try sets of shares among `rows` until one restores the secret; return it and who holds the false ones."""
    for chosen in islice(_choices(len(rows), threshold), _MOST_TRIES):
        secret = check(*held.combine(rows[None, chosen]))
        if secret is not None:
            return secret, held.misfits(rows, chosen)
    return None, []


class _HeldShares:
    """All shares that were sent, sorted by owner and then by holder: row i is `shares[i]`, of shape (LIMBS,)."""

    def __init__(self, unmask: Mapping[int, Unmask], clients: int) -> None:
        messages = sorted(unmask.items())
        owners = [decode_users(message.owners, clients) for _, message in messages]
        elements = shamir.decode_shares(b"".join(message.shares for _, message in messages))
        if elements is None:
            raise InvalidShare("a share lies outside the field")
        order = np.argsort(np.concatenate(owners), kind="stable")
        self.owners: Users = np.concatenate(owners)[order]
        self.holders: Users = np.repeat([holder for holder, _ in messages], [len(each) for each in owners])[order]
        self.shares: shamir.Elements = elements.reshape(-1, shamir.LIMBS)[order]

    def combine(self, rows: NDArray[np.int64]) -> Iterator[bytes | None]:
        """Restore one secret from the shares in each row of `rows`."""
        step = max(1, _BATCH_ELEMENTS // (rows.shape[1] * shamir.LIMBS))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            yield from shamir.combine_each(self.shares[some], self.holders[some])

    def misfits(self, rows: NDArray[np.int64], good: NDArray[np.int64]) -> list[int]:
        """Return the holders whose shares are not on the polynomial through the good ones, places in `rows`."""
        (secret,) = self.combine(rows[None, good])
        others = np.delete(rows, good)
        # A polynomial through all good points but one, and this one: is it the same at 0?
        swapped = np.column_stack([np.tile(rows[good[1:]], (len(others), 1)), others])
        return [
            int(self.holders[row]) for row, found in zip(others, self.combine(swapped), strict=True) if found != secret
        ]


def _choices(count: int, needed: int) -> Iterator[NDArray[np.int64]]:
    """Choose `needed` of `count` shares, again and again: first in order, then so that a few false ones are left out.

    The first choices leave out one stretch after the other, hence each single share once; the others are random.
    """
    everything, spare = np.arange(count), count - needed
    yield everything[:needed]
    if not spare:
        return
    for start in range(0, count, spare):
        yield np.delete(everything, slice(start, start + spare))[:needed]
    rng = np.random.default_rng(count)
    while True:
        yield np.sort(rng.permutation(count)[:needed])


def _genuine(found: bytes | None, owner: int, members: Members, shared: ShareKeys | None) -> Restorable | None:
    """Return the secret as what it is, if it is the one its owner committed to; `shared` only for survivors."""
    if found is None:
        return None
    if shared is not None:
        seed = PrivateSeed(found)
        return seed if seed_commitment(members.directory.params, owner, seed) == shared.seed_commitment else None
    key = PrivateKey(found)
    return key if public_key(key) == members.directory.mask_key(owner) else None
