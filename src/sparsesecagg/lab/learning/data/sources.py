"""The data sets we know by name, and how each is found: in the data folder, which is only read, or downloaded once."""

from __future__ import annotations

import gzip
import math
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import DownloadColumn, Progress

from sparsesecagg.errors import InvalidInput, MissingExtra, require
from sparsesecagg.lab.learning.data.dataset import Dataset

DATA_VARIABLE = "SPARSESECAGG_DATA"
DIGITS = tuple(str(digit) for digit in range(10))
CLOTHES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
CIFAR_NAMES = (*(f"data_batch_{batch}.bin" for batch in range(1, 6)), "test_batch.bin")
CIFAR_IMAGE = (3, 32, 32)
_CIFAR_RECORD = 1 + math.prod(CIFAR_IMAGE)
_IDX_UNSIGNED_BYTE = 0x08  # The only element type these data sets use.
_CHUNK = 1 << 18
_TIMEOUT_SECONDS = 30

Images = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Read = Callable[[Sequence[Path]], tuple[Images, Numbers, Images, Numbers]]
"""Reads the files of a data set: training images and labels, test images and labels."""


@dataclass(frozen=True)
class RemoteFile:
    """A file on the network and the hash it must have."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Source:
    """Where a data set's files are looked for and fetched from, and what is in them."""

    folders: tuple[str, ...]
    names: tuple[str, ...]
    read: Read
    files: tuple[RemoteFile, ...]  # To download: those with the names, packed, or an archive of them.
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # of each channel of the training images, pixels in 0 … 1
    deviation: tuple[float, ...]


def load_dataset(name: str, data_dir: Path | None = None) -> Dataset:
    """Return the data set called `name`, from `data_dir`, `$SPARSESECAGG_DATA` or the network, in this order."""
    require("dataset", name in DATASETS, f"must be one of {', '.join(DATASETS)}, got {name!r}")
    if name == "digits":
        return _digits()
    source = SOURCES[name]
    named = data_dir or (Path(os.environ[DATA_VARIABLE]) if os.environ.get(DATA_VARIABLE) else None)
    found = _find(source, named or cache_folder())
    if found is None and named is not None:
        problem = f"which has no {name} files" if named.is_dir() else "which is not a folder"
        raise InvalidInput("data_dir", f"must hold the data, got {named}, {problem}: {_what_goes_where(source, named)}")
    train_x, train_y, test_x, test_y = source.read(found or _download(source))
    for images, labels, part in ((train_x, train_y, "training"), (test_x, test_y, "test")):
        if images.ndim != 4 or labels.ndim != 1 or len(images) != len(labels):
            raise InvalidInput("data_dir", f"holds {part} images of {name} that do not fit their labels")
    train, test = _normalised(train_x, source), _normalised(test_x, source)
    return Dataset.from_arrays(train, train_y, test, test_y, classes=source.classes, name=name)


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


def _normalised(images: Images, source: Source) -> NDArray[np.float32]:
    """Return (samples, channels, rows, columns) bytes as numbers of mean 0 and deviation 1 per channel."""
    mean = np.asarray(source.mean, dtype=np.float32)[:, None, None]
    deviation = np.asarray(source.deviation, dtype=np.float32)[:, None, None]
    return (images.astype(np.float32) / np.float32(255) - mean) / deviation


def _find(source: Source, folder: Path) -> list[Path] | None:
    """Return the files of a data set, packed or not, in the first folder that has all of them."""
    for inside in source.folders:
        found = []
        for name in source.names:
            dotted = name.replace("-idx", ".idx")  # As some tools unpack them.
            candidates = (folder / inside / each for each in (name, f"{name}.gz", dotted, f"{dotted}.gz"))
            found += [path for path in candidates if path.is_file()][:1]
        if len(found) == len(source.names):
            return found
    return None


def _what_goes_where(source: Source, folder: Path) -> str:
    packed = "" if source.names == CIFAR_NAMES else ".gz"
    return f"put {', '.join(name + packed for name in source.names)} into {folder / source.folders[0]}"


# Downloading


def _download(source: Source) -> list[Path]:
    cache = cache_folder()
    try:
        for remote in source.files:
            if remote.name.endswith(".tar.gz"):
                _unpack(fetch(remote, cache), cache / source.folders[0])
            else:
                fetch(remote, cache / source.folders[0])
    except InvalidInput as problem:
        remedy = f"without a network, {_what_goes_where(source, Path('DATA_DIR'))}"
        raise InvalidInput("data_dir", f"{problem.problem}; {remedy}") from problem
    found = _find(source, cache)
    if found is None:
        raise InvalidInput("data_dir", f"is not set, and what was downloaded to {cache} lacks files")
    return found


def fetch(remote: RemoteFile, folder: Path) -> Path:
    """Return `folder`/name, downloaded if it isn't there; a download has a temporary name until its hash is right."""
    try:
        import pooch
    except ImportError as problem:
        raise MissingExtra("learn", "downloading a data set") from problem
    pooch.get_logger().setLevel("WARNING")  # The bar says what is fetched.
    downloader = pooch.HTTPDownloader(
        progressbar=_Bar(remote.name),
        chunk_size=_CHUNK,
        timeout=_TIMEOUT_SECONDS,
        headers={"Accept-Encoding": "identity"},  # The hash is that of the file as it is stored.
    )
    try:
        pooch.retrieve(remote.url, f"sha256:{remote.sha256}", remote.name, folder, downloader=downloader)
    except OSError as problem:  # What requests raises is such.
        raise InvalidInput("data_dir", f"is not set, and {remote.url} could not be downloaded ({problem})") from problem
    except ValueError as problem:
        what = f"is not set, and the download {remote.url} has another SHA-256 than {remote.sha256}"
        raise InvalidInput("data_dir", f"{what}: it is not the expected file and was not kept") from problem
    return folder / remote.name


class _Bar:
    """What pooch takes for a progress bar, drawn by rich."""

    total = 0

    def __init__(self, name: str) -> None:
        self._bar = Progress(*Progress.get_default_columns(), DownloadColumn(), console=Console(stderr=True))
        self._task = self._bar.add_task(name)

    def update(self, size: int) -> None:
        """Count the bytes of a chunk."""
        self._bar.start()
        self._bar.update(self._task, advance=size, total=self.total or None)

    def reset(self) -> None:
        """Begin anew, as pooch does at the end to show the whole."""
        self._bar.reset(self._task)

    def close(self) -> None:
        """Leave the finished bar."""
        self._bar.stop()


def _unpack(archive: Path, folder: Path) -> None:
    """Write the batches of a CIFAR archive into `folder`, all of them or none; other members are ignored."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpack-") as temporary, tarfile.open(archive) as pack:
        content = Path(temporary) / "content"
        content.mkdir()
        for member in pack:
            file = pack.extractfile(member) if Path(member.name).name in CIFAR_NAMES else None
            if file is not None:
                (content / Path(member.name).name).write_bytes(file.read())
        shutil.rmtree(folder, ignore_errors=True)  # An incomplete one of ours: a complete one would have been found.
        content.rename(folder)


# Files of the makers


def _read_mnist(paths: Sequence[Path]) -> tuple[Images, Numbers, Images, Numbers]:
    train_x, train_y, test_x, test_y = map(read_idx, paths)
    return train_x[:, None], train_y.astype(np.int64), test_x[:, None], test_y.astype(np.int64)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array of unsigned bytes that an IDX file holds, gzip or not; raise `InvalidInput` if it is not one."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as problem:
            raise InvalidInput("data_dir", f"holds {path}, a damaged gzip file; fetch it again") from problem
    # Two zero bytes, the element type, the number of dimensions, then each dimension as 4 bytes, big end first.
    if len(raw) < 4 or raw[:3] != bytes([0, 0, _IDX_UNSIGNED_BYTE]):
        raise InvalidInput("data_dir", f"holds {path}, which is not an IDX file of unsigned bytes")
    dimensions = raw[3]
    start = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(raw[at : at + 4], "big") for at in range(4, min(start, len(raw)), 4))
    if dimensions == 0 or len(raw) != start + math.prod(shape):
        raise InvalidInput("data_dir", f"holds {path}, an IDX file of the wrong length; fetch it again")
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


def _read_cifar(paths: Sequence[Path]) -> tuple[Images, Numbers, Images, Numbers]:
    *train, (test_x, test_y) = map(read_batch, paths)
    train_x, train_y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return train_x, train_y, test_x, test_y


def read_batch(path: Path) -> tuple[Images, Numbers]:
    """Return (images, labels) of a CIFAR batch: records of a label byte and 3,072 pixel bytes."""
    raw = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    if raw.size == 0 or raw.size % _CIFAR_RECORD:
        raise InvalidInput("data_dir", f"holds {path}, whose length is not a multiple of {_CIFAR_RECORD} bytes")
    records = raw.reshape(-1, _CIFAR_RECORD)
    require("data_dir", bool(records[:, 0].max() <= 9), f"holds {path}, whose labels are not 0 to 9")
    return records[:, 1:].reshape(-1, *CIFAR_IMAGE), records[:, 0].astype(np.int64)


def _mnist_like(base: str, hashes: Sequence[str], folders: tuple[str, ...], **about: Any) -> Source:
    files = [RemoteFile(f"{base}/{name}.gz", sha256) for name, sha256 in zip(IDX_NAMES, hashes, strict=True)]
    return Source((*folders, "."), IDX_NAMES, _read_mnist, tuple(files), **about)


SOURCES = {
    "mnist": _mnist_like(
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
        ("mnist", "MNIST/raw"),
        classes=DIGITS,
        mean=(0.1307,),
        deviation=(0.3081,),
    ),
    "fashion-mnist": _mnist_like(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        ("fashion-mnist", "FashionMNIST/raw"),
        classes=CLOTHES,
        mean=(0.2860,),
        deviation=(0.3530,),
    ),
    "cifar10": Source(
        folders=("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10", "."),
        names=CIFAR_NAMES,
        read=_read_cifar,
        files=(
            RemoteFile(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
        classes=THINGS,
        mean=(0.4914, 0.4822, 0.4465),
        deviation=(0.2470, 0.2435, 0.2616),
    ),
}
DATASETS = ("digits", *SOURCES)
