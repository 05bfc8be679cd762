"""Log of the effects that the programs of the kill campaigns carried out: one line each.

Nothing of holdfast is in it, and no rollback reaches it. A line is one write and one sync: whole or
absent, whenever the process is killed. Every call takes a little time before and after its line, so
that kills fall on both sides of it.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

PAUSE = 0.02  # seconds, at most, before and after each thing is done


class RefusedError(Exception):
    """The world has certainly not done it."""


class World:
    """What was done, by which kind, for which decision, and under which idempotency key."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def do(self, what: str, decision: str, key: str) -> str:
        """Carries something out, and gives its receipt."""
        time.sleep(random.uniform(0, PAUSE))
        self._write(what, decision, key)
        time.sleep(random.uniform(0, PAUSE))
        return receipt(what, decision)

    def refuse_once(self, what: str, decision: str) -> None:
        """Refuses the first call, as a bank that is closed for a moment."""
        if not any(one["what"] == f"refused {what}" and one["decision"] == decision for one in self.lines()):
            self._write(f"refused {what}", decision, "")
            raise RefusedError(f"{what} {decision}: closed for a moment")

    def note(self, what: str, decision: str, key: str = "") -> None:
        """Keeps what a program did or saw, through its death: that a call of its was blocked."""
        self._write(what, decision, key)

    def lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []

    def find(self, key: str) -> dict[str, str] | None:
        """What was done under a key."""
        return next((one for one in self.lines() if one["key"] == key), None)

    def done(self, what: str) -> Counter[str]:
        """How often each decision was carried out."""
        return Counter(one["decision"] for one in self.lines() if one["what"] == what)

    def _write(self, what: str, decision: str, key: str) -> None:
        line = json.dumps({"what": what, "decision": decision, "key": key}) + "\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)


def receipt(what: str, decision: str) -> str:
    return f"receipt: {what} {decision}"


def judge(world: World, wanted: dict[str, Counter[str]]) -> dict[str, Any]:
    """What the world has too much and too little of, compared with what was decided."""
    twice, never = [], []
    for what, decided in wanted.items():
        done = world.done(what)
        twice += [f"{what} {one}" for one in done if done[one] > decided[one]]
        never += [f"{what} {one}" for one in decided if done[one] < decided[one]]
    blocked = sorted({one["decision"] for one in world.lines() if one["what"] == "blocked"})
    return {"twice": twice, "never": never, "blocked": blocked}
