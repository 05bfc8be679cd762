"""The state machine with a real process as the second client.

The process leases, claims, pins, expires and runs gc between the steps of the first client; it may be killed while
it holds leases."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from hypothesis.stateful import precondition, rule
from machine import StoreMachine
from second_process import RemoteClient, SecondProcess


class TwoProcesses(StoreMachine):
    kind = "files"
    second: ClassVar[SecondProcess | None] = None
    number: ClassVar[int] = 1  # of the process that runs now: those before it were killed

    def open(self, who: int) -> Any:
        return RemoteClient(running, self.store.url, self.clock) if who else super().open(who)

    def process_of(self, who: int) -> int:
        return TwoProcesses.number if who else 0

    # Only Linux says for certain that a process of this boot has ended.
    @precondition(lambda self: sys.platform == "linux" and self._second_holds_something())
    @rule()
    def the_second_is_killed(self) -> None:
        """What it held is free at once, for whoever asks for it; the one that comes after it holds nothing."""
        stop()
        self.model.ended.add(TwoProcesses.number)
        TwoProcesses.number += 1
        self.clients[1] = self.open(1)

    def _second_holds_something(self) -> bool:
        held = [line.lease for session, line in self.model.lines.items() if self.model.is_leased(session)]
        return any(lease is not None and lease.process == TwoProcesses.number for lease in held)


def running() -> SecondProcess:
    if TwoProcesses.second is None:
        TwoProcesses.second = SecondProcess()
    return TwoProcesses.second


def stop() -> None:
    if TwoProcesses.second is not None:
        TwoProcesses.second.kill()
        TwoProcesses.second = None
