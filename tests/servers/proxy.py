"""A proxy between a client and a server, that can lose what passes through it."""

from __future__ import annotations

import socket
import threading


class Proxy:
    """Passes bytes on, both ways, until it is told otherwise:

    - `eat_replies()`: the next request reaches the server; its reply is lost, and with it the connection;
    - `eat_requests()`: the next request is lost, and with it the connection.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._eating = ""
        self.eaten = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def eat_replies(self) -> None:
        self._eating = "reply"

    def eat_requests(self) -> None:
        self._eating = "request"

    def stop(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            for source, target, what in ((client, server, "request"), (server, client, "reply")):
                threading.Thread(target=self._pass_on, args=(source, target, what), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, what: str) -> None:
        try:
            while data := source.recv(65536):
                if self._eating == what:
                    self._eating = ""
                    self.eaten += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
            finally:
                end.close()
