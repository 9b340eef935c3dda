"""A node's weight, rounded at random onto a coarse public grid before anybody else sees anything of it.

Weights stay the same from round to round and carry no noise. With random dropouts a server that sees their sums can
solve for every single one in some tens of rounds (docs/privacy.md, "Weights"). Fresh rounding in each round would
average out. So a node rounds once: a coin of its own, kept with its ledger, decides for all rounds and all runs.

The grid is the powers of two up to the largest weight, and that one. A weight between two points goes up with just the
probability that makes the mean right, so that a mean over many nodes is FedAvg's own but for that noise. The lowest
point is 1: a weight of 0 would take its owner out of the sum in which others hide.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from sparsesecagg.crypto.kdf import derive
from sparsesecagg.errors import LedgerUnusable

FILE: Final = "weight-rounding"
_SIZE: Final = 32
_COIN_BITS: Final = 64


def coin(folder: Path, node: str) -> int:
    """Return this node's coin, a number below 2^64; `node` tells apart nodes of a simulation, which share a folder."""
    secret = derive(_secret(folder / FILE), "weight rounding", bytes(_SIZE), node.encode(), _COIN_BITS // 8)
    return int.from_bytes(secret, "little")


def rounded(weight: int, limit: int, own_coin: int) -> int:
    """Return the grid's point for a weight: above 0, at most `limit`, and right on average over the coins."""
    if weight >= limit:
        return limit
    if weight <= 1:
        return 1
    low = 1 << (weight.bit_length() - 1)
    high = min(2 * low, limit)
    return high if own_coin * (high - low) < (weight - low) << _COIN_BITS else low


def _secret(path: Path) -> bytes:
    """Return what coins are derived from; the first who asks makes it."""
    try:
        if not path.exists():
            draft = path.with_name(f"{FILE}.{secrets.token_hex(8)}")
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_SIZE))
            try:
                os.link(draft, path)  # Unlike a rename it fails where another process was first.
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        data = path.read_bytes()
    except OSError as problem:
        raise LedgerUnusable(f"can't be written: {problem.strerror}") from None
    if len(data) != _SIZE:
        raise LedgerUnusable(f"is damaged: its file {FILE} must have {_SIZE} bytes")
    return data
