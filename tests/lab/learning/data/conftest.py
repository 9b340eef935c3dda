"""A web server on this machine that counts what it is asked for."""

import functools
import http.server
import threading
from pathlib import Path

import pytest


class LocalServer:
    """Serves a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        asked = self.asked

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path.rsplit("/", 1)[-1])
                super().do_GET()

            def log_message(self, *arguments) -> None:
                pass

        handler = functools.partial(Handler, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening: from then on nobody answers."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server(tmp_path: Path):
    """A running server of an empty folder."""
    folder = tmp_path / "served"
    folder.mkdir()
    running = LocalServer(folder)
    yield running
    running.close()
