"""One client's UPLOAD in a cohort of any size: everybody else is a public key and sealed bytes.

Epoch and header are real messages. Only the keys of the others belong to nobody, and their sealed shares are random
bytes; a client keeps shares unopened until UNMASK, so its UPLOAD does exactly what it does in a real round.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.setting import ANYBODY
from sparsesecagg.crypto.keys import PUBLIC_KEY_SIZE
from sparsesecagg.patterns.groups import Group
from sparsesecagg.protocol import Client, Parameters, RoundOptions
from sparsesecagg.protocol.epoch import NO_CONTEXT, Epoch
from sparsesecagg.protocol.messages import (
    BINDING_SIZE,
    SEALED_SIZE,
    AdvertiseKeys,
    EpochKeys,
    RoundHeader,
    ShareKeys,
    decode_client_message,
    encode,
    encode_users,
)
from sparsesecagg.simulate.memory import keep_freed_memory, peak


def measure_upload(clients: int, dim: int, repeats: int = 3, **options: Any) -> dict[str, Any]:
    """Return what UPLOAD costs one client: seconds, bytes, and peak memory above the update itself.

    `options` are those of `RoundOptions`. Every repeat is another user of the same cohort.
    """
    keep_freed_memory()
    params = Parameters.create(clients, dim, RoundOptions(**options))
    users = [Client(user, params, ANYBODY.policy) for user in range(min(repeats, clients))]
    headers = [_header(params, client) for client in users]
    update = _update(dim)

    before = peak()
    wall, processor, size = [], [], 0
    for client, header in zip(users, headers, strict=True):
        start, start_processor = time.perf_counter(), time.process_time()
        size = len(client.upload(header, update))
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_processor)
    return {
        "seconds": float(np.median(wall)),
        "processor_seconds": min(processor),
        "upload_bytes": size,
        "update_bytes": update.nbytes,
        "above_update_bytes": peak() - update.nbytes,
        "before_upload_bytes": before - update.nbytes,
        "settings": {"clients": clients, "dim": dim, "repeats": repeats, **options},
    }


def _header(params: Parameters, client: Client) -> bytes:
    """Let a client join, and return the header of its first round."""
    advert = decode_client_message(client.advertise_keys())
    assert isinstance(advert, AdvertiseKeys)
    seed = params.epoch_seed(1, None)
    group = params.draw(seed).of(client.user)
    index, everybody = group.index_of[client.user], encode_users(np.arange(len(group)), len(group))
    keys = _others_keys(group, index, advert.sealing_key)
    message = EpochKeys(1, params.digest[:BINDING_SIZE], 1, everybody, keys)
    client.join(encode(message))
    package = decode_client_message(client.share_keys(0)[0])
    assert isinstance(package, ShareKeys)
    epoch = Epoch(params, message, seed, group)
    sealed = os.urandom(SEALED_SIZE * len(epoch.partners(index)))
    mask_keys = _others_keys(group, index, package.mask_key)
    return encode(RoundHeader(1, epoch.binding, everybody, mask_keys, NO_CONTEXT, sealed))


def _others_keys(group: Group, index: int, own: bytes) -> bytes:
    """Return a key for each user of a group: one's own, and those of nobody."""
    return b"".join(own if each == index else os.urandom(PUBLIC_KEY_SIZE) for each in range(len(group)))


def _update(dim: int) -> NDArray[np.float32]:
    """Return an update, made in place so that making it leaves no mark in the peak."""
    update = np.empty(dim, np.float32)
    np.random.default_rng(0).standard_normal(out=update, dtype=np.float32)
    update *= np.float32(0.1)
    return update
