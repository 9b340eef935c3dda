"""One client's UPLOAD in a cohort of any size: everybody else is a public key, a nonce and sealed bytes.

Epoch and order are real messages. Only the keys of the others belong to nobody, and their sealed shares are random
bytes; a client keeps shares unopened until UNMASK, so its UPLOAD does exactly what it does in a real round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import memory
from benchmarks.cohort import ANY_RUN
from sparsesecagg.crypto.kdf import DIGEST_SIZE
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE
from sparsesecagg.crypto.secrets import SECRET_SIZE
from sparsesecagg.simulate.allocation import keep_freed_memory
from sparsesecagg.patterns import Pod
from sparsesecagg.protocol import Client, Parameters, session_of
from sparsesecagg.protocol.draws import plain_draw
from sparsesecagg.protocol.epoch import Epoch
from sparsesecagg.protocol.history import write_history
from sparsesecagg.protocol.messages import (
    HEAD_SIZE,
    NONCE_SIZE,
    SEALED_SIZE,
    VIEW_SIZE,
    AdvertiseKeys,
    EpochKeys,
    Order,
    ShareKeys,
    decode_client_message,
    encode,
    encode_users,
)
from sparsesecagg.protocol.order import NO_TERMS, OrderView

_NOISE_CHUNK = 1 << 20
_FIRST_ROUND = 1


def measure_upload(repeats: int = 3, seed: int = 0, **settings: Any) -> dict[str, Any]:
    """Return what UPLOAD costs one client: seconds, bytes, and peak memory above the update itself.

    `settings` are those of `Parameters.create`. Every repeat is another user of the same cohort.
    """
    keep_freed_memory()
    server_seed = os.urandom(SECRET_SIZE)
    params = Parameters.create(**settings, session=session_of(server_seed))
    clients = [Client(user, params, ANY_RUN) for user in range(min(repeats, params.clients))]
    orders = _orders(params, server_seed, clients)
    update = _update(params.dim, seed)

    before = memory.peak()
    wall, processor, size = [], [], 0
    for client, order in zip(clients, orders, strict=True):
        start, start_processor = time.perf_counter(), time.process_time()
        size = len(client.upload(order, update))
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_processor)
    return {
        "seconds": float(np.median(wall)),
        "processor_seconds": min(processor),
        "upload_bytes": size,
        "update_bytes": update.nbytes,
        "above_update_bytes": memory.peak() - update.nbytes,
        "before_upload_bytes": before - update.nbytes,
    }


def _orders(params: Parameters, server_seed: bytes, clients: list[Client]) -> list[bytes]:
    """Let the clients join, and return the first order of each."""
    keys = {user: os.urandom(PUBLIC_KEY_SIZE) for user in range(params.clients)}
    nonces = {user: os.urandom(NONCE_SIZE) for user in range(params.clients)}
    for client in clients:
        advert = decode_client_message(client.advertise_keys())
        assert isinstance(advert, AdvertiseKeys)
        keys[client.user], nonces[client.user] = advert.sealing_key, advert.nonce
    proof, draw = plain_draw(params, server_seed, nonces)
    orders = []
    for client in clients:
        pod = draw.groups.pod_of(client.user)
        assert pod is not None
        message = _epoch_keys(params, proof, pod, keys)
        client.join(encode(message))
        package = decode_client_message(client.share_keys(0)[0])
        assert isinstance(package, ShareKeys)
        epoch = Epoch(params, message, draw.seed, pod)
        orders.append(_order(epoch, pod.place[client.user], package.head))
    return orders


def _epoch_keys(params: Parameters, proof: bytes, pod: Pod, keys: Mapping[int, bytes]) -> EpochKeys:
    everybody = encode_users(np.arange(len(pod)), len(pod))
    pod_keys = b"".join(keys[user] for user in pod.users.tolist())
    return EpochKeys(1, params.digest[:VIEW_SIZE], _FIRST_ROUND, proof, everybody, pod_keys)


def _order(epoch: Epoch, place: int, head: bytes) -> bytes:
    """Return the order for one member: its own head, and heads and shares that nobody dealt."""
    pod = epoch.pod
    order = OrderView(epoch, _FIRST_ROUND, np.arange(len(pod)), NO_TERMS, epoch.digest)
    own = int(pod.committee_of[place])
    members = order.committee(own).tolist()
    heads = {member: head if member == place else os.urandom(HEAD_SIZE) for member in members}
    digests = [os.urandom(DIGEST_SIZE) for _ in pod.committees]
    digests[own] = order.heads_digest(own, heads)
    return encode(
        Order(
            _FIRST_ROUND,
            epoch.view,
            encode_users(order.members, len(pod)),
            b"".join(digests),
            b"".join(heads[member] for member in members),
            NO_TERMS,
            write_history([]),
            os.urandom(SEALED_SIZE * len(order.partners(place))),
        )
    )


def _update(dim: int, seed: int) -> NDArray[np.float32]:
    """Return an update, made in place so that making it leaves no mark in the peak."""
    rng = np.random.default_rng(seed)
    update = np.empty(dim, np.float32)
    for start in range(0, dim, _NOISE_CHUNK):
        part = update[start : start + _NOISE_CHUNK]
        rng.standard_normal(out=part, dtype=np.float32)
        part *= np.float32(0.1)
    return update
