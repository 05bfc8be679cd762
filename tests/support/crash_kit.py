"""Driver of an agent program: kills it at given points, and restarts it until it ends.

A program is a script, `python PROGRAM STORE DIRECTORY`. It builds an agent with a scripted model, notes each call of
the model and of a tool by `call_log.log_call`, and prints its outcome as JSON on its last line. After a kill the
same program is started again, with the same arguments: whatever it needs to know, the store must tell it.

Lives are forked from a process that has imported the program (`crash_server`), so that they take a fraction of a
second. With `fresh=True` each life is forked from a new interpreter instead, which has another hash seed and another
home directory. A program deserves at least one such test.
"""

from __future__ import annotations

import atexit
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from call_log import read_calls
from campaign import SOAK, tally
from crash_server import Life

HERE = Path(__file__).parent
SERVER = HERE / "crash_server.py"
PROGRAMS = HERE.parent / "frameworks" / "programs"
LIVES = 20  # of a program that is killed once: then it will never end
POINTS = 5  # of a program's commits, in `make test`
MODEL = "model"

SETTINGS = {  # of the processes that run programs; nothing of the test run's own environment reaches them
    "AGENT_FRAMEWORK_ENABLE_INSTRUMENTATION": "false",
    "ANONYMIZED_TELEMETRY": "False",  # chromadb, which CrewAI brings
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "OMP_NUM_THREADS": "1",  # a pool of threads would be lost in a fork
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OTEL_SDK_DISABLED": "true",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUTF8": "1",
}


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that ended by itself: its outcome, and all that its lives did."""

    outcome: Any
    calls: Mapping[str, list[str]]  # a line for each call, by the name of the model or tool
    commits: int  # durable writes of the last life
    seconds: float  # that the last life took
    lives: int = 1


@dataclass(frozen=True, slots=True)
class Killed:
    """A program that was killed before it ended."""

    commits: int
    seconds: float


class ProgramFailed(AssertionError):  # noqa: N818 - it fails the test
    """A program ended with an error. The message has its standard error."""


class Server:
    """A process that has imported a program. Ends with the test run."""

    def __init__(self, program: Path) -> None:
        self.program = program
        self.home = Path(tempfile.mkdtemp(prefix="holdfast-program-"))
        self.report = self.home / "connections"
        self._errors = (self.home / "errors").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER), str(program), str(self.report)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd=self.home,
            env=SETTINGS | {"HOME": str(self.home), "CREWAI_STORAGE_DIR": str(self.home), "PYTHONPATH": str(HERE)},
        )  # fmt: skip
        try:
            threads = self._answer()["threads"] - 1
            if threads:
                raise ProgramFailed(f"importing {program.name} starts threads ({threads}): a fork would lose them")
        except BaseException:
            self.stop()
            raise

    def run(self, life: Life) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(life)).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        """Stop it with the life that is under way: that may hold locks of a store that other tests use."""
        self._process.terminate()
        self.stop()

    def stop(self) -> None:
        self._process.communicate()
        self._errors.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ProgramFailed(f"{self.program} can't be imported:\n{(self.home / 'errors').read_text()[-4000:]}")
        said: dict[str, Any] = json.loads(line)
        if self.report.exists():
            tried = self.report.read_text()
            self.report.unlink()
            raise ProgramFailed(f"{self.program.name} tried to reach other machines:\n{tried[:4000]}")
        return said


_servers: dict[Path, Server] = {}


def stop_servers() -> None:
    while _servers:
        _servers.popitem()[1].stop()


atexit.register(stop_servers)


def run_program(
    program: str | Path,
    store: str,
    directory: Path,
    *,
    kill_after_commits: int | None = None,
    kill_before_commit: int | None = None,
    kill_in_call: int | None = None,
    kill_after_seconds: float | None = None,
    fresh: bool = False,
) -> Finished | Killed:
    """Run a program once. It is killed right after, or right before, its nth durable write, as it begins its nth call
    of a model or tool, or so many seconds after it began; unless it ends before that.

    A program is named by its path, or by its name in tests/frameworks/programs. Raises `ProgramFailed` if it fails, or
    if it tries to reach another machine.
    """
    points = [
        f"{when} {number}"
        for when, number in (
            ("after commit", kill_after_commits),
            ("before commit", kill_before_commit),
            ("in call", kill_in_call),
        )
        if number is not None
    ]
    assert len(points) + (kill_after_seconds is not None) <= 1, "a program is killed once"
    path = program if isinstance(program, Path) else PROGRAMS / f"{program}.py"
    directory.mkdir(parents=True, exist_ok=True)
    output, errors = directory / "stdout", directory / "stderr"
    life = Life(store, str(directory), str(output), str(errors), "".join(points), kill_after_seconds)
    server = Server(path) if fresh or path not in _servers else _servers[path]
    if not fresh:
        _servers[path] = server
    try:
        said = server.run(life)
    except BaseException:  # the test was timed out or interrupted: the server's next answer would be of this life
        _servers.pop(path, None)
        server.kill()
        raise
    if fresh:
        server.stop()
    if said["status"] == -signal.SIGKILL:
        tally(f"kills of {path.stem}", done=1)
        return Killed(said["commits"], said["seconds"])
    printed = output.read_text(errors="replace").splitlines()
    if said["status"] or not printed:
        raise ProgramFailed(f"{path.name} ended with {said['status']}:\n{errors.read_text(errors='replace')[-6000:]}")
    return Finished(json.loads(printed[-1]), read_calls(directory), said["commits"], said["seconds"])


def run_until_done(
    program: str | Path,
    store: str,
    directory: Path,
    *,
    between_lives: Callable[[], object] | None = None,
    fresh: bool = False,
    **kill: Any,
) -> Finished:
    """Kill a program once, as `run_program` does, then start it again until it ends by itself.

    `between_lives` does what a person or another program does while it is down. With it, a life may also fail: then
    the program is started again after it.
    """
    for number in range(LIVES):
        try:
            ended = run_program(program, store, directory, fresh=fresh, **(kill if not number else {}))
        except ProgramFailed:
            if between_lives is None:
                raise
        else:
            if isinstance(ended, Finished):
                return replace(ended, lives=number + 1)
        if between_lives is not None:
            between_lives()
    raise ProgramFailed(f"{program} has not ended after {LIVES} lives")


def count_commits(program: str | Path, store: str, directory: Path) -> int:
    """Return how many durable writes a run makes that nothing interrupts."""
    ended = run_program(program, store, directory)
    assert isinstance(ended, Finished)
    return ended.commits


def spread(count: int, at_most: int = POINTS) -> list[int]:
    """Return the numbers from 1 to `count`: all of them in a soak, else a few, evenly, with the first and the last."""
    if SOAK or count <= at_most:
        return list(range(1, count + 1))
    return sorted({1 + round(number * (count - 1) / (at_most - 1)) for number in range(at_most)})


def assert_same_outcome(uninterrupted: Finished, interrupted: Finished) -> None:
    assert interrupted.outcome == uninterrupted.outcome


def assert_called_once(directory: Path, name: str) -> None:
    """Check that each call of that name was made once: there are some, and no two are equal."""
    lines = read_calls(directory).get(name, [])
    assert lines, f"{name} was never called"
    twice = [line for line, count in Counter(lines).items() if count > 1]
    assert not twice, f"{name} was called more than once with {twice}"


def assert_calls_not_repeated(
    uninterrupted: Finished, interrupted: Finished, *, repeatable: Collection[str] = (MODEL,), under_way: int = 1
) -> None:
    """Check that the lives together made the calls of one uninterrupted run.

    Calls that were under way when the kill came may have been made twice, if they are calls of the model or of a tool
    that only reads (`repeatable`): one of them, or as many as the program makes at a time (`under_way`).
    """
    wanted, made = _count_calls(uninterrupted), _count_calls(interrupted)
    assert not wanted - made, f"calls are missing: {dict(wanted - made)}"
    more = made - wanted
    unknown = [call for call in more if call not in wanted]
    assert not unknown, f"an uninterrupted run makes no such calls: {unknown}"
    repeated = {call: count for call, count in more.items() if call[0] not in repeatable}
    assert not repeated, f"calls were repeated: {repeated}"
    kills = int(interrupted.lives > 1)
    assert more.total() <= kills * under_way, f"more calls were repeated than were under way: {dict(more)}"


def _count_calls(finished: Finished) -> Counter[tuple[str, str]]:
    return Counter((name, line) for name, lines in finished.calls.items() for line in lines)
