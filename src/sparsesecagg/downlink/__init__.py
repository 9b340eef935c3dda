"""The way down: steps of a few bits per coordinate instead of whole models.

    vector     what a model is here: a flat float32 vector, its limits, its digest; `Spread` puts arrays into it
    step       `ModelStep`: rounding to small integers, one step on the wire, and how it is added to a model
    replica    `Replica`: the node's side; what a node gets, and the same model bit for bit
    log        `StepLog`: the server's side; model in, rounded model out, bytes for every node
    gain       `Gain`: how far the server moves what a round covered

The rounded model *is* the model: server and nodes hold the same bits after every step, and check it by digest. Nothing
here reads files, clocks or sockets, and nothing is secret: the server knows the model, and so do the users.
"""

from sparsesecagg.downlink.gain import Gain
from sparsesecagg.downlink.log import StepLog
from sparsesecagg.downlink.replica import Replica, Steps, WholeModel, decode_catchup
from sparsesecagg.downlink.step import STEP_BITS, ModelStep
from sparsesecagg.downlink.vector import BLOCK, Spread, model_digest

__all__ = [
    "BLOCK",
    "STEP_BITS",
    "Gain",
    "ModelStep",
    "Replica",
    "Spread",
    "StepLog",
    "Steps",
    "WholeModel",
    "decode_catchup",
    "model_digest",
]
