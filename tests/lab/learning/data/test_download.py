"""Downloads: once, checked, complete or not at all."""

import hashlib
from pathlib import Path

import pytest

from sparsesecagg.errors import InvalidInput
from sparsesecagg.lab.learning.data.download import RemoteFile, fetch

CONTENT = b"samples" * 100_000


def remote(server, name="data.bin", content=CONTENT):
    (server.folder / name).write_bytes(content)
    return RemoteFile(f"{server.url}/{name}", hashlib.sha256(CONTENT).hexdigest())


def test_a_file_is_fetched_once(server, tmp_path: Path) -> None:
    """The second time it is read from the folder; progress ends at the whole size."""
    seen = []
    for _ in range(2):
        path = fetch(remote(server), tmp_path / "cache", lambda *what: seen.append(what))
        assert path.read_bytes() == CONTENT
    assert server.asked == ["data.bin"]
    assert seen[-1] == ("data.bin", len(CONTENT), len(CONTENT))


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
