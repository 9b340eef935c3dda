"""Messages over a socket: a kind of one byte, a length, and the bytes."""

from __future__ import annotations

import socket
import struct
from enum import Enum

_HEAD = struct.Struct("<cQ")


class Kind(Enum):
    """What a message is; the user answers each one but the last."""

    PARAMETERS = b"P"
    EPOCH_KEYS = b"K"
    MODEL = b"M"
    HEADER = b"H"
    """The user computes its upload, and answers with the processor time that it took."""
    SEND = b"S"
    """The user sends what it has computed: nothing but the line is in between."""
    UNMASK = b"U"
    END = b"E"


def send(line: socket.socket, kind: Kind, data: bytes = b"") -> None:
    """Send one message."""
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # Else a short message waits for an acknowledgement.
    line.sendall(_HEAD.pack(kind.value, len(data)) + data)


def receive(line: socket.socket) -> tuple[Kind, bytes]:
    """Wait for one message."""
    kind, length = _HEAD.unpack(_exactly(line, _HEAD.size))
    return Kind(kind), _exactly(line, length)


def _exactly(line: socket.socket, length: int) -> bytes:
    data = bytearray(length)
    view, at = memoryview(data), 0
    while at < length:
        got = line.recv_into(view[at:])
        if not got:
            raise ConnectionError("the other end is gone")
        at += got
    return bytes(data)
