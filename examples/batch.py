"""A batch of 100 letters, killed ten times in the middle of its work: each letter is sent once, and none is lost.

    python examples/batch.py

It starts itself as a worker, kills that without warning (SIGKILL), and starts it again, until all
is done. The worker knows nothing of this: it is a plain loop over tasks. The post office is a file,
letters.txt, which is no part of the store.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from holdfast import NOT_DONE, Done, SyncClient

LETTERS = Path("letters.txt")
CUSTOMERS = [f"customer-{number:03}" for number in range(100)]


def write(customer):
    return f"Dear {customer}, your kelp has arrived."


def post(customer, text, *, idempotency_key):
    """Sends a letter. The key is the same whenever the same letter is sent."""
    time.sleep(0.002)  # the way to the post office
    with LETTERS.open("ab", buffering=0) as letters:
        letters.write(f"{idempotency_key} {customer}: {text}\n".encode())
    return "posted"


def find(customer, text, *, idempotency_key):  # noqa: ARG001 - it is called like `post`
    """Whether the post office has that letter: asked when nobody knows, after a crash."""
    return Done("posted") if LETTERS.exists() and idempotency_key in LETTERS.read_text() else NOT_DONE


def work():
    with SyncClient.sqlite() as client, client.run("letters", agent_id="writer") as run:
        for task in run.tasks("letters", CUSTOMERS):
            text = run.step(f"write {task.id}", write, task.id)
            run.effect("post", post, task.id, text, key="letter", probe=find)


def posted():
    return LETTERS.read_text().count("\n") if LETTERS.exists() else 0


def main():
    kills = 0
    while True:
        enough = posted() + 5
        worker = subprocess.Popen([sys.executable, __file__, "work"])  # noqa: S603 - itself
        while worker.poll() is None and (kills == 10 or posted() < enough):
            time.sleep(0.001)
        if worker.poll() is not None:
            break
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        kills += 1
    lines = [line.split(" ", 2)[1] for line in LETTERS.read_text().splitlines()]
    print(f"killed {kills} times: {len(lines)} letters to {len(set(lines))} customers")
    return worker.returncode


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(work() if sys.argv[1:] == ["work"] else main())
