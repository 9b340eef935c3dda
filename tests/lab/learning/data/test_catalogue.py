"""Data sets by name: found in the data folder, else downloaded, else an error that says what goes where."""

import hashlib
import io
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.data import load_dataset
from sparsesecagg.lab.learning.data.catalogue import CIFAR10, FASHION_MNIST, MNIST, SOURCES, THINGS, cache_folder
from sparsesecagg.lab.learning.data.download import RemoteFile

from ..support import cifar_records, real_data, write_idx_files

CIFAR_NAMES = [*(f"data_batch_{batch}" for batch in range(1, 6)), "test_batch"]


@pytest.fixture(autouse=True)
def no_ambient_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the user's data folder nor their cache has a say in these tests."""
    monkeypatch.delenv("SPARSESECAGG_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_cifar(folder, kind="bin") -> None:
    """Write six tiny batches, binary or Python."""
    folder.mkdir(parents=True)
    for number, name in enumerate(CIFAR_NAMES):
        records = cifar_records(number)
        if kind == "bin":
            (folder / f"{name}.bin").write_bytes(records)
        else:
            rows = np.frombuffer(records, np.uint8).reshape(-1, 3073)
            (folder / name).write_bytes(pickle.dumps({b"data": rows[:, 1:], b"labels": rows[:, 0].tolist()}))


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
    write_idx_files(tmp_path / "data" / "fashion-mnist", FASHION_MNIST)
    monkeypatch.setenv("SPARSESECAGG_DATA", str(tmp_path / "data"))
    assert load_dataset("fashion-mnist").classes[0] == "T-shirt"
    with pytest.raises(InvalidInput):
        load_dataset("fashion-mnist", tmp_path / "elsewhere")


@pytest.mark.parametrize("kind", ["bin", "py"])
@pytest.mark.parametrize("inside", [".", "cifar10"])
def test_cifar_batches_are_found_in_both_formats(tmp_path: Path, inside: str, kind: str) -> None:
    """Five training batches, one test batch, colours in three channels."""
    write_cifar(tmp_path / inside / f"cifar-10-batches-{kind}", kind)
    cifar = load_dataset("cifar10", tmp_path)
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


def served(server, source):
    """Return `source` with the addresses and hashes of what the server serves."""
    files = []
    for path in sorted(server.folder.iterdir(), key=lambda path: [r.name for r in source.files].index(path.name)):
        files.append(RemoteFile(f"{server.url}/{path.name}", hashlib.sha256(path.read_bytes()).hexdigest()))
    return replace(source, files=tuple(files))


def test_without_a_data_folder_files_are_downloaded_once(server) -> None:
    """The second load asks nobody."""
    write_idx_files(server.folder)
    sources = {"mnist": served(server, MNIST)}
    first = load_dataset("mnist", sources=sources)
    assert len(server.asked) == 4
    assert load_dataset("mnist", sources=sources).digest == first.digest
    assert len(server.asked) == 4 and len(list((cache_folder() / "mnist").iterdir())) == 4


def test_the_cifar_archive_is_unpacked_once(server, tmp_path: Path) -> None:
    """Only the batches are taken from the archive, whatever else it names."""
    with tarfile.open(server.folder / "cifar-10-binary.tar.gz", "w:gz") as pack:
        for number, name in enumerate([*CIFAR_NAMES, "../../outside"]):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            content = cifar_records(number)
            member.size = len(content)
            pack.addfile(member, io.BytesIO(content))
    sources = {"cifar10": served(server, CIFAR10)}
    for _ in range(2):
        assert load_dataset("cifar10", sources=sources).train_x.shape == (20, 3, 32, 32)
    assert server.asked == ["cifar-10-binary.tar.gz"]
    assert not list(tmp_path.rglob("outside*"))


def test_offline_the_error_says_which_files_to_fetch(server) -> None:
    """The address that failed, and the names to put into a data folder."""
    write_idx_files(server.folder)
    sources = {"mnist": served(server, MNIST)}
    for path in server.folder.iterdir():
        path.unlink()
    with pytest.raises(InvalidInput, match=r"could not be downloaded.*put train-images-idx3-ubyte\.gz"):
        load_dataset("mnist", sources=sources)


def test_the_real_mnist_files_are_read() -> None:
    """60,000 training and 10,000 test images of mean 0 and deviation 1."""
    mnist = load_dataset("mnist", real_data())
    assert mnist.train_x.shape == (60000, 1, 28, 28) and mnist.test_x.shape == (10000, 1, 28, 28)
    assert np.bincount(mnist.train_y).tolist()[:2] == [5923, 6742]
    assert abs(float(mnist.train_x.mean())) < 1e-3 and abs(float(mnist.train_x.std()) - 1) < 1e-3
