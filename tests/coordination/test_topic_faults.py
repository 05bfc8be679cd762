"""Faults around a published message: kills at system calls, lost replies, and commits that become visible late."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from campaign import BACKENDS, SOAK, tally
from injection import CHANGING, TIMEOUT, need_strace, spread
from open_transaction import OpenTransaction, connected, schema_of
from paths import SUPPORT

from holdfast import Message, StoreError, SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.port import Commit
from holdfast.backends.postgres.schema import quote_name

PROGRAM = SUPPORT / "topic_saves.py"
POINTS = None if SOAK else 10
MARKED = "the marked agent"

# -- a kill at any system call -----------------------------------------------------------------------------------------


def calls_of(kind: str, folder: Path, how: str) -> Counter[str]:
    log = folder / "calls"
    command = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={','.join(CHANGING)}"]
    story = [sys.executable, str(PROGRAM), kind, str(folder / "undisturbed"), how]
    subprocess.run([*command, *story], capture_output=True, check=True, timeout=TIMEOUT)
    return Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE))


def separated(kind: str, folder: Path, how: str, point: tuple[str, int]) -> list[int]:
    """Kill the program at a system call; return the saves without their message, and the other way round."""
    call, n = point
    store = folder / f"{call}-{n}"
    subprocess.run(
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}",
         sys.executable, str(PROGRAM), kind, str(store), how],
        capture_output=True, check=False, timeout=TIMEOUT,
    )  # fmt: skip
    with SyncClient.sqlite(store) if kind == "sqlite" else SyncClient.files(store) as client:
        saved = {client.restore(one.checkpoint_id).execution_state["n"] for one in client.timeline("s", limit=None)}
        published = {one.value for one in client.messages("t")}
        assert client.verify().problems == ()
    return sorted(saved ^ published)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_kill_at_any_system_call_leaves_a_save_and_its_message_or_neither(kind, tmp_path):
    need_strace()
    points = spread(calls_of(kind, tmp_path, "together"), POINTS)
    points = points[:: 1 if SOAK else max(1, len(points) // 10)]
    found = {point: wrong for point in points if (wrong := separated(kind, tmp_path, "together", point))}
    assert not found
    assert len(points) >= 10
    tally(f"crash points of a save with a message, {kind}", done=len(points), wrong=len(found))


@pytest.mark.slow
@pytest.mark.parametrize("kind", BACKENDS)
def test_control_a_publication_after_the_save_is_separated_from_it(kind, tmp_path):
    need_strace()
    points = spread(calls_of(kind, tmp_path, "apart"), None)
    points = [point for point in points if point[0] == ("fdatasync" if kind == "sqlite" else "write")][::-1]
    assert any(separated(kind, tmp_path, "apart", point) for point in points)


# -- lost replies ------------------------------------------------------------------------------------------------------


@pytest.mark.servers
@pytest.mark.slow
def test_a_publication_whose_reply_was_lost_is_repeated_safely(proxied):
    proxy, through, past = proxied
    with SyncClient.open(through) as client, SyncClient.open(past) as other:
        client.publish("t", "first", agent_id="a")
        proxy.eat_reply(MARKED.encode())
        with pytest.raises(StoreError) as caught:
            client.publish("t", "marked", agent_id=MARKED)
        assert proxy.eaten == 1
        message_id = caught.value.checkpoint_id
        for _ in range(2):
            assert client.publish("t", "marked", agent_id=MARKED, message_id=message_id) == message_id
        assert [one.value for one in other.messages("t")] == ["first", "marked"]


@pytest.mark.servers
@pytest.mark.slow
def test_control_a_publication_that_is_repeated_without_its_id_is_there_twice(proxied):
    proxy, through, past = proxied
    with SyncClient.open(through) as client, SyncClient.open(past) as other:
        client.publish("t", "first", agent_id="a")
        proxy.eat_reply(MARKED.encode())
        with pytest.raises(StoreError):
            client.publish("t", "marked", agent_id=MARKED)
        client.publish("t", "marked", agent_id=MARKED)
        assert [one.value for one in other.messages("t")] == ["first", "marked", "marked"]


# -- a commit that becomes visible late --------------------------------------------------------------------------------


def commit_of(*messages: Message) -> list[Commit]:
    """The commits of a save with these messages, for another store."""
    backend = MemoryBackend()
    found: list[Commit] = []
    carry_out = backend.commit_all

    def commit_all(commits):
        found.extend(commits)
        return carry_out(commits)

    backend.commit_all = commit_all
    client = SyncClient(backend)
    client.save("late", session_id="late", execution_state={}, publish=messages)
    return [one for one in found if one.record is not None]


@pytest.mark.servers
def test_a_message_that_was_drawn_earlier_and_commits_later_is_waited_for(postgres_url):
    """PostgreSQL makes transactions visible in another order than that of their positions."""
    with SyncClient.open(postgres_url) as client:
        client.publish("t", 0)
        late = OpenTransaction(postgres_url)
        late.write(commit_of(Message("t", "late")))
        client.publish("t", 1)
        stream = client.messages("t", follow=True, poll_seconds=0.05)
        assert next(stream).value == 0
        cursor = stream.cursor
        with client.subscribe("t", "g", timeout=0) as messages:
            assert [one.value for one in messages if one.ack()] == [0]
        assert [one.value for one in client.messages("t", after=cursor)] == []
        late.commit()
        assert [next(stream).value for _ in range(2)] == ["late", 1]
        with client.subscribe("t", "g", timeout=0) as messages:
            assert [one.value for one in messages if one.ack()] == ["late", 1]


@pytest.mark.servers
def test_control_a_reader_of_all_that_is_visible_skips_it(postgres_url):
    with SyncClient.open(postgres_url) as client:
        client.publish("t", 0)
        late = OpenTransaction(postgres_url)
        late.write(commit_of(Message("t", "late")))
        client.publish("t", 1)
        query = f"SELECT position FROM {quote_name(schema_of(postgres_url))}.feed WHERE position > %s ORDER BY position"
        with connected(postgres_url) as connection:
            read = [row[0] for row in connection.execute(query.encode(), (0,))]
            late.commit()
            connection.commit()
            read_later = [row[0] for row in connection.execute(query.encode(), (read[-1],))]
        assert len(read) == 2
        assert read_later == []
        assert len(run_inline(client._ctx.backend.changes(0, 10, b"t"))) == 3
