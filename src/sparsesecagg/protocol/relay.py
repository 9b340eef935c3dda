"""What users send to each other through the server: each sender's pieces, sorted by receiver.

A pod of P users exchanges P² sealed shares and P² tags in a round, so they are moved as arrays and not one by one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparsesecagg.patterns.graphs import Users


def sorted_by_receiver(sent: Mapping[int, tuple[Users, bytes]], size: int) -> dict[int, bytes]:
    """Return each receiver's pieces of `size` bytes, in the order of their senders.

    `sent` has by sender the receivers, and one piece for each of them, one behind the other.
    """
    if not sent:
        return {}
    senders = sorted(sent)
    receivers = np.concatenate([sent[sender][0] for sender in senders])
    pieces = np.frombuffer(b"".join(sent[sender][1] for sender in senders), np.dtype((np.void, size)))
    order = np.argsort(receivers, kind="stable")
    found, starts = np.unique(receivers[order], return_index=True)
    behind = np.append(starts, len(order))[1:].tolist()
    return {
        receiver: pieces[order[start:stop]].tobytes()
        for receiver, start, stop in zip(found.tolist(), starts.tolist(), behind, strict=True)
    }
