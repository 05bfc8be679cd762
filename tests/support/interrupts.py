"""Ctrl-C at random moments: SIGINT from another process, between any two instructions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

SENDER = """
import os, random, signal, sys, time
process, pause, rng = int(sys.argv[1]), float(sys.argv[2]), random.Random(1)
print("begun", flush=True)
while os.getppid() == process:  # else it has ended, and its number may be another's
    os.kill(process, signal.SIGUSR1)
    time.sleep(rng.random() * pause)
"""


class Interrupts:
    """Signals that follow each other after up to `pause` seconds. The first one that comes while
    something is done interrupts it as Ctrl-C does. (It is another signal, so that a Ctrl-C at the
    whole test run is none of these.)"""

    def __init__(self, pause: float = 0.001) -> None:
        self._pause = pause
        self._is_awaited = False
        self.interrupted = 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGUSR1, self._interrupt)
        self._sender = subprocess.Popen(
            [sys.executable, "-c", SENDER, str(os.getpid()), str(self._pause)], stdout=subprocess.PIPE
        )
        assert self._sender.stdout is not None
        self._sender.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        self._sender.kill()
        self._sender.communicate()
        signal.signal(signal.SIGUSR1, self._before)

    def during(self, work: Callable[[], Any]) -> Any:
        """Does it, unless it is interrupted."""
        try:
            self._is_awaited = True
            return work()
        finally:
            self._is_awaited = False

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._is_awaited:
            self._is_awaited = False
            self.interrupted += 1
            raise KeyboardInterrupt
