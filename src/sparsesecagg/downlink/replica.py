"""The node's side: a copy of the model that follows the server's, bit for bit.

The digest is always that of the bytes the node holds, never one that was announced: masks are derived under it, so a
node that was shown another model than the others masks with something else.
"""

from __future__ import annotations

from sparsesecagg.downlink.catchup import Steps, WholeModel, decode_catchup
from sparsesecagg.downlink.step import ModelStep, add_step
from sparsesecagg.downlink.vector import NumberedModel, Vector, is_clean, model_digest, require_vector
from sparsesecagg.errors import InvalidInput, MalformedMessage, MissingStep, WrongStep


class Replica(NumberedModel):
    """A node's copy of the model. Whatever fails leaves it as it was."""

    def __init__(self, model: Vector, sequence: int = 0) -> None:
        """Begin with a model of shape (dim,), float32, as a `StepEncoder` or a `StepLog` holds it."""
        require_vector("model", model)
        if not is_clean(model):
            raise InvalidInput("model", "must be one that a StepLog holds: values below 2**-103 must be 0")
        super().__init__(model.copy(), sequence)

    @classmethod
    def from_model(cls, data: bytes | memoryview) -> Replica:
        """Return a replica from the message that a node without a model gets, or from what `save` wrote."""
        message = decode_catchup(data)
        if not isinstance(message, WholeModel):
            raise MalformedMessage("a node without a model needs a whole one, got steps")
        return cls(message.model, message.sequence)

    restore = from_model

    def save(self) -> bytes:
        """Return the replica as bytes, for `restore`."""
        return WholeModel(self._sequence, self._model, self._digest).encode()

    def apply(self, step: ModelStep) -> None:
        """Take one step; raise `MissingStep` if others come first, `WrongStep` if it does not fit."""
        self._model, self._digest, self._sequence = _after(self._model, self._digest, self._sequence, step)

    def catch_up(self, data: bytes | memoryview) -> None:
        """Take what `StepLog.for_node` returned, all of it or nothing; the same bytes a second time change nothing.

        After `WrongStep` or `MissingStep` the remedy is the whole model, `StepLog.for_node(None)`.
        """
        message = decode_catchup(data)
        if isinstance(message, WholeModel):
            if len(message.model) != len(self._model):
                raise WrongStep(f"the model has {len(message.model)} coordinates, and this one {len(self._model)}")
            self._model, self._digest, self._sequence = message.model, message.digest, message.sequence
        else:
            self._follow(message)

    def _follow(self, message: Steps) -> None:
        if message.dim != len(self._model):
            raise WrongStep(f"the steps are for {message.dim} coordinates, and this model has {len(self._model)}")
        model, digest, sequence = self._model, self._digest, self._sequence
        for step in message.steps:
            if step.after > sequence:  # Those that the replica has already are passed over.
                model, digest, sequence = _after(model, digest, sequence, step)
        if sequence < message.sequence:
            raise MissingStep(sequence, message.sequence)
        if sequence > message.sequence or digest != message.digest:
            raise WrongStep(f"the steps lead to model {message.sequence}, and this is another one")
        self._model, self._digest, self._sequence = model, digest, sequence


def _after(model: Vector, digest: bytes, sequence: int, step: ModelStep) -> tuple[Vector, bytes, int]:
    """Return model, digest and number after a step that fits; change nothing."""
    if step.before > sequence:
        raise MissingStep(sequence, step.before)
    if step.before < sequence:
        raise WrongStep(f"it starts from model {step.before}, and this is model {sequence}")
    if step.digest_before != digest[: len(step.digest_before)]:
        raise WrongStep(f"it was made for another model {sequence}")
    stepped = add_step(model, step)
    found = model_digest(stepped)
    if found != step.digest_after:
        raise WrongStep(f"it leads to another model {step.after} than it says")
    return stepped, found, step.after
