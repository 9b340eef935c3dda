"""One client's UPLOAD in a cohort of any size: everybody else is a key pair, a nonce and sealed bytes.

The directory and the delivery are real messages with N real public keys. Only the sealed shares of the others are
random bytes; a client keeps them unopened until UNMASK, so its UPLOAD does exactly what it does in a real round.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import memory
from sparsesecagg.crypto.keys import public_key
from sparsesecagg.crypto.secrets import SECRET_SIZE, PrivateKey
from sparsesecagg.protocol import Client, RoundParameters
from sparsesecagg.protocol.membership import nonce_commitment
from sparsesecagg.protocol.messages import (
    NONCE_SIZE,
    SEALED_SIZE,
    AdvertiseKeys,
    KeyDirectory,
    ShareDelivery,
    ShareKeys,
    decode_client_message,
    encode,
    encode_users,
    user_number,
)

_NOISE_CHUNK = 1 << 20


def measure_upload(repeats: int = 3, seed: int = 0, **settings: Any) -> dict[str, Any]:
    """Return what UPLOAD costs one client: seconds, bytes, and peak memory above the update itself.

    `settings` are those of `RoundParameters.create`. Every repeat is another user of the same cohort.
    """
    params = RoundParameters.create(**settings)
    clients = [Client(user, params) for user in range(min(repeats, params.clients))]
    advertised = [client.advertise_keys() for client in clients]
    entries, nonces = _strangers(params, len(clients))
    everybody = encode_users(np.arange(params.clients), params.clients)
    known = [decode_client_message(data) for data in advertised]
    own = [m.sealing_key + m.mask_key + m.nonce_commitment for m in known if isinstance(m, AdvertiseKeys)]
    directory = encode(KeyDirectory(params.round_number, params.view, everybody, b"".join([*own, *entries])))
    shared = [decode_client_message(client.share_keys(directory)) for client in clients]
    all_nonces = b"".join([*(m.nonce for m in shared if isinstance(m, ShareKeys)), *nonces])
    degree = params.neighbours or params.clients - 1
    delivery = encode(
        ShareDelivery(params.round_number, params.view, everybody, all_nonces, os.urandom(SEALED_SIZE * degree))
    )
    update = _update(params.dim, seed)

    before = memory.peak()
    wall, processor, size = [], [], 0
    for client in clients:
        start, start_processor = time.perf_counter(), time.process_time()
        size = len(client.upload(delivery, update))
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


def _strangers(params: RoundParameters, known: int) -> tuple[list[bytes], list[bytes]]:
    """Return the directory entries and the nonces of all other users."""
    entries, nonces = [], []
    for user in range(known, params.clients):
        keys = public_key(PrivateKey(os.urandom(SECRET_SIZE))), public_key(PrivateKey(os.urandom(SECRET_SIZE)))
        nonce = os.urandom(NONCE_SIZE)
        message = AdvertiseKeys(
            params.round_number, params.view, user_number(user), *keys, nonce_commitment(*keys, nonce)
        )
        entries.append(message.sealing_key + message.mask_key + message.nonce_commitment)
        nonces.append(nonce)
    return entries, nonces


def _update(dim: int, seed: int) -> NDArray[np.float32]:
    """Return an update, made in place so that making it leaves no mark in the peak."""
    rng = np.random.default_rng(seed)
    update = np.empty(dim, np.float32)
    for start in range(0, dim, _NOISE_CHUNK):
        part = update[start : start + _NOISE_CHUNK]
        rng.standard_normal(out=part, dtype=np.float32)
        part *= np.float32(0.1)
    return update
