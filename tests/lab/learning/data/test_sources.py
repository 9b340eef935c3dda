"""Data sets by name: found in the data folder, else downloaded, else an error that says what goes where."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.data import load_dataset
from sparsesecagg.lab.learning.data.sources import (
    CIFAR_NAMES,
    SOURCES,
    THINGS,
    RemoteFile,
    cache_folder,
    fetch,
    read_batch,
    read_idx,
)

from ..support import cifar_records, idx_bytes, real_data, write_idx_files


@pytest.fixture(autouse=True)
def no_ambient_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the user's data folder nor their cache has a say in these tests."""
    monkeypatch.delenv("SPARSESECAGG_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_cifar(folder: Path) -> None:
    """Write six tiny batches."""
    folder.mkdir(parents=True)
    for number, name in enumerate(CIFAR_NAMES):
        (folder / name).write_bytes(cifar_records(number))


def test_digits_are_embedded() -> None:
    """1,797 images of 8 × 8, pixels in 0 … 1, always the same split."""
    digits = load_dataset("digits")
    assert digits.train_x.shape == (1438, 64) and digits.test_x.shape == (359, 64)
    assert digits.train_x.min() == 0 and digits.train_x.max() == 1
    assert digits.digest == load_dataset("digits").digest


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inside", ["mnist", "MNIST/raw", "."])
def test_mnist_files_are_found_in_the_usual_places(tmp_path: Path, inside: str, packed: bool) -> None:
    """In a folder of their own, where torchvision puts them, or in the data folder itself; gzip or not."""
    write_idx_files(tmp_path / "data" / inside, packed=packed)
    mnist = load_dataset("mnist", tmp_path / "data")
    assert mnist.train_x.shape == (30, 1, 28, 28) and mnist.test_y.shape == (10,)
    assert mnist.train_x.min() == pytest.approx(-0.1307 / 0.3081, abs=1e-3)


def test_dotted_names_are_found_too(tmp_path: Path) -> None:
    """Some tools unpack train-images-idx3-ubyte as train-images.idx3-ubyte."""
    write_idx_files(tmp_path / "mnist", packed=False)
    for path in list((tmp_path / "mnist").iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert len(load_dataset("mnist", tmp_path).train_y) == 30


def test_the_environment_names_a_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPARSESECAGG_DATA stands in for --data-dir, which comes first."""
    write_idx_files(tmp_path / "data" / "fashion-mnist", "fashion-mnist")
    monkeypatch.setenv("SPARSESECAGG_DATA", str(tmp_path / "data"))
    assert load_dataset("fashion-mnist").classes[0] == "T-shirt"
    with pytest.raises(InvalidInput):
        load_dataset("fashion-mnist", tmp_path / "elsewhere")


@pytest.mark.parametrize("inside", ["cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10", "data"])
def test_cifar_batches_are_found_in_the_usual_places(tmp_path: Path, inside: str) -> None:
    """Five training batches, one test batch, colours in three channels."""
    write_cifar(tmp_path / inside)
    cifar = load_dataset("cifar10", tmp_path / inside if inside == "data" else tmp_path)
    assert cifar.train_x.shape == (20, 3, 32, 32) and cifar.test_x.shape == (4, 3, 32, 32)
    assert cifar.classes == THINGS


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_the_files_says_what_to_put_where(tmp_path: Path, name: str, exists: bool) -> None:
    """A folder that the user named is never downloaded to."""
    folder = tmp_path / "data"
    if exists:
        folder.mkdir()
    with pytest.raises(InvalidInput) as caught:
        load_dataset(name, folder)
    wanted = "test_batch.bin" if name == "cifar10" else "t10k-labels-idx1-ubyte.gz"
    assert caught.value.option == "data_dir"
    assert wanted in caught.value.problem and str(folder / SOURCES[name].folders[0]) in caught.value.problem
    assert not exists or list(folder.iterdir()) == []


def test_files_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    """Ten labels for thirty images."""
    write_idx_files(tmp_path / "mnist")
    labels = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(labels.read_bytes())
    with pytest.raises(InvalidInput, match="do not fit their labels"):
        load_dataset("mnist", tmp_path)


def test_unknown_names_list_the_known_ones() -> None:
    """A typing error is answered with the choice."""
    with pytest.raises(InvalidInput, match="digits, mnist, fashion-mnist, cifar10"):
        load_dataset("minst")


@pytest.fixture
def serve(server, monkeypatch: pytest.MonkeyPatch):
    """Let a data set come from the test's server, as it serves it now."""

    def replace_source(name: str) -> None:
        source = SOURCES[name]
        files = [(f"{server.url}/{each.name}", server.folder / each.name) for each in source.files]
        there = tuple(RemoteFile(url, hashlib.sha256(path.read_bytes()).hexdigest()) for url, path in files)
        monkeypatch.setitem(SOURCES, name, replace(source, files=there))

    return replace_source


def test_without_a_data_folder_files_are_downloaded_once(server, serve) -> None:
    """The second load asks nobody."""
    write_idx_files(server.folder)
    serve("mnist")
    first = load_dataset("mnist")
    assert len(server.asked) == 4
    assert load_dataset("mnist").digest == first.digest
    assert len(server.asked) == 4 and len(list((cache_folder() / "mnist").iterdir())) == 4


def test_the_cifar_archive_is_unpacked_once(server, serve, tmp_path: Path) -> None:
    """Only the batches are taken from the archive, whatever else it names."""
    with tarfile.open(server.folder / "cifar-10-binary.tar.gz", "w:gz") as pack:
        for number, name in enumerate([*CIFAR_NAMES, "../../outside.bin"]):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            content = cifar_records(number)
            member.size = len(content)
            pack.addfile(member, io.BytesIO(content))
    serve("cifar10")
    for _ in range(2):
        assert load_dataset("cifar10").train_x.shape == (20, 3, 32, 32)
    assert server.asked == ["cifar-10-binary.tar.gz"]
    assert not list(tmp_path.rglob("outside*"))


def test_offline_the_error_says_which_files_to_fetch(server, serve) -> None:
    """The address that failed, and the names to put into a data folder."""
    write_idx_files(server.folder)
    serve("mnist")
    for path in server.folder.iterdir():
        path.unlink()
    with pytest.raises(InvalidInput, match=r"could not be downloaded.*put train-images-idx3-ubyte\.gz"):
        load_dataset("mnist")


def test_the_real_mnist_files_are_read() -> None:
    """60,000 training and 10,000 test images of mean 0 and deviation 1."""
    mnist = load_dataset("mnist", real_data())
    assert mnist.train_x.shape == (60000, 1, 28, 28) and mnist.test_x.shape == (10000, 1, 28, 28)
    assert np.bincount(mnist.train_y).tolist()[:2] == [5923, 6742]
    assert abs(float(mnist.train_x.mean())) < 1e-3 and abs(float(mnist.train_x.std()) - 1) < 1e-3


CONTENT = b"samples" * 100_000


def remote(server, name="data.bin", content=CONTENT):
    (server.folder / name).write_bytes(content)
    return RemoteFile(f"{server.url}/{name}", hashlib.sha256(CONTENT).hexdigest())


def test_a_file_is_fetched_once(server, tmp_path: Path) -> None:
    """The second time it is read from the folder."""
    for _ in range(2):
        assert fetch(remote(server), tmp_path / "cache").read_bytes() == CONTENT
    assert server.asked == ["data.bin"]


def test_a_file_with_another_hash_is_not_kept(server, tmp_path: Path) -> None:
    """A falsified or damaged download leaves nothing behind."""
    with pytest.raises(InvalidInput, match="SHA-256"):
        fetch(remote(server, content=CONTENT[:-1] + b"!"), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_without_a_network_nothing_is_kept(server, tmp_path: Path) -> None:
    """The error says which address could not be reached."""
    wanted = remote(server)
    server.close()
    with pytest.raises(InvalidInput, match="could not be downloaded"):
        fetch(wanted, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    server.close = lambda: None


def test_a_missing_file_says_so(server, tmp_path: Path) -> None:
    """HTTP 404 is an error, not content."""
    with pytest.raises(InvalidInput, match="404"):
        fetch(RemoteFile(f"{server.url}/nothing", "0" * 64), tmp_path / "cache")


@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=3, max_side=6)), st.booleans())
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, array, packed) -> None:
    """Any shape, gzip or not."""
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    assert np.array_equal(read_idx(path), array)


WHOLE = idx_bytes(np.arange(12, dtype=np.uint8).reshape(3, 4))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        WHOLE[:3],
        WHOLE[:7],
        WHOLE[:-1],
        WHOLE + b"x",
        b"\x01" + WHOLE[1:],
        gzip.compress(WHOLE, mtime=0)[:-9],
        b"\0\0\x08\0",
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content) -> None:
    """Truncated, too long, of another type, or a broken gzip: the error names the file."""
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="train-images"):
        read_idx(path)


RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (4, 3072), dtype=np.uint8)
LABELS = [3, 0, 9, 5]


def test_a_batch_holds_images_and_labels(tmp_path: Path) -> None:
    """Red, green and blue planes of 32 × 32, labels 0 to 9."""
    records = b"".join(bytes([label]) + row.tobytes() for label, row in zip(LABELS, PIXELS, strict=True))
    (tmp_path / "batch.bin").write_bytes(records)
    images, labels = read_batch(tmp_path / "batch.bin")
    assert images.shape == (4, 3, 32, 32) and labels.tolist() == LABELS
    assert np.array_equal(images[1, 2].reshape(-1), PIXELS[1, 2048:])


@pytest.mark.parametrize("content", [b"", b"\x00" * 3072, b"\x0a" + b"\x00" * 3072])
def test_damaged_batches_are_refused(tmp_path: Path, content) -> None:
    """Cut short, or with a label that does not exist."""
    (tmp_path / "data_batch_1.bin").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"data_batch_1\.bin"):
        read_batch(tmp_path / "data_batch_1.bin")
