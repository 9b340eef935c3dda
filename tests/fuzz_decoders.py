"""`make fuzz`: coverage-guided fuzzing of every decoder with atheris, for as long as one likes.

    .venv/bin/python tests/fuzz_decoders.py -max_total_time=600

A crash is an exception that is not one of ours; atheris prints the input that made it.
"""

from __future__ import annotations

import sys

import atheris
import numpy as np

with atheris.instrument_imports(include=["sparsesecagg"]):
    from sparsesecagg.crypto.kdf import checksum
    from sparsesecagg.downlink import ModelStep, Replica, StepLog, decode_catchup
    from sparsesecagg.errors import SparseSecAggError
    from sparsesecagg.field import Word, unpack
    from sparsesecagg.patterns.gaps import decode_locations
    from sparsesecagg.protocol import Client, Parameters, Server
    from sparsesecagg.protocol.messages import decode_client_message, decode_server_message, decode_users
    from sparsesecagg.protocol.parameters import VERSION

DIM = 500


def decode_anything(data: bytes) -> None:
    """Send the bytes to one decoder, chosen by the first of them."""
    if not data:
        return
    choice, rest = data[0] % 13, data[1:]
    message = bytes([VERSION]) + rest
    try:
        match choice:
            case 0:
                decode_client_message(message + checksum(message))
            case 1:
                decode_server_message(message + checksum(message))
            case 2:
                decode_client_message(rest)
            case 3:
                Parameters.decode(rest)
            case 4:
                decode_locations(rest, DIM)
            case 5:
                decode_users(rest, 77)
            case 6:
                unpack(rest, len(rest) * 2 // 3, Word.of(12))
            case 7:
                ModelStep.decode(rest)
            case 8:
                decode_catchup(rest)
            case 9:
                StepLog.restore(rest)
            case 10:
                Replica(np.zeros(DIM, np.float32)).catch_up(rest)
            case 11:
                Server.restore(rest)
            case _:
                Client.restore(rest)
    except SparseSecAggError:
        pass


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    atheris.Setup(sys.argv, decode_anything)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
