"""One user as a process of its own: python -m experiments.network.user ADDRESS PORT USER."""

from __future__ import annotations

import socket
import struct
import sys
import time

import msgspec
import numpy as np

from experiments.common.rounds import ANY_RUN
from experiments.network.talk import Kind, receive, send
from sparsesecagg.protocol import Client, Parameters


def main(address: str, port: str, user: str) -> None:
    """Answer the server until it ends the conversation."""
    with socket.create_connection((address, int(port))) as line:
        send(line, Kind.PARAMETERS, struct.pack("<I", int(user)))
        client: Client | None = None
        prepared: list[bytes] = []
        while True:
            kind, data = receive(line)
            began = time.process_time()
            answer = b""
            match kind:
                case Kind.END:
                    return
                case Kind.PARAMETERS:
                    client = Client(int(user), Parameters.decode(data), ANY_RUN)
                    answer = client.advertise_keys()
                case _ if client is None:
                    raise ConnectionError("there are no parameters yet")
                case Kind.EPOCH_KEYS:
                    client.join(data)
                    answer = msgspec.msgpack.encode(client.share_keys(0))
                case Kind.HEADER:
                    update = np.random.default_rng(int(user)).normal(0, 0.01, client.params.dim).astype(np.float32)
                    began = time.process_time()
                    upload = client.upload(data, update)
                    prepared = [upload, *client.share_keys(client.round_number)]
                    answer = struct.pack("<d", time.process_time() - began)
                case Kind.SEND:
                    answer = msgspec.msgpack.encode(prepared)
                case Kind.UNMASK:
                    answer = client.unmask(data)
            send(line, kind, answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
