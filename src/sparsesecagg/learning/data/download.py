"""Fetch a file once: checked against its SHA-256, and moved into place only when complete."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparsesecagg.errors import InvalidInput

# Called with (file name, bytes so far, bytes in all or None when the server does not say).
DownloadProgress = Callable[[str, int, int | None], None]

_CHUNK = 1 << 18
_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class RemoteFile:
    """A file on the network and the hash it must have."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[-1]


def fetch(remote: RemoteFile, folder: Path, progress: DownloadProgress | None = None) -> Path:
    """Return `folder`/name, downloading it first if it isn't there.

    The download goes to a temporary name beside it and is renamed when its hash is right: an interrupted or falsified
    download never looks like a finished one.
    """
    target = folder / remote.name
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{remote.name}.{os.getpid()}.part"
    try:
        digest = _stream(remote, partial, progress)
        if digest != remote.sha256:
            raise InvalidInput(
                "data_dir",
                f"is not set, and the download {remote.url} has SHA-256 {digest} instead of {remote.sha256}: "
                "it is not the expected file and was not kept",
            )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _stream(remote: RemoteFile, partial: Path, progress: DownloadProgress | None) -> str:
    digest = hashlib.sha256()
    try:
        request = urllib.request.urlopen(remote.url, timeout=_TIMEOUT_SECONDS)  # noqa: S310 (addresses are ours)
        with request as response, partial.open("wb") as file:
            length = response.headers.get("Content-Length")
            total, done = int(length) if length else None, 0
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(remote.name, done, total)
    except OSError as problem:  # URLError and HTTPError are such.
        reason = problem if isinstance(problem, urllib.error.HTTPError) else getattr(problem, "reason", problem)
        raise InvalidInput("data_dir", f"is not set, and {remote.url} could not be downloaded ({reason})") from problem
    return digest.hexdigest()
