"""Fetch a file once: checked against its SHA-256, and moved into place only when complete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparsesecagg.errors import InvalidInput, MissingExtra

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

    An interrupted or falsified download never looks like a finished one: it has a temporary name until its hash is
    right.
    """
    try:
        import pooch
    except ImportError as problem:
        raise MissingExtra("learn", "downloading a data set") from problem
    pooch.get_logger().setLevel("WARNING")  # Who wants to know what is fetched has `progress`.
    downloader = pooch.HTTPDownloader(
        progressbar=_Bar(remote.name, progress) if progress else False,
        chunk_size=_CHUNK,
        timeout=_TIMEOUT_SECONDS,
        headers={"Accept-Encoding": "identity"},  # The hash is that of the file as it is stored.
    )
    try:
        pooch.retrieve(remote.url, f"sha256:{remote.sha256}", remote.name, folder, downloader=downloader)
    except OSError as problem:  # What requests raises is such.
        raise InvalidInput("data_dir", f"is not set, and {remote.url} could not be downloaded ({problem})") from problem
    except ValueError as problem:
        raise InvalidInput(
            "data_dir",
            f"is not set, and the download {remote.url} has another SHA-256 than {remote.sha256}: "
            "it is not the expected file and was not kept",
        ) from problem
    return folder / remote.name


class _Bar:
    """What pooch takes for a progress bar; passes on how many bytes there are."""

    def __init__(self, name: str, tell: DownloadProgress) -> None:
        self._name, self._tell = name, tell
        self.total = 0
        self._done = 0

    def update(self, size: int) -> None:
        """Count the bytes of a chunk; the last one may be shorter than it says."""
        self._done = min(self._done + size, self.total or self._done + size)
        if size:
            self._tell(self._name, self._done, self.total or None)

    def reset(self) -> None:
        """Begin anew: pooch does so in the end, to tell the whole size."""
        self._done = 0

    def close(self) -> None:
        """Nothing to close."""
