"""What users send to each other arrives with whom it is for, in the order of the senders."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparsesecagg.protocol.relay import sorted_by_receiver

SIZE = 3


def piece(sender: int, receiver: int) -> bytes:
    return bytes([sender, receiver, sender ^ receiver])


@given(st.dictionaries(st.integers(0, 40), st.sets(st.integers(0, 40)), max_size=20))
def test_every_receiver_gets_its_pieces_in_the_order_of_the_senders(sent: dict[int, set[int]]) -> None:
    """The same as a loop over everybody."""
    messages = {
        sender: (np.array(sorted(receivers), np.int64), b"".join(piece(sender, each) for each in sorted(receivers)))
        for sender, receivers in sent.items()
    }
    expected = {
        receiver: b"".join(piece(sender, receiver) for sender in sorted(sent) if receiver in sent[sender])
        for receiver in set().union(*sent.values())
    }
    assert sorted_by_receiver(messages, SIZE) == expected
