"""Workers in several processes: each handoff has one owner."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from support import Store, python_process

pytestmark = [pytest.mark.servers, pytest.mark.slow]

CLAIMERS = 4
HANDOFFS = 40
CLAIMER = """
import sys
from holdfast import ConflictError, SyncClient
url, *handoffs = sys.argv[1:]
client = SyncClient.open(url)
client.sessions()
print("ready", flush=True)
sys.stdin.readline()
for handoff in handoffs:
    try:
        claim = client.claim(handoff, "worker", seconds=300)
    except ConflictError:
        continue
    print(handoff, flush=True)
print("done", flush=True)
sys.stdin.readline()  # who has ended holds nothing any more
client.close()
"""


@pytest.mark.parametrize("kind", ["redis", "redis:4"])
def test_of_four_processes_exactly_one_gets_each_handoff(kind: str, redis_url: str, tmp_path: Path):
    store = Store(kind, tmp_path, redis_url)
    client = store.client()
    handoffs = []
    for number in range(HANDOFFS):
        saved = client.save("planner", session_id=f"s{number}", execution_state={"n": number})
        handoffs.append(client.handoff(saved, target_agent_id="worker"))
    processes = [python_process(CLAIMER, store.url, *handoffs) for _ in range(CLAIMERS)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    claimed: Counter[str] = Counter()
    for process in processes:
        claimed.update(line.strip() for line in iter(process.stdout.readline, "done\n") if line)
    for process in processes:
        _, err = process.communicate("end\n", timeout=120)
        assert process.returncode == 0, err[-2000:]
    assert claimed == Counter(handoffs)
    assert client.verify().ok
    store.close()
