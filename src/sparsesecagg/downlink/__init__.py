"""The way down: steps of a few bits per coordinate instead of whole models.

    vector     what a model is here: a flat float32 vector, its limits, its digest; `Spread` puts arrays into it
    step       `ModelStep`: rounding to small integers, one step on the wire, and how it is added to a model
    replica    both sides: `StepLog`, the server's; what a node gets; `Replica`, the node's, bit for bit the same model
    gain       `Gain`: how far the server moves what a round covered

The rounded model *is* the model: server and nodes hold the same bits after every step, and check it by digest. Nothing
here reads files, clocks or sockets, and nothing is secret: the server knows the model, and so do the users.
"""

from sparsesecagg.downlink.gain import Gain
from sparsesecagg.downlink.replica import Replica, StepLog, Steps, WholeModel, decode_catchup
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
