"""The way down: steps of a few bits per coordinate instead of whole models.

    vector     what a model is here: a flat float32 vector, its limits, its digest and number
    blocks     reals to small integers with one power of two per block of 512, and their packing
    step       `ModelStep`: one step on the wire, and the one definition of how it is added to a model
    encoder    `StepEncoder`: the server's rounding, which keeps its error for the next step
    catchup    `WholeModel` and `Steps`: what a node gets that is behind
    log        `StepLog`: the server's side; model in, rounded model out, bytes for every node
    replica    `Replica`: the node's side; bytes in, the same model bit for bit
    spread     `Spread`: arrays side by side, each in its own blocks, with what a round changes close together
    gain       `Gain`: how far the server moves what a round covered

The rounded model *is* the model: server and nodes hold the same bits after every step, and check it by digest. Nothing
here reads files, clocks or sockets, and nothing is secret: the server knows the model, and so do the users.
"""

from sparsesecagg.downlink.blocks import BLOCK, STEP_BITS
from sparsesecagg.downlink.catchup import Steps, WholeModel, decode_catchup
from sparsesecagg.downlink.encoder import StepEncoder
from sparsesecagg.downlink.gain import Gain
from sparsesecagg.downlink.log import StepLog
from sparsesecagg.downlink.replica import Replica
from sparsesecagg.downlink.spread import Spread
from sparsesecagg.downlink.step import ModelStep
from sparsesecagg.downlink.vector import model_digest

__all__ = [
    "BLOCK",
    "STEP_BITS",
    "Gain",
    "ModelStep",
    "Replica",
    "Spread",
    "StepEncoder",
    "StepLog",
    "Steps",
    "WholeModel",
    "decode_catchup",
    "model_digest",
]
