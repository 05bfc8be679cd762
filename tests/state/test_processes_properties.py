"""The state machine with a second process, and processes beside each other.

In the first, the processes take turns, and the model says exactly what must come of each step. In
the second each does what agents do, at random, at the same time: it tells what it was acknowledged,
and in the end every live checkpoint must come back exactly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import machine_processes
import pytest
from machine_lengths import TIMEOUT, long, short
from machine_processes import TwoProcesses
from stores import Store, python_process

from holdfast import CheckpointExpiredError, CheckpointNotFoundError

pytestmark = [pytest.mark.timeout(TIMEOUT), pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def second_process() -> Iterator[None]:
    """It is started when it is needed first."""
    yield
    machine_processes.stop()


class FilesInTwoProcesses(TwoProcesses):
    kind = "files"


class SqliteInTwoProcesses(TwoProcesses):
    kind = "sqlite"


class TestFiles(FilesInTwoProcesses.TestCase):
    settings = short(examples=4, steps=25)


class TestSqlite(SqliteInTwoProcesses.TestCase):
    settings = short(examples=4, steps=25)


@pytest.mark.slow
class TestFilesForLong(FilesInTwoProcesses.TestCase):
    settings = long(examples=30, steps=50)


@pytest.mark.slow
class TestSqliteForLong(SqliteInTwoProcesses.TestCase):
    settings = long(examples=40, steps=50)


WORKER = """
import json, random, sys
from holdfast import SyncClient, CheckpointExpiredError, CheckpointNotFoundError, ConflictError
url, name, seed, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
fast = {} if url.startswith("redis") else {"durability": "fast"}
client = SyncClient.open(url, **fast)
mine = {}
print("ready", flush=True)
sys.stdin.readline()

def said(id_, state):
    mine[id_] = state
    print(json.dumps({"saved": id_, "state": state}), flush=True)

def message():
    return {"by": name, "text": f"{rng.random()} ".ljust(rng.choice([10, 200, 900]), "x")}

own = {"m": [], "notes": ""}
for step in range(steps):
    kinds = ["own"] * 3 + ["edit", "shared", "shared", "append", "fork", "old", "expire", "gc", "open"]
    what = rng.choice(kinds)
    if what == "own":
        own["m"] += [message() for _ in range(rng.choice([1, 2, 30]))]
        said(client.save(name, session_id=name, execution_state=own), json.loads(json.dumps(own)))
    elif what == "edit" and own["m"]:
        at = rng.randrange(len(own["m"]))
        own["m"][at : at + rng.choice([0, 1, 20])] = [message()]
        own["notes"] = "n" * rng.choice([0, 5000])
        said(client.save(name, session_id=name, execution_state=own), json.loads(json.dumps(own)))
    elif what == "append":
        new = message()
        own["m"].append(new)
        if client.latest(session_id=name) is None:
            continue
        parent = client.latest(session_id=name).execution_state
        saved = client.save(name, session_id=name, execution_state={"notes": ""}, append={"m": [new]})
        said(saved, {"notes": "", "m": [*parent["m"], new]})
        own = {"m": [*parent["m"], new], "notes": ""}
    elif what == "shared":
        print(json.dumps({"shared": client.save(name, session_id="shared", append={"+m": [message()]})}), flush=True)
    elif what in ("fork", "old") and mine:
        id_ = rng.choice(list(mine))
        try:
            if what == "fork":
                said(client.fork(id_).checkpoint_id, mine[id_])
            else:
                state = {**mine[id_], "m": [*mine[id_]["m"], message()]}
                said(client.save(name, parent_id=id_, execution_state=state), state)
        except CheckpointExpiredError:
            pass
    elif what == "expire" and mine:
        id_ = rng.choice(list(mine))
        client.expire(id_)
        print(json.dumps({"expired": id_}), flush=True)
    elif what == "gc" and step % 5 == 0:
        client.gc()
    elif what == "open":
        client = SyncClient.open(url, **fast)
"""


def run_together(store: Store, workers: int, steps: int) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED", "1"))
    processes = [
        python_process(WORKER, store.url, f"agent {number}", str(seed * 100 + number), str(steps))
        for number in range(workers)
    ]
    for process in processes:
        said = process.stdout.readline()
        assert said == "ready\n", process.communicate(input="")[1][-3000:]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    expected, expired, shared = {}, set(), set()
    for process in processes:
        out, err = process.communicate(timeout=800)
        assert process.returncode == 0, err[-3000:]
        for line in map(json.loads, out.splitlines()):
            if "saved" in line:
                expected[line["saved"]] = line["state"]
            elif "shared" in line:
                shared.add(line["shared"])
            else:
                expired.add(line["expired"])
    client = store.client()
    for id_, state in expected.items():
        if id_ in expired:
            with pytest.raises((CheckpointExpiredError, CheckpointNotFoundError)):
                client.restore(id_)
        else:
            assert client.restore(id_).execution_state == state
    line = client.timeline(session_id="shared", limit=100_000)
    assert {entry.checkpoint_id for entry in line} == shared
    assert [entry.sequence for entry in line] == list(range(len(shared), 0, -1))
    assert len(client.latest(session_id="shared").execution_state["m"]) == len(shared)
    assert client.verify().problems == ()
    client.gc()
    assert client.verify().problems == ()


def test_two_processes_at_random(shared_store: Store):
    run_together(shared_store, workers=2, steps=25)


@pytest.mark.slow
def test_four_processes_at_random_for_long(shared_store: Store):
    run_together(shared_store, workers=4, steps=400 if os.environ.get("HOLDFAST_SOAK") else 150)
