"""A proxy between a client and a server, that can lose what passes through it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """Passes bytes on, both ways, until it is told otherwise:

    - `eat_reply(to)`: the next request that has these bytes reaches the server; its reply is lost, and with it the
      connection;
    - `eat_request(with_)`: the next request that has these bytes is lost, and with it the connection;
    - `swallow()`: everything is lost from now on, both ways. Connections stay open, and new ones are taken.
    - `cut()`: all connections that are open break, whatever is under way.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._wanted: tuple[str, bytes] | None = None
        self.eaten = 0
        self._swallows = False
        self.cuts = 0
        self._open: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def eat_reply(self, to: bytes) -> None:
        self._wanted = "reply", to

    def eat_request(self, with_: bytes) -> None:
        self._wanted = "request", with_

    def swallow(self) -> None:
        self._swallows = True

    def cut(self) -> None:
        with self._lock:
            connections, self._open = self._open, []
        for client, server in connections:
            self.cuts += 1
            for end in (client, server):
                with suppress(OSError):  # it was closed already
                    end.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            with self._lock:
                self._open.append((client, server))
            is_marked = threading.Event()  # the reply that comes next over this connection is to be lost
            threading.Thread(target=self._pass_requests, args=(client, server, is_marked), daemon=True).start()
            threading.Thread(target=self._pass_replies, args=(server, client, is_marked), daemon=True).start()

    def _pass_requests(self, client: socket.socket, server: socket.socket, is_marked: threading.Event) -> None:
        before = b""
        try:
            while data := client.recv(65536):
                found = self._found(before, data)
                before = data
                if found == "request":
                    self.eaten += 1
                    break
                if found == "reply":
                    is_marked.set()
                if not self._swallows:
                    server.sendall(data)
        except OSError:
            pass
        _end(client, server)

    def _pass_replies(self, server: socket.socket, client: socket.socket, is_marked: threading.Event) -> None:
        try:
            while data := server.recv(65536):
                if is_marked.is_set():
                    self.eaten += 1
                    break
                if not self._swallows:
                    client.sendall(data)
        except OSError:
            pass
        _end(server, client)

    def _found(self, before: bytes, data: bytes) -> str:
        with self._lock:
            if self._wanted is None:
                return ""
            what, wanted = self._wanted
            begun = before[-(len(wanted) - 1) :] if len(wanted) > 1 else b""  # it may come in two pieces
            if wanted not in begun + data:
                return ""
            self._wanted = None
            return what


def _end(*ends: socket.socket) -> None:
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue
        finally:
            end.close()
