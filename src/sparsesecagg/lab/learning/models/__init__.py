"""Models: a flat float32 vector in, a flat float32 vector out.

`base` is the interface, `layered` what networks in NumPy have in common, `dense` softmax regression and multi-layer
perceptrons in NumPy, `convolution` a small convolutional network in NumPy, `torch_model` the adapter for any
`torch.nn.Module`, `torch_zoo` larger convolutional networks, `catalogue` their names.
"""

from sparsesecagg.lab.learning.models.base import Evaluation, Layer, LocalTraining, Model
from sparsesecagg.lab.learning.models.catalogue import MODELS, make_model
from sparsesecagg.lab.learning.models.dense import DenseNetwork
from sparsesecagg.lab.learning.models.torch_model import TorchModel

__all__ = ["MODELS", "DenseNetwork", "Evaluation", "Layer", "LocalTraining", "Model", "TorchModel", "make_model"]
