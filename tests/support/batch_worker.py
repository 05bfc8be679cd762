"""Driver that kills a batch at random moments and restarts it: each life is a process.

    python batch_worker.py <store url> <directory> <kills> <seed>

A batch is the work of examples/batch.py: a list of tasks, each with a step and two effects. When
one is through, its outside world is judged, and the next begins. Prints a JSON line for each batch.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from crash_worker import import_driver, in_a_process

from holdfast import NOT_DONE, Done, SyncClient

TASKS = [f"task-{number:03}" for number in range(100)]


class World:
    """Lines of a file, each written by one call of the kernel: whole or absent, whenever the process is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def post(self, what: str, text: str, *, idempotency_key: str) -> str:
        line = f"{idempotency_key} {what}\n".encode()
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, line)
        os.close(handle)
        return text

    def find(self, what: str, text: str, *, idempotency_key: str) -> object:
        return Done(text) if any(line.startswith(idempotency_key) for line in self.lines()) else NOT_DONE

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


def batch(url: str, session: str, posts: Path, indexes: Path) -> str:
    post, index = World(posts), World(indexes)
    with SyncClient.open(url) as client, client.run(session, agent_id="a", wait=120) as run:
        for task in run.tasks("letters", TASKS):
            text = run.step(f"write {task.id}", lambda task=task: f"about {task.id}")
            run.effect("post", post.post, task.id, text, identity="what", probe=post.find)
            run.effect("index", index.post, task.id, text, identity="what", kind="idempotent")
    return "done"


def killed_sometime(moment: float, *arguments: Any) -> bool:
    """Whether a life that is killed after so many seconds was killed before its end."""
    child = os.fork()
    if not child:
        batch(*arguments)
        os._exit(0)
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"a life ended with {os.WEXITSTATUS(status)}")
    return os.WIFSIGNALED(status)


def main(url: str, where: Path, kills: int, seed: str) -> None:
    import_driver(url)
    chance, left, number = random.Random(seed), kills, 0
    while left:
        number += 1
        given: tuple[Any, ...] = (url, f"batch-{number}", where / f"posts-{number}", where / f"indexes-{number}")
        of_batch = 0
        longest = 0.2
        while left and of_batch < 12:
            if not killed_sometime(chance.uniform(0, longest), *given):
                break  # it came to its end
            of_batch += 1
            left -= 1
        assert in_a_process(batch, *given) == "done"
        assert in_a_process(batch, *given) == "done"  # and once more: nothing is left to do
        posted = Counter(line.split()[1] for line in World(given[2]).lines())
        indexed = set(World(given[3]).lines())
        told = {
            "kills": of_batch,
            "lost": [task for task in TASKS if not posted[task]],
            "twice": [task for task, count in posted.items() if count > 1],
            "indexed": sorted(line.split()[1] for line in indexed) == TASKS,
            "repeated": len(World(given[3]).lines()) - len(indexed),
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
