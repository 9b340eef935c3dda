"""How far the hot loop is from this machine's limits.

    python -m benchmarks.limits [--json]

Expanding masks is AES-256-CTR and an addition. So the loop that client and server spend their time in is compared
with the cipher alone (`update_into` over zeros, the best buffer size) and with what memory can carry. Rates are in
bytes of key stream per processor second, the best of several turns that the contestants take in alternation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from rich.table import Table

from benchmarks import command, results
from sparsesecagg.crypto.secrets import SECRET_SIZE, MaskSeed
from sparsesecagg.crypto.stream import MaskStream
from sparsesecagg.errors import InvalidInput
from sparsesecagg.field import Word
from sparsesecagg.protocol.masking import Mask, WholeMasks

RESULT = "limits"
WIDTHS = (6, 8, 12, 16, 24, 32)
"""Bits of the words that are measured: each machine word full and not full."""
_RAW_SIZES = (1 << 14, 1 << 16, 1 << 18, 1 << 20)
_RAW_TOTAL = 1 << 25
_MASKS = 16
_BLOCK_WORDS = 1 << 20
_COPY_SIZE = 1 << 28
_BLOCK = 16


def main(
    repeats: Annotated[int, typer.Option(help="Turns of each contestant; the best counts.")] = 7,
    save: Annotated[bool, typer.Option("--save", help="Write benchmarks/results/limits.json.")] = False,
    json: command.JsonOption = False,
) -> None:
    """Compare mask expansion with raw AES-256-CTR and memory bandwidth."""
    begun = results.begin(publish=save)
    answer = measure(repeats)
    if save:
        results.write(RESULT, answer, begun)
    if json:
        command.print_json(answer)
    else:
        command.out.print(_table(answer))


def measure(repeats: int = 7, scale: float = 1.0) -> dict[str, Any]:
    """Return all rates; `scale` < 1 does less work per turn."""
    if repeats < 1:
        raise InvalidInput("repeats", f"must be at least 1, got {repeats}")
    contestants: dict[str, Callable[[], tuple[int, float]]] = {
        **{f"raw {size}": _raw(size, int(_RAW_TOTAL * scale)) for size in _RAW_SIZES},
        **{f"word {bits}": _expansion(bits, int(_BLOCK_WORDS * scale)) for bits in WIDTHS},
        "copy": _copy(int(_COPY_SIZE * scale)),
    }
    best = dict.fromkeys(contestants, 0.0)
    with command.progress() as bar:
        task = bar.add_task("", total=repeats * len(contestants))
        for _ in range(repeats):
            for name, turn in contestants.items():
                bar.update(task, description=name)
                size, seconds = turn()
                best[name] = max(best[name], size / seconds)
                bar.advance(task)
    raw = max(best[f"raw {size}"] for size in _RAW_SIZES)
    return {
        "aes_256_ctr": {
            "bytes_per_second": raw,
            "by_buffer_size": {str(size): best[f"raw {size}"] for size in _RAW_SIZES},
        },
        "memory_copy_bytes_per_second": best["copy"],
        "mask_expansion": {
            str(bits): {"bytes_per_second": best[f"word {bits}"], "fraction_of_aes": best[f"word {bits}"] / raw}
            for bits in WIDTHS
        },
        "repeats": repeats,
    }


def _raw(size: int, total: int) -> Callable[[], tuple[int, float]]:
    """Return a turn of the cipher alone."""
    encryptor = Cipher(algorithms.AES(os.urandom(SECRET_SIZE)), modes.CTR(bytes(_BLOCK))).encryptor()
    zeros, buffer = bytes(size), np.empty(size + _BLOCK - 1, np.uint8)
    turns = max(1, total // size)

    def turn() -> tuple[int, float]:
        start = time.process_time()
        for _ in range(turns):
            encryptor.update_into(zeros, buffer.data)
        return turns * size, time.process_time() - start

    return turn


def _expansion(bits: int, words: int) -> Callable[[], tuple[int, float]]:
    """Return a turn of the hot loop: many masks added to one block, as in UPLOAD and UNMASK."""
    word = Word.of(bits)
    masks = [Mask(MaskStream(MaskSeed(os.urandom(SECRET_SIZE)), word), index % 2 == 0) for index in range(_MASKS)]
    whole, piece = WholeMasks(masks, word), word.zeros((words,))

    def turn() -> tuple[int, float]:
        start = time.process_time()
        whole.add(piece)
        return _MASKS * words * word.dtype.itemsize, time.process_time() - start

    return turn


def _copy(size: int) -> Callable[[], tuple[int, float]]:
    """Return a turn of copying memory far larger than the caches."""
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)

    def turn() -> tuple[int, float]:
        start = time.process_time()
        np.copyto(target, source)
        return size, time.process_time() - start

    return turn


def _table(answer: dict[str, Any]) -> Table:
    table = Table(
        title="Key stream per second", caption=f"copying memory: {_rate(answer['memory_copy_bytes_per_second'])}"
    )
    for heading in ("", "rate", "of raw AES"):
        table.add_column(heading, justify="right")
    table.add_row("raw AES-256-CTR", _rate(answer["aes_256_ctr"]["bytes_per_second"]), "100 %")
    for bits, measured in answer["mask_expansion"].items():
        table.add_row(
            f"masks, {bits}-bit words", _rate(measured["bytes_per_second"]), f"{measured['fraction_of_aes']:.0%}"
        )
    return table


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.2f} GB/s"


if __name__ == "__main__":
    command.run(main)
