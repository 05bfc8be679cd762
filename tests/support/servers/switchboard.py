"""A network of hosts, each an address of the loopback interface, which tests can partition.

Everything goes through ports of this process. Who calls is told by its address; whom, by the port that is called.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

Cut = Callable[[str, str], bool]  # whether what one host says to another is lost


class Switchboard:
    def __init__(self) -> None:
        self._is_cut: Cut = lambda _, __: False
        self._harmed: set[asyncio.StreamWriter] = set()  # connections that have lost something
        self._open: set[asyncio.StreamWriter] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def lead(self, host: str, port: int) -> int:
        """A port that leads to this port of the host."""
        return self._run(self._listen(host, port)).result(30)

    def cut(self, is_cut: Cut) -> None:
        """What one host says to another is lost from now on where this says so. Nobody is told:
        connections stay open."""
        self._is_cut = is_cut

    def heal(self) -> None:
        """Connections that have lost something are broken now; new ones work."""

        async def drop() -> None:
            self._is_cut = lambda _, __: False
            for writer in self._harmed:
                writer.close()
            self._harmed.clear()

        self._run(drop()).result(30)

    def stop(self) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            for writer in self._open:
                writer.transport.abort()
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

        self._run(end()).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(240)
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _listen(self, host: str, port: int) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            caller: str = writer.get_extra_info("peername")[0]
            try:
                to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.close()
                return
            self._open |= {writer, to_writer}
            await asyncio.gather(
                self._pass_on(caller, host, reader, to_writer, writer),
                self._pass_on(host, caller, to_reader, writer, to_writer),
            )
            for one in (writer, to_writer):
                one.close()
                self._harmed.discard(one)
                self._open.discard(one)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def _pass_on(
        self, source: str, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        try:
            while data := await reader.read(65536):
                if self._is_cut(source, target):
                    self._harmed |= {writer, back}
                else:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        if self._is_cut(source, target):
            self._harmed |= {writer, back}  # that the other end has gone is not heard of either
        else:
            writer.close()
            back.close()
