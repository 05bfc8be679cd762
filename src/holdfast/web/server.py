"""A server for the application: uvicorn on one address, in this thread or in another one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from holdfast.web.application import Application

STARTING_SECONDS = 20.0


class Server:
    """An application that listens on an address. The port is known once it is made."""

    def __init__(self, application: Application, host: str = "127.0.0.1", port: int = 0) -> None:
        self._application = application
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
            self._socket.listen(128)  # from now on a browser's connection waits
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        is_any = host in {"0.0.0.0", ""}  # noqa: S104 - compared only
        shown = "127.0.0.1" if is_any else f"[{host}]" if ":" in host else host
        self.origin = f"http://{shown}:{self.port}"
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                application, http="h11", ws="none", proxy_headers=False,  # whatever else is installed
                access_log=False, log_config=None, lifespan="off", server_header=False,
                timeout_graceful_shutdown=2, timeout_keep_alive=30,
            )
        )  # fmt: skip

    @property
    def bearer(self) -> str:
        """The token of scripts."""
        return self._application.access.bearer

    @property
    def url(self) -> str:
        """A link that works once; each access makes another one."""
        return self.new_link()

    def new_link(self, path: str = "/") -> str:
        return f"{self.origin}{path}?token={self._application.access.new_link()}"

    def run(self) -> None:
        """Serve until the process is interrupted, or `stop` is called."""
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        self._uvicorn.should_exit = True

    def wait_until_started(self) -> None:
        waiting = threading.Event()
        for _ in range(int(STARTING_SECONDS / 0.01)):
            if self._uvicorn.started:
                return
            waiting.wait(0.01)
        raise RuntimeError("the server did not start")


@contextlib.contextmanager
def serve(application: Application, host: str = "127.0.0.1", port: int = 0) -> Iterator[Server]:
    """Serve in a thread of its own while the block runs."""
    server = Server(application, host, port)
    thread = threading.Thread(target=server.run, name="holdfast-web", daemon=True)
    thread.start()
    try:
        server.wait_until_started()
        yield server
    finally:
        server.stop()
        thread.join(10)
