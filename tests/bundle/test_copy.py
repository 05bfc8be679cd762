"""Copying: a store into one of any other kind, checked, and again without doing it twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from stores import BACKENDS, Store, messages

from holdfast import Client, ConflictError, SyncClient, UsageError


def fill(client: SyncClient) -> None:
    state = {"m": messages(60), "text": "x" * 9000}
    first = client.save("a", execution_state=state, session_id="long", tag_of_mine="v1")
    for n in range(5):
        state["m"] += messages(1, 60 + n)
        last = client.save("a", execution_state=state, session_id="long")
    client.fork(first, "fork")
    client.save("b", execution_state={"n": 1}, session_id="fork")
    client.expire(last)
    client.pin(first)
    client.tag("begin", first)
    client.handoff(client.save("a", execution_state={"alone": True}, session_id="alone"), "b")


def content(client: SyncClient) -> dict[str, object]:
    sessions = sorted(session.session_id for session in client.sessions())
    return {
        "states": {
            entry.checkpoint_id: (entry.checksum, client.restore(entry.checkpoint_id).execution_state)
            for session in sessions
            for entry in client.timeline(session_id=session, limit=None)
        },
        "order": [[entry.checkpoint_id for entry in client.timeline(session_id=s, limit=None)] for s in sessions],
        "heads": [client.latest(session_id=session).checkpoint_id for session in sessions],
        "tags": [(tag.name, tag.checkpoint_id) for tag in client.tags()],
        "inbox": [handoff.handoff_id for handoff in client.inbox("b")],
    }


@pytest.mark.parametrize("kind", BACKENDS)
def test_everything_comes_over_with_ids_order_and_checksums(store: Store, kind: str, tmp_path: Path):
    other = Store(kind, tmp_path / "other")
    try:
        source, target = store.client(), other.client()
        fill(source)
        before = content(source)
        report = source.copy_to(target)
        assert (report.trees, report.sessions, report.already_there, report.skipped) == (2, 3, 0, ())
        assert report.copied == report.checkpoints
        assert content(target) == before == content(source)
        assert target.verify().ok
        again = source.copy_to(target)
        assert (again.copied, again.already_there) == (0, report.copied)
        source.save("a", execution_state={"n": 2}, session_id="fork")
        assert source.copy_to(target).copied == 1
        assert content(target) == content(source)
    finally:
        other.close()


def test_one_that_was_interrupted_goes_on(memory_store: Store, tmp_path: Path):
    source = memory_store.client()
    for n in range(6):
        source.save("a", execution_state={"n": n}, session_id=f"s{n}")
    target = SyncClient.files(tmp_path / "target")

    def pull_the_plug(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.copy_to(target, progress=pull_the_plug)
    assert len(target.sessions()) == 3
    seen: list[tuple[int, int]] = []
    report = source.copy_to(target, progress=lambda done, of: seen.append((done, of)))
    assert (report.copied, report.already_there) == (3, 3)
    assert seen == [(n, 6) for n in range(7)]
    assert content(target) == content(source)


def test_what_differs_is_a_conflict_and_can_be_left_out(memory_store: Store, tmp_path: Path):
    source, target = memory_store.client(), SyncClient.sqlite(tmp_path / "t.db")
    source.save("a", execution_state={"n": 1}, session_id="s")
    source.save("a", execution_state={"n": 1}, session_id="t")
    target.save("a", execution_state={"n": "another"}, session_id="s")
    with pytest.raises(ConflictError, match="'s'"):
        source.copy_to(target)
    report = source.copy_to(target, on_conflict="skip")
    assert [tree.sessions for tree in report.skipped] == [("s",)]
    assert target.latest(session_id="s").execution_state == {"n": "another"}
    assert target.latest(session_id="t").execution_state == {"n": 1}


def test_the_async_client_copies_too(tmp_path: Path):
    async def use() -> None:
        async with Client.sqlite(tmp_path / "a.db") as source, Client.memory() as target:
            saved = await source.save("a", execution_state={"n": 1}, session_id="s")
            assert (await source.copy_to(target)).copied == 1
            assert (await target.restore(saved)).execution_state == {"n": 1}
            with pytest.raises(UsageError, match="a Client copies to a Client, not to a SyncClient"):
                await source.copy_to(SyncClient.memory())

    asyncio.run(use())
    with pytest.raises(UsageError, match="not to a Client"):
        SyncClient.memory().copy_to(Client.memory())
