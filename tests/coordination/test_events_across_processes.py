"""events beside other processes: writers that write while one follows, and a follower that is killed and goes on."""

import json
import shutil
import signal
import subprocess
import uuid
from collections import defaultdict
from pathlib import Path

import pytest
from stores import Store, python_process

from holdfast import SyncClient

pytestmark = [pytest.mark.every_store, pytest.mark.slow]

WRITERS = 3
SAVES = 25

WRITE = """
    import sys
    from holdfast import SyncClient

    url, session, saves = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with SyncClient.open(url, durability="fast") as client:
        for number in range(saves):
            client.save("a", session_id=session, execution_state={"n": number}, step_index=number)
"""

FOLLOW = """
    import json, sys
    from holdfast import SyncClient

    with SyncClient.open(sys.argv[1], durability="fast") as client:
        for number, event in enumerate(client.events(after=sys.argv[2], poll_seconds=0.05), 1):
            print(json.dumps([event.cursor, event.checkpoint.session_id, event.checkpoint.step_index]), flush=True)
            if number == 9:
                sys.stdin.read()  # it is to be killed before
"""


def writers(store: Store) -> list[subprocess.Popen[str]]:
    return [python_process(WRITE, store.url, f"s{number}", str(SAVES)) for number in range(WRITERS)]


def ended(children: list[subprocess.Popen[str]]) -> None:
    for child in children:
        _, errors = child.communicate(timeout=240)
        assert child.returncode == 0, errors


def complete(met: list[tuple[str, int]]) -> None:
    by_session = defaultdict(list)
    for session, step in met:
        by_session[session].append(step)
    assert by_session == {f"s{number}": list(range(SAVES)) for number in range(WRITERS)}


def test_nothing_is_missed_or_repeated_while_other_processes_write(disk_store: Store):
    with disk_store.client() as client:
        stream = client.events(after=client.cursor(), poll_seconds=0.02)
        children = writers(disk_store)
        events = [next(stream) for _ in range(WRITERS * SAVES)]
        ended(children)
        complete([(event.checkpoint.session_id, event.checkpoint.step_index) for event in events])
        assert list(client.events(after=stream.cursor, follow=False)) == []


def test_a_follower_that_is_killed_goes_on_from_its_cursor(disk_store: Store):
    """Again and again while others write; what it said before it died is what it has dealt with."""
    with disk_store.client() as client:
        cursor = client.cursor()
    children = writers(disk_store)
    met: list[tuple[str, int]] = []
    kills = 0
    while len(met) < WRITERS * SAVES:
        follower = python_process(FOLLOW, disk_store.url, cursor)
        assert follower.stdout is not None
        said = [follower.stdout.readline() for _ in range(min(5, WRITERS * SAVES - len(met)))]
        follower.send_signal(signal.SIGKILL)
        said += follower.stdout.readlines()  # not `communicate`: that would pass over what is buffered here
        follower.communicate(timeout=240)
        kills += 1
        for line in said:
            if line.endswith("\n"):  # else it was never said
                cursor, session, step = json.loads(line)
                met.append((session, step))
    ended(children)
    complete(met)
    assert kills > 8


def test_control_a_follower_by_id_or_by_date_misses_what_commits_late(disk_store: Store):
    """A checkpoint that was made earlier and committed later: its id and its date lie before what was seen already."""
    client, late = disk_store.client(), disk_store.client()
    early_id = late._ctx.new_id(None)
    late_now = late._ctx.now_us()
    late._ctx.now_us = lambda: late_now
    seen = client.save("a", session_id="s")
    backend = disk_store.backend()
    stream = client.events(after="start", follow=False)
    assert [event.checkpoint.checkpoint_id for event in stream] == [seen]
    last = client.get(seen)

    missed = late.save("a", session_id="t", checkpoint_id=str(uuid.UUID(bytes=early_id)))
    assert backend.page_records(uuid.UUID(seen).bytes, 10) == []  # by id
    assert client.get(missed).created_at < last.created_at  # by date
    assert [event.checkpoint.checkpoint_id for event in stream] == [missed]


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_store_that_was_copied_keeps_its_cursors(kind: str, tmp_path: Path):
    (tmp_path / "one").mkdir()
    store = Store(kind, tmp_path / "one")
    with store.client() as client:
        for number in range(4):
            client.save("a", session_id="s", step_index=number)
        cursor = [event.cursor for event in client.events(after="start", follow=False)][1]
    store.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with Store(kind, tmp_path / "two").client() as copy:
        assert isinstance(copy, SyncClient)
        assert [event.checkpoint.step_index for event in copy.events(after=cursor, follow=False)] == [2, 3]
