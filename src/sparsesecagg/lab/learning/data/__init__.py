"""Data sets: where they come from and how they are dealt out to users.

`dataset` holds samples and labels; `idx` and `cifar` read the files of their makers; `download` fetches them once, with
checksums; `catalogue` knows the names and looks in the data folder; `partition` deals samples to users.
"""

from sparsesecagg.lab.learning.data.catalogue import DATASETS, load_dataset
from sparsesecagg.lab.learning.data.dataset import Dataset
from sparsesecagg.lab.learning.data.partition import PARTITIONS, Partition, make_partition

__all__ = ["DATASETS", "PARTITIONS", "Dataset", "Partition", "load_dataset", "make_partition"]
