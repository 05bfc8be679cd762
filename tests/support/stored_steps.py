"""Waits for the saves of another process or thread."""

from __future__ import annotations

import time
from typing import Any

from holdfast import SyncClient
from holdfast.format.state import run_journal

LONGEST = 60.0  # seconds


def wait_for_step(url: str, name: str, session_id: str = "s") -> None:
    """Wait until a step of that name is recorded. Steps that end at once share a checkpoint, and its name."""
    end = time.monotonic() + LONGEST
    with SyncClient.open(url) as client:
        while not any(f"/{name}#" in step[0] for step in _read_steps(client, session_id)):
            assert time.monotonic() < end, f"session {session_id!r} has no step {name!r}"
            time.sleep(0.01)


def _read_steps(client: SyncClient, session_id: str) -> list[Any]:
    head = client.latest(session_id)
    journal = {} if head is None else head.agent_context.get(run_journal.KEY) or {}
    return list(journal.get("steps", ()))
