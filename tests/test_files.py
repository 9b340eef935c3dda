"""Files are written as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparsesecagg.files import write_atomically


def test_a_failing_write_leaves_the_old_content_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new content is put in place by renaming."""
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("path", ["none/file", "taken/file", "folder"])
def test_a_failing_write_names_the_file_that_was_asked_for(path: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(OSError, match=r"\w") as caught:
        write_atomically(tmp_path / path, "new")
    assert caught.value.filename == str(tmp_path / path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "taken"]


def test_text_is_utf_8_with_its_line_ends(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", "θ = 0.3\n")
    assert (tmp_path / "file").read_bytes() == "θ = 0.3\n".encode()


@pytest.mark.skipif(os.name == "nt", reason="file modes are those of POSIX")
def test_a_private_file_is_its_owners_alone(tmp_path: Path) -> None:
    write_atomically(tmp_path / "secret", b"x", private=True)
    write_atomically(tmp_path / "open", b"x")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o666 & ~mask
