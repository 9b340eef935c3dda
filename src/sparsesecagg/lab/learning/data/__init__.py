"""Data sets and how they are dealt out to users: `dataset`; where those that we know by name come from: `sources`."""

from sparsesecagg.lab.learning.data.dataset import PARTITIONS, Dataset, Partition, make_partition
from sparsesecagg.lab.learning.data.sources import DATASETS, load_dataset

__all__ = ["DATASETS", "PARTITIONS", "Dataset", "Partition", "load_dataset", "make_partition"]
