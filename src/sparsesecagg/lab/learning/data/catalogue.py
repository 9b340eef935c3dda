"""The data sets we know by name, and how each is found: in the data folder, else downloaded once.

Folders are tried in order: a sub-folder of the data set's own name, the place where torchvision would put it, then the
data folder itself. A folder that the user named is only read; downloads go to the cache folder.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sparsesecagg.errors import InvalidInput, MissingExtra
from sparsesecagg.lab.learning.data.cifar import read_binary_batch, read_python_batch
from sparsesecagg.lab.learning.data.dataset import Dataset
from sparsesecagg.lab.learning.data.download import DownloadProgress, RemoteFile, fetch
from sparsesecagg.lab.learning.data.idx import read_idx

DATA_VARIABLE = "SPARSESECAGG_DATA"
DIGITS = tuple(str(digit) for digit in range(10))
CLOTHES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Source:
    """Where a data set's files are looked for and fetched from."""

    folders: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # of each channel of the training images, pixels in 0 … 1
    deviation: tuple[float, ...]


def _idx_files(base: str, hashes: tuple[str, str, str, str]) -> tuple[RemoteFile, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(RemoteFile(f"{base}/{name}-ubyte.gz", h) for name, h in zip(names, hashes, strict=True))


MNIST = Source(
    folders=("mnist", "MNIST/raw", "."),
    files=_idx_files(
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    classes=DIGITS,
    mean=(0.1307,),
    deviation=(0.3081,),
)

FASHION_MNIST = Source(
    folders=("fashion-mnist", "FashionMNIST/raw", "."),
    files=_idx_files(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    classes=CLOTHES,
    mean=(0.2860,),
    deviation=(0.3530,),
)

CIFAR10 = Source(
    folders=(
        "cifar-10-batches-bin",
        "cifar-10-batches-py",
        "cifar10/cifar-10-batches-bin",
        "cifar10/cifar-10-batches-py",
        "cifar10",
        ".",
    ),
    files=(
        RemoteFile(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    classes=THINGS,
    mean=(0.4914, 0.4822, 0.4465),
    deviation=(0.2470, 0.2435, 0.2616),
)

_BINARY_BATCHES = (*(f"data_batch_{batch}.bin" for batch in range(1, 6)), "test_batch.bin")
_PYTHON_BATCHES = tuple(name.removesuffix(".bin") for name in _BINARY_BATCHES)


def load_dataset(
    name: str,
    data_dir: Path | None = None,
    *,
    progress: DownloadProgress | None = None,
    sources: dict[str, Source] | None = None,
) -> Dataset:
    """Return the data set called `name`, from `data_dir`, `$SPARSESECAGG_DATA` or the network, in this order."""
    if name not in DATASETS:
        raise InvalidInput("dataset", f"must be one of {', '.join(DATASETS)}, got {name!r}")
    if name == "digits":
        return _digits()
    source = (sources or SOURCES)[name]
    named = data_dir or (Path(os.environ[DATA_VARIABLE]) if os.environ.get(DATA_VARIABLE) else None)
    find, load = (_find_cifar, _load_cifar) if name == "cifar10" else (_find_idx, _load_idx)
    found = find(source, named if named is not None else cache_folder())
    if found is None and named is not None:
        problem = f"which has no {name} files" if named.is_dir() else "which is not a folder"
        raise InvalidInput("data_dir", f"must hold the data, got {named}, {problem}: {_what_goes_where(name, named)}")
    if found is None:
        found = _download(name, source, find, progress)
    return load(name, source, found)


def cache_folder() -> Path:
    """Return the folder that downloads are kept in."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sparsesecagg"


def _digits() -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError as problem:
        raise MissingExtra("learn", "the embedded digits data set") from problem
    digits = load_digits()
    # The split is always the same one, so that accuracies of runs with different seeds are of the same test samples.
    return Dataset.from_arrays(digits.data / 16.0, digits.target, classes=DIGITS, name="digits", test_fraction=0.2)


Found = dict[str, Path]


def _find_idx(source: Source, folder: Path) -> Found | None:
    for inside in source.folders:
        found = {}
        for remote in source.files:
            plain = remote.name.removesuffix(".gz")
            # Some tools unpack "train-images-idx3-ubyte" as "train-images.idx3-ubyte".
            dotted = plain.replace("-idx", ".idx")
            for candidate in (plain, remote.name, dotted, f"{dotted}.gz"):
                if (folder / inside / candidate).is_file():
                    found[remote.name] = folder / inside / candidate
                    break
        if len(found) == len(source.files):
            return found
    return None


def _find_cifar(source: Source, folder: Path) -> Found | None:
    for inside in source.folders:
        for names in (_BINARY_BATCHES, _PYTHON_BATCHES):
            if all((folder / inside / name).is_file() for name in names):
                return {name: folder / inside / name for name in names}
    return None


def _load_idx(name: str, source: Source, found: Found) -> Dataset:
    train_x, train_y, test_x, test_y = (read_idx(found[remote.name]) for remote in source.files)
    for images, labels, part in ((train_x, train_y, "training"), (test_x, test_y, "test")):
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise InvalidInput("data_dir", f"holds {part} images of {name} that do not fit their labels")
    return Dataset.from_arrays(
        _normalise(train_x[:, None], source),
        train_y.astype(np.int64),
        _normalise(test_x[:, None], source),
        test_y.astype(np.int64),
        classes=source.classes,
        name=name,
    )


def _load_cifar(name: str, source: Source, found: Found) -> Dataset:
    read = [
        read_binary_batch(path) if batch.endswith(".bin") else read_python_batch(path) for batch, path in found.items()
    ]
    train, (test_x, test_y) = read[:-1], read[-1]
    return Dataset.from_arrays(
        _normalise(np.concatenate([images for images, _ in train]), source),
        np.concatenate([labels for _, labels in train]),
        _normalise(test_x, source),
        test_y,
        classes=source.classes,
        name=name,
    )


def _normalise(images: NDArray[np.uint8], source: Source) -> NDArray[np.float32]:
    """Return (samples, channels, rows, columns) bytes as numbers of mean 0 and deviation 1 per channel."""
    mean = np.asarray(source.mean, dtype=np.float32)[:, None, None]
    deviation = np.asarray(source.deviation, dtype=np.float32)[:, None, None]
    return (images.astype(np.float32) / np.float32(255) - mean) / deviation


def _what_goes_where(name: str, folder: Path) -> str:
    if name == "cifar10":
        needed = "data_batch_1.bin … data_batch_5.bin and test_batch.bin (or the Python batches)"
    else:
        needed = ", ".join(remote.name for remote in SOURCES[name].files)
    return f"put {needed} into {folder / SOURCES[name].folders[0]}"


def _download(
    name: str, source: Source, find: Callable[[Source, Path], Found | None], progress: DownloadProgress | None
) -> Found:
    cache = cache_folder()
    try:
        for remote in source.files:
            if name == "cifar10":
                _unpack(fetch(remote, cache, progress), cache / source.folders[0])
            else:
                fetch(remote, cache / source.folders[0], progress)
    except InvalidInput as problem:
        remedy = f"without a network, {_what_goes_where(name, Path('DATA_DIR'))}"
        raise InvalidInput("data_dir", f"{problem.problem}; {remedy}") from problem
    found = find(source, cache)
    if found is None:
        raise InvalidInput("data_dir", f"is not set, and what was downloaded to {cache} lacks files of {name}")
    return found


def _unpack(archive: Path, folder: Path) -> None:
    """Write the batches of a CIFAR archive into `folder`, all of them or none; other members are ignored."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpack-") as temporary, tarfile.open(archive) as pack:
        content = Path(temporary) / "content"
        content.mkdir()
        for member in pack:
            name = Path(member.name).name
            file = pack.extractfile(member) if name in _BINARY_BATCHES else None
            if file is not None:
                with (content / name).open("wb") as target:
                    shutil.copyfileobj(file, target)
        if folder.exists():  # An incomplete one of ours: a complete one would have been found.
            shutil.rmtree(folder)
        content.rename(folder)


SOURCES = {"mnist": MNIST, "fashion-mnist": FASHION_MNIST, "cifar10": CIFAR10}
DATASETS = ("digits", *SOURCES)
