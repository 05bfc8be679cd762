"""A boss that delegates items and joins the answers, and its workers: programs for crash tests.

    python delegation_team.py URL boss|worker DIRECTORY [before|after NUMBER]

With a number the process kills itself right before or after its commit of that number.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from acknowledged import say

from holdfast import NOT_DONE, ConflictError, Done, JoinResult, SyncClient
from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.port import BlockingBackend, Commit
from holdfast.backends.url import open_backend

ITEMS = [{"n": number} for number in range(3)]
WORKER = "worker"
SESSION = "boss"


class Mortal:
    """A backend whose process dies right before or right after a commit."""

    def __init__(self, inner: BlockingBackend, number: int, when: str, die: Callable[[], None]) -> None:
        self._inner = inner
        self._left = number
        self._when = when
        self._die = die
        self.commits = 0

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        self.commits += 1
        self._left -= 1
        if self._left == 0 and self._when == "before":
            self._die()
        outcome = self._inner.commit_all(commits)
        if self._left == 0:
            self._die()
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def lead(client: SyncClient, **options: Any) -> JoinResult:
    """Delegate all items, and join all answers."""
    with client.run(SESSION, "boss", **options) as run:
        asked = run.delegate(WORKER, ITEMS)
        got = run.join(asked, timeout=120)
        run.state = {"sum": sum(got.values)}
    return got


def work(client: SyncClient, directory: Path) -> int:
    """Do what waits, each item once by effect; return how many."""
    done = 0
    for offer in client.inbox(WORKER):
        try:
            with client.claim(offer.handoff_id, WORKER) as claim:
                number = claim.checkpoint.execution_state["n"]
                with client.run(claim.session_id, WORKER, lease=claim.lease) as run:
                    result = run.effect("do", do, directory, number, identity=("number",), probe=probe)
                claim.complete(result)
                done += 1
        except ConflictError:
            continue  # another worker has it
    return done


def do(directory: Path, number: int) -> int:
    with (directory / "done").open("a") as file:
        file.write(f"{number}\n")
    return number * 10


def probe(directory: Path, number: int) -> Any:
    return Done(number * 10) if number in done_items(directory) else NOT_DONE


def done_items(directory: Path) -> list[int]:
    path = directory / "done"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    url, role, directory, *kill = sys.argv[1:]
    options: dict[str, Any] = {} if url.startswith("redis") else {"durability": "fast"}
    opened = open_backend(url, **options)
    backend: Any = blocking(opened) if opened.capabilities.awaitable else opened
    mortal = Mortal(backend, int(kill[1]) if kill else 0, kill[0] if kill else "", die)
    client = SyncClient(mortal)
    if role == "boss":
        say(values=lead(client).values, commits=mortal.commits)
        return
    say(ready=True)
    while not (Path(directory) / "stop").exists():
        if not work(client, Path(directory)):
            time.sleep(0.02)


if __name__ == "__main__":
    main()
