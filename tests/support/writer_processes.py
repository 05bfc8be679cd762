"""Several writer processes on one store, and the lines that they print."""

import subprocess
import sys
import time
from pathlib import Path

from acknowledged import Said, findings, open_client

ENDLESS = Path(__file__).with_name("endless_writer.py")
PATIENCE = 240.0


class Crowd:
    """Starts writers and kills them. Each speaks into a file of its own, which a kill leaves whole."""

    def __init__(self, kind: str, store: Path, spoken: Path, *, durability: str = "full", how_broken: str = "") -> None:
        self.kind = kind
        self.store = store
        self._spoken = spoken
        self._options = [durability, *([how_broken] if how_broken else [])]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0
        self.killed = 0

    @property
    def names(self) -> list[str]:
        return sorted(self._running)

    def start(self) -> str:
        self._started += 1
        name = f"writer-{self._started}"
        with self._output(name).open("wb") as output, self._errors(name).open("wb") as errors:
            self._running[name] = subprocess.Popen(
                [sys.executable, str(ENDLESS), self.kind, str(self.store), name, *self._options],
                stdout=output,
                stderr=errors,
            )
        return name

    def wait_until_speaking(self, name: str, lines: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._output(name).read_bytes().count(b"\n") < lines:
            assert self._running[name].poll() is None, f"{name} ended by itself: {self.complaint(name)}"
            assert time.monotonic() < deadline, f"{name} said nothing for {PATIENCE} s"
            time.sleep(0.002)

    def wait_until_saved(self, count: int) -> None:
        """So many saves of all writers together are acknowledged, however slow the machine is."""
        deadline = time.monotonic() + PATIENCE
        while len(self.said().saved) < count:
            for name, process in self._running.items():
                assert process.poll() is None, f"{name} ended by itself: {self.complaint(name)}"
            assert time.monotonic() < deadline, f"less than {count} saves in {PATIENCE} s"
            time.sleep(0.01)

    def kill(self, name: str) -> None:
        """SIGKILL. A writer that had ended by itself before is a failure."""
        process = self._running.pop(name)
        ended = process.poll()
        process.kill()
        process.wait()
        self.killed += 1
        assert ended is None, f"{name} ended by itself, with {ended}: {self.complaint(name)}"

    def end(self) -> None:
        """Ends all that still run, however they are: for clearing up."""
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()

    def said(self, *names: str) -> Said:
        """What these writers said, or all."""
        said = Said()
        for name in names or [f"writer-{number + 1}" for number in range(self._started)]:
            said.listen(self._output(name).read_bytes())
        return said

    def complaint(self, name: str) -> str:
        return self._errors(name).read_text()[-2000:]

    def _output(self, name: str) -> Path:
        return self._spoken / f"{name}.said"

    def _errors(self, name: str) -> Path:
        return self._spoken / f"{name}.errors"


def judge(crowd: Crowd, *, in_flight: int) -> list[str]:
    """What is wrong with the store after all writers were killed."""
    return judge_by(crowd, crowd.said(), in_flight=in_flight)


def judge_by(crowd: Crowd, said: Said, *, in_flight: int) -> list[str]:
    """What is wrong with the store, if this was said and no more."""
    client = open_client(crowd.kind, crowd.store)
    try:
        found = missing_tokens(client.latest(session_id="shared"), said)
        return found + findings(client, said, in_flight=in_flight)
    finally:
        client.close()


def missing_tokens(head: object, said: Said) -> list[str]:
    """The head of the shared session has every acknowledged token once: no save overwrote another."""
    tokens = head.execution_state["tokens"] if head is not None else []
    found = [f"lost: the shared list has no token {token!r:.40}" for token in said.tokens - set(tokens)]
    if len(set(tokens)) != len(tokens):
        found.append("doubled: the shared list has a token twice")
    return found
