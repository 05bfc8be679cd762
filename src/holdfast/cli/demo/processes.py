"""The lives of the agent: each is a process, and some are ended with SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import holdfast
from holdfast.errors import StoreError

PAUSE = 0.05  # seconds that each step of the agent takes
LONGEST_LIFE = 300.0  # seconds, after which something must be wrong


@dataclass(slots=True)
class AgentProcess:
    """The output of an agent process until it ended; `killed_when` is its last line before it was killed."""

    resumed_at: int | None = None
    began: list[str] = field(default_factory=list)
    saved: dict[str, str] = field(default_factory=dict)
    killed_when: str | None = None
    exit_code: int = 0
    seconds: float = 0.0
    process_id: int = 0

    @property
    def was_killed(self) -> bool:
        # On Windows there are no signals, and a killed process exits with 1.
        return self.killed_when is not None and self.exit_code == (-9 if os.name == "posix" else 1)


def run_agent(store: Path, session: str, policy: str, *, kill_when: str | None = None) -> AgentProcess:
    """Run the agent until it ends, or kill it once it prints `kill_when` (such as `saving decide`).

    Raise `StoreError` if it failed by itself.
    """
    started = time.monotonic()
    interrupts = _HeldBack()
    try:
        process = subprocess.Popen(  # noqa: S603 - our own module, with arguments of ours
            [sys.executable, "-P", "-m", "holdfast.cli.demo.agent", str(store), session, policy, str(PAUSE)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=_environment(),
        )
    except BaseException:
        interrupts.let_through()
        raise
    life = AgentProcess(process_id=process.pid)
    alarm = threading.Timer(LONGEST_LIFE, process.kill)
    try:
        interrupts.let_through()
        alarm.start()
        assert process.stdout is not None
        for line in process.stdout:
            report = line.strip()
            if kill_when is not None and report.startswith(kill_when) and life.killed_when is None:
                process.kill()
                life.killed_when = report
            _note(life, report)
        complaint = process.stderr.read() if process.stderr else ""
        life.exit_code = process.wait()
    finally:
        alarm.cancel()
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    life.seconds = time.monotonic() - started
    if life.exit_code != 0 and life.killed_when is None:
        last = complaint.strip().splitlines()[-1:] or [f"exit code {life.exit_code}"]
        raise StoreError(f"the agent's process failed by itself: {last[0]}. Please report this, with `holdfast doctor`")
    return life


class _HeldBack:
    """Ctrl-C, held back while a process starts.

    In the middle of a start it would leave an orphan process, which continues to write to a
    directory that is being removed.
    """

    def __init__(self) -> None:
        self._came = False
        handler = signal.getsignal(signal.SIGINT)
        is_ours = callable(handler) and threading.current_thread() is threading.main_thread()
        self._handler = signal.signal(signal.SIGINT, self._note) if is_ours else None

    def _note(self, *_: object) -> None:
        self._came = True

    def let_through(self) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self._came:
            signal.raise_signal(signal.SIGINT)


def _note(life: AgentProcess, report: str) -> None:
    word, _, rest = report.partition(" ")
    if word == "resumes":
        life.resumed_at = int(rest)
    elif word == "begins":
        life.began.append(rest)
    elif word == "saved":
        name, _, id_ = rest.partition(" ")
        life.saved[name] = id_


def _environment() -> dict[str, str]:
    """Ours; and the child finds the same holdfast as this process, however that was found."""
    package = str(Path(holdfast.__file__).parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([package, inherited] if inherited else [package])}
