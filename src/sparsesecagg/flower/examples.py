"""What each single example changes in a PyTorch model: the reply of an app where noise protects examples.

With `DifferentialPrivacy(unit="example")` an app does not reply with a trained model. It replies with one row for each
example, and `secagg_mod` clips the rows, rounds them, adds them up and adds noise. So the app need not be trusted with
clipping. What only it can keep is that a row depends on its own example and on the received model, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Array, ArrayRecord

from sparsesecagg.errors import InvalidInput, MissingExtra, require

if TYPE_CHECKING:
    from torch import Tensor, nn


def per_example_steps(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, targets: Tensor, rate: float
) -> ArrayRecord:
    """Return −`rate` times the gradient of each example's loss, by the names of the model's state, one row each.

    `loss` is the mean over a batch, as PyTorch has it; it is called with batches of one. What is not
    trained stays as it is. Batch normalisation is refused: it makes every example's gradient depend on all others.
    """
    try:
        import torch
        from torch.func import functional_call, grad, vmap
    except ImportError:
        raise MissingExtra("torch", "gradients of single examples") from None
    require("targets", len(inputs) == len(targets), f"must be as many as the inputs, {len(inputs)}, got {len(targets)}")
    if any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in model.modules()):
        raise InvalidInput(
            "model", "must not have batch normalisation, which mixes examples: use GroupNorm or LayerNorm"
        )
    weights = {name: each.detach() for name, each in model.named_parameters() if each.requires_grad}
    others = {name: each.detach() for name, each in model.state_dict().items() if name not in weights}

    def of_one(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(model, (weights, others), (x.unsqueeze(0),)), y.unsqueeze(0))

    gradients = vmap(grad(of_one), in_dims=(None, 0, 0), randomness="different")(weights, inputs, targets)
    rows = {name: (-rate * each).cpu().numpy() for name, each in gradients.items()}
    rows |= {name: np.zeros((len(inputs), *each.shape), np.float32) for name, each in others.items()}
    return ArrayRecord({name: Array(rows[name]) for name in model.state_dict()})
