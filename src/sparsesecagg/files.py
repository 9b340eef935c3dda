"""Writing a file as a whole or not at all; like `errors`, it stands above the packages."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)  # The last on Windows only.


def write_atomically(path: Path, content: bytes | str, *, private: bool = False) -> None:
    """Write a file so that a reader sees the old content or the new one, at any time; text is UTF-8.

    When this returns, the content is on disk. A `private` file is readable by its owner only. The draft has the
    process in its name, so that two processes may write the same file.
    """
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(draft, _FLAGS, 0o600 if private else 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as problem:
        if problem.errno is None:
            raise
        raise OSError(problem.errno, problem.strerror, str(path)) from problem  # Nobody asked for the draft.
    finally:
        with suppress(OSError):  # Such as that there is none.
            draft.unlink()
