"""Four processes save, fork and expire while two others collect without a pause. Nothing that was acknowledged and not
expired is lost, and `verify` finds nothing missing.

Fixed numbers of steps, more of them under HOLDFAST_SOAK=1, and more where the collector has not
come to anything by then.
"""

import json
from pathlib import Path

import pytest
from acknowledged import open_client
from campaign import BACKENDS, SOAK, tally
from stores import python_process

from holdfast import CheckpointExpiredError, CheckpointNotFoundError

pytestmark = pytest.mark.slow

WRITERS, COLLECTORS = 4, 2
STEPS = 1500 if SOAK else 40

WRITER = """
import json, os, random, sys
from holdfast import SyncClient, CheckpointExpiredError

kind, path, name, steps, collected = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
client = getattr(SyncClient, kind)(path, durability="fast")
rng = random.Random(name)
live = {}
state = {"m": [], "note": "", "large": ""}

def said(id_, content):
    live[id_] = content
    print(json.dumps({"saved": id_, "state": content}), flush=True)

def changed(content):
    content = {**content, "m": [*content["m"]], "note": f"{rng.random()}" * 30}
    content["m"] += [{"by": name, "text": f"{rng.random()}".ljust(rng.choice([20, 900, 4000]), "x")}]
    if rng.random() < 0.1:
        del content["m"][: len(content["m"]) // 2]
    if rng.random() < 0.1:
        content["large"] = f"{rng.random()}" * 400
    return content

for step in range(50 * steps):
    if step >= steps and os.path.exists(collected):
        break
    what = rng.choice(["save"] * 6 + ["shared"] * 2 + ["fork", "branch", "prune", "new"])
    if what == "save":
        state = changed(state)
        said(client.save(name, session_id=name, execution_state=state), state)
    elif what == "shared":
        token = f"{name} {step}"
        id_ = client.save(name, session_id="shared", append={"+tokens": [token]})
        print(json.dumps({"shared": id_, "token": token}), flush=True)
    elif what in ("fork", "branch") and live:
        source = rng.choice(list(live))
        if what == "fork":
            said(client.fork(source, session_id=f"{name} fork {step}").checkpoint_id, live[source])
        else:
            content = changed(live[source])
            session = client.get(source).session_id
            said(client.save(name, session_id=session, parent_id=source, execution_state=content), content)
    elif what == "prune":
        for id_ in list(live)[: -rng.choice([2, 5, 12])]:
            print(json.dumps({"expiring": id_}), flush=True)
            assert client.expire(id_) is True
            del live[id_]
        if client.latest(session_id=name) is not None:
            state = client.latest(session_id=name).execution_state
    elif what == "new":
        saved = client.save(name, session_id=f"{name} brief {step}", execution_state=state)
        print(json.dumps({"expiring": saved}), flush=True)
        assert client.expire(saved) is True
for id_ in list(live):
    assert client.restore(id_).execution_state == live[id_]
"""

COLLECTOR = """
import json, os, sys
from holdfast import SyncClient
kind, path, stop, collected = sys.argv[1:]
client = getattr(SyncClient, kind)(path, durability="fast")
runs = packed = removed = 0
print("ready", flush=True)
while not os.path.exists(stop):
    report = client.gc()
    runs += 1
    packed += report.tombstones_packed
    removed += report.segments + report.blobs
    if runs > 1 and packed > 0 < removed:
        open(collected, "w").close()
print(json.dumps({"runs": runs, "packed": packed, "removed": removed}))
"""


@pytest.mark.parametrize("kind", BACKENDS)
def test_collection_beside_four_writers_loses_nothing(kind: str, tmp_path: Path):
    path, stop, come_to_something = tmp_path / "store", tmp_path / "stop", str(tmp_path / "collected")
    collectors = [python_process(COLLECTOR, kind, str(path), str(stop), come_to_something) for _ in range(COLLECTORS)]
    for collector in collectors:
        assert collector.stdout.readline() == "ready\n"
    writers = [
        python_process(WRITER, kind, str(path), f"writer {n}", str(STEPS), come_to_something) for n in range(WRITERS)
    ]
    expected, expired, tokens = {}, set(), {}
    try:
        for writer in writers:
            out, err = writer.communicate(timeout=600)
            assert writer.returncode == 0, err[-3000:]
            for said in map(json.loads, out.splitlines()):
                if "saved" in said:
                    expected[said["saved"]] = said["state"]
                elif "shared" in said:
                    tokens[said["shared"]] = said["token"]
                else:
                    expired.add(said["expiring"])
    finally:
        stop.touch()
        outputs = [collector.communicate(timeout=600) for collector in collectors]
        for writer in writers:
            writer.kill()
    for collector, (_, err) in zip(collectors, outputs, strict=True):
        assert collector.returncode == 0, err[-3000:]
    each = [json.loads(out) for out, _ in outputs]
    collected = {name: sum(one[name] for one in each) for name in ("packed", "removed")}
    collected["runs"] = max(one["runs"] for one in each)
    client = open_client(kind, path)
    try:
        for again in range(2):
            report = client.verify()
            assert report.problems == ()
            for id_, state in expected.items():
                if id_ in expired:
                    with pytest.raises((CheckpointExpiredError, CheckpointNotFoundError)):
                        client.restore(id_)
                else:
                    assert client.restore(id_).execution_state == state
            assert sorted(client.latest(session_id="shared").execution_state["tokens"]) == sorted(tokens.values())
            line = client.timeline(session_id="shared", limit=None)
            assert {entry.checkpoint_id for entry in line} == set(tokens)
            for session in client.sessions():
                client.timeline(session_id=session.session_id, limit=None)
                client.tree(session.session_id)
            if not again:
                client.gc()
    finally:
        client.close()
    tally(
        f"collections beside writers, {kind}",
        done=collected["runs"],
        acknowledged=len(expected) + len(tokens),
        packed=collected["packed"],
        wrong=0,
    )
    assert collected["runs"] > 1, "the collector came too late: this proves nothing"
    assert collected["packed"] > 0 < collected["removed"], "nothing was collected beside writers: this proves nothing"
