"""Runs that are started by name, and carried out by workers: one is killed, and another one goes on.

    python examples/workers.py

A web handler would call `client.start`, and `holdfast work examples.workers` would run beside it.
Here both are processes of this program. The first worker is killed after its second step.
"""

import os
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

import holdfast
from holdfast import SyncClient


@holdfast.runnable("report.write")
def write(run, topic):
    parts = []
    for number, name in enumerate(("search", "outline", "draft", "polish")):
        parts.append(run.step(name, do, name, topic))
        run.progress(number + 1, 4, name)
        if os.environ.get("DIES") == name:
            os._exit(9)
    return parts[-1]


def do(name, topic):
    print(f"  {name} by {os.environ['WORKER']}")
    return f"{name} of {topic}"


def work(store, name, dies=""):
    os.environ.update(WORKER=name, DIES=dies)
    with SyncClient.sqlite(store) as client:
        client.work(drain=True)


def main():
    with tempfile.TemporaryDirectory() as directory:
        store = str(Path(directory) / "store.db")
        client = SyncClient.sqlite(store)
        client.start("report.write", "kelp", session_id="report-1")
        print(f"started: {client.run_status('report-1').status}")
        for name, dies in (("ann", "outline"), ("bob", "")):
            worker = get_context("spawn").Process(target=work, args=(store, name, dies))
            worker.start()
            worker.join()
            print(f"after {name}: {client.run_status('report-1').status}")
        done = client.run_status("report-1")
        print(f"result: {done.result}, progress {done.progress.done:g}/{done.progress.total:g}")
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
