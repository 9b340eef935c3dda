"""Federated training: users with data of their own, local descent, an aggregator, a global model.

data/          data sets, and how they are dealt out to users
models         flat float32 vectors in and out, in NumPy        torch_models   any torch module
pooled         McMahan's network, convolved on spectra
workers        local training on all cores, the same result on any number of them
aggregation    what is recorded of a round, what an aggregator is, plain averaging
aggregators    their names
secure         averaging through the real protocol, in ranges that follow public information
malicious      users that send something else than their updates
downlink       the model on its way to the users, whole or in steps
config         every option of a run
federated      a run, round by round
run_folder     what a run leaves behind; safe to kill at any moment
seeds          everything random, from one seed
api            `train_federated`: all of it in one call; several runs with the same seeds
"""

from sparsesecagg.lab.learning.aggregators import AGGREGATORS
from sparsesecagg.lab.learning.api import train_federated
from sparsesecagg.lab.learning.config import TrainingConfig
from sparsesecagg.lab.learning.data import Dataset
from sparsesecagg.lab.learning.federated import FederatedRun, RunSummary, Task
from sparsesecagg.lab.learning.models import DenseNetwork, LocalTraining, Model
from sparsesecagg.lab.learning.torch_models import TorchModel

__all__ = [
    "AGGREGATORS",
    "Dataset",
    "DenseNetwork",
    "FederatedRun",
    "LocalTraining",
    "Model",
    "RunSummary",
    "Task",
    "TorchModel",
    "TrainingConfig",
    "train_federated",
]
