"""The server's rounding: from the model that training asks for to the model that everybody holds.

    step  = target − model + error          what users lack
    model = model + rounded step            what users hold from now on
    error = error + target − model          what is left for the next step

So model + error follows the targets exactly (up to float32), and rounding is delayed, never lost.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparsesecagg.downlink.blocks import (
    BLOCK,
    STEP_BITS,
    Bytes,
    Levels,
    block_count,
    pack_levels,
    require_bits,
    round_blocks,
)
from sparsesecagg.downlink.step import ModelStep, add_step, levels_size
from sparsesecagg.downlink.vector import (
    NumberedModel,
    Vector,
    cleaned,
    from_wire,
    model_digest,
    read_only,
    require_sequence,
    require_vector,
    wire_bytes,
)
from sparsesecagg.errors import InvalidInput, MalformedMessage, WrongStep

_CHUNK = 128 * BLOCK


class StepEncoder(NumberedModel):
    """Turns targets into steps, and holds the rounded model that they lead to, bit for bit what users hold."""

    def __init__(self, model: Vector, bits: int = 4, sequence: int = 0) -> None:
        """Begin with a model of shape (dim,), float32; values below 2^−103 become 0."""
        self.bits = require_bits(bits)
        super().__init__(cleaned(require_vector("model", model)), sequence)
        self._error = np.zeros_like(self._model)

    @classmethod
    def restored(cls, model: Vector, bits: int, sequence: int, error: bytes | memoryview) -> StepEncoder:
        """Return the encoder that held this model and this error, as `error_bytes` wrote it."""
        if bits not in STEP_BITS or len(error) != wire_bytes(model).nbytes:
            raise MalformedMessage("the bytes are not a saved encoder")
        encoder = cls(model, bits, sequence)
        encoder._error = from_wire(error)
        if not np.isfinite(encoder._error).all():
            raise MalformedMessage("the kept error of a saved encoder is not finite")
        return encoder

    def error_bytes(self) -> memoryview:
        """Return the kept error as bytes."""
        return wire_bytes(self._error)

    @property
    def error(self) -> Vector:
        """What rounding has left for the next step; read-only, shape (dim,)."""
        return read_only(self._error)

    def encode(self, target: Vector, sequence: int | None = None) -> ModelStep:
        """Step towards `target`, shape (dim,), float32, and return the step.

        Where `target` equals the model in a whole block of 512, the block stays as it is and its error waits: a round
        that changes few blocks makes a small step. `sequence` numbers the new model, by default the next number.
        """
        require_vector("target", target)
        if len(target) != len(self._model):
            raise InvalidInput("target", f"must have {len(self._model)} values, as the model has, got {len(target)}")
        after = self._sequence + 1 if sequence is None else sequence
        if require_sequence(after) <= self._sequence:
            raise InvalidInput("sequence", f"must be above {self._sequence}, got {after}")
        exponents, levels = self._rounded(target)
        packed = pack_levels(levels, self.bits)[: levels_size(exponents, len(target), self.bits)].tobytes()
        draft = ModelStep(
            self.bits, len(target), self._sequence, after, self._digest[:8], b"", exponents.tobytes(), packed
        )
        try:
            model = add_step(self._model, draft)
        except WrongStep:
            raise InvalidInput("target", "is so far from the model that the rounded model exceeds 2**100") from None
        error = target - model
        error += self._error
        self._model, self._error, self._digest, self._sequence = model, error, model_digest(model), after
        return replace(draft, digest_after=self._digest)

    def _rounded(self, target: Vector) -> tuple[Bytes, Levels]:
        """Return exponents (blocks,) and levels (blocks that are not empty, 512) of the step to `target`."""
        dim = len(target)
        exponents = np.empty(block_count(dim), np.uint8)
        kept: list[Levels] = []
        wanted = np.zeros(_CHUNK, np.float32)
        for start in range(0, dim, _CHUNK):
            stop = min(start + _CHUNK, dim)
            if stop - start < _CHUNK:
                wanted = np.zeros(block_count(stop - start) * BLOCK, np.float32)
            there = wanted[: stop - start]
            np.subtract(target[start:stop], self._model[start:stop], out=there)
            blocks = wanted.reshape(-1, BLOCK)
            untouched = ~blocks.any(axis=1)
            there += self._error[start:stop]
            blocks[untouched] = 0
            found, levels = round_blocks(blocks, self.bits)
            exponents[start // BLOCK :][: len(found)] = found
            kept.append(levels)
        return exponents, np.concatenate(kept)
