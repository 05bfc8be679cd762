"""A store, a tree or a session goes to one file and back: the same, whole or not at all, into any kind of store."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bundles import Plan, equal_stores, exported, fill, imported
from stores import BACKENDS, Store, messages

from holdfast import CheckpointNotFoundError, Client, ConflictError, SyncClient, UsageError
from holdfast.codec.registry import TypeRegistry

pytestmark = pytest.mark.every_store


@pytest.fixture(params=[pytest.param(kind, marks=[pytest.mark.slow] * (kind != "sqlite")) for kind in BACKENDS])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "target").mkdir()
    opened = Store(request.param, tmp_path / "target")
    yield opened
    opened.close()


# -- there and back ---------------------------------------------------------------------------------------------------


def test_every_kind_of_store_into_every_other(store: Store, target: Store) -> None:
    here, there = store.client(), target.client()
    fill(here)
    first = exported(here)
    report = imported(there, first)
    assert (report.imported_trees, report.already_there) == (2, 0)
    assert report.imported == report.checkpoints + report.tombstones
    equal_stores(here, there)
    assert exported(there) == first
    assert there.verify().problems == ()
    there.gc()
    assert there.verify().problems == ()
    equal_stores(here, there)


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    """Whatever the store is, whatever numbers it gave, sealed or not, collected or not."""
    clients = {}
    for kind in BACKENDS:
        (tmp_path / kind).mkdir()
        clients[kind] = Store(kind, tmp_path / kind).client()
    source = SyncClient.memory()
    fill(source)
    whole = exported(source)
    for kind, client in clients.items():
        for number in range(3):  # other trees first: so all numbers are others
            client.save("x", execution_state={"m": messages(30, number)}, session_id=f"unrelated {number}")
        imported(client, whole)
        chosen = exported(client, ["main", "side/é", "small"])
        assert chosen == whole, kind
        for entry in client.timeline(session_id="unrelated 1"):
            client.expire(entry.checkpoint_id)
        client.gc()
        assert exported(client, ["main", "side/é", "small"]) == whole, kind


def test_what_is_not_sealed_yet_can_not_be_told(quick: SyncClient) -> None:
    """Saved message by message, or in a store that got it in one go: a client goes on, a copy of it stands still."""
    history = messages(20)
    for step in range(150):
        history += messages(1, 100 + step)
        quick.save("a", execution_state={"messages": history}, session_id="s")
    copy = SyncClient.memory()
    imported(copy, exported(quick))
    assert copy.stats().segment_bytes < quick.stats().segment_bytes
    assert exported(copy) == exported(quick)


def test_a_session_that_was_imported_goes_on(store: Store, target: Store) -> None:
    here, there = store.client(), target.client()
    fill(here)
    imported(there, exported(here))
    state = there.latest(session_id="main").execution_state
    state["messages"] += messages(40, 700)
    there.save("writer", execution_state=state, session_id="main")
    there.save("writer", append={("messages",): messages(3, 800)}, session_id="main")
    state["messages"] += messages(3, 800)
    assert there.latest(session_id="main").execution_state == state
    there.gc()
    assert target.client().verify().problems == ()


@pytest.mark.slow
def test_a_thousand_checkpoints(tmp_path: Path) -> None:
    here, there = SyncClient.memory(), Store("sqlite", tmp_path).client()
    fill(here, 1000)
    data = exported(here)
    report = imported(there, data)
    assert report.checkpoints + report.tombstones == report.imported > 1000
    here.gc()  # what has expired is packed more densely: that makes no difference
    assert exported(here) == exported(there) == data
    assert there.verify().problems == ()
    names = {one.session_id: [entry.checksum for entry in here.timeline(session_id=one.session_id, limit=None)]
             for one in here.sessions()}  # fmt: skip
    for name, checksums in names.items():
        assert [entry.checksum for entry in there.timeline(session_id=name, limit=None)] == checksums


def test_types_need_not_be_registered(quick: SyncClient) -> None:
    quick.save("a", execution_state={"plan": Plan("x", messages(20))}, session_id="s")
    stranger = SyncClient.memory(types=TypeRegistry())
    imported(stranger, exported(quick))
    assert exported(stranger) == exported(quick)
    assert stranger.verify().problems == ()


def test_names_from_outside(store: Store, target: Store) -> None:
    here, there = store.client(), target.client()
    for name in ("../x", "a/b", "", "\x00", "\ud800 lone", "ünï", "x" * 300):
        here.save("agent \ud800", execution_state={"name": name}, session_id=name, step_name="\ud801")
    imported(there, exported(here))
    equal_stores(here, there)
    assert exported(there) == exported(here)


def test_an_empty_store(store: Store, target: Store) -> None:
    nothing = exported(store.client())
    report = imported(target.client(), nothing)
    assert (report.trees, report.imported) == (0, 0)
    assert exported(target.client()) == nothing


def test_the_async_client_does_the_same(store: Store, target: Store, tmp_path: Path) -> None:
    fill(store.client())
    path = tmp_path / "x.holdfast"

    async def there_and_back() -> None:
        async with store.async_client() as here, target.async_client() as there:
            report = await here.export(path)
            assert report.size == path.stat().st_size
            assert (await there.import_(path)).imported == report.checkpoints + report.tombstones
            again = io.BytesIO()
            await there.export(again)
            assert again.getvalue() == path.read_bytes()

    asyncio.run(there_and_back())


# -- a part of a store ------------------------------------------------------------------------------------------------


def test_a_session_comes_with_what_it_was_forked_from(quick: SyncClient) -> None:
    fill(quick)
    fill(quick, 10, "other ")
    there = SyncClient.memory()
    imported(there, exported(quick, "side/é"))
    assert {one.session_id for one in there.sessions()} == {"main", "side/é"}
    assert there.verify().problems == ()


def test_a_session_comes_without_its_forks_unless_the_whole_tree_is_asked_for(quick: SyncClient) -> None:
    fill(quick)
    alone, whole = SyncClient.memory(), SyncClient.memory()
    imported(alone, exported(quick, "main"))
    imported(whole, exported(quick, "main", whole_tree=True))
    assert {one.session_id for one in alone.sessions()} == {"main"}
    assert {one.session_id for one in whole.sessions()} == {"main", "side/é"}
    imported(alone, exported(quick, "main", whole_tree=True))  # and what was left out can follow
    assert exported(alone) == exported(whole)


def test_a_device_or_pipe_is_written_to_and_stays(quick: SyncClient, tmp_path: Path) -> None:
    quick.save("a", session_id="s", execution_state={"n": 1})
    whole, pipe = tmp_path / "whole.holdfast", tmp_path / "pipe"
    quick.export(whole)
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as readers:
        received = readers.submit(pipe.read_bytes)
        quick.export(pipe)
        assert received.result() == whole.read_bytes()
    assert pipe.is_fifo()


def test_an_unknown_session(quick: SyncClient, tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="nobody"):
        quick.export(tmp_path / "x", "nobody")
    assert list(tmp_path.iterdir()) == []


# -- again, and conflicts ---------------------------------------------------------------------------------------------


def test_importing_twice_is_safe(client: SyncClient, quick: SyncClient) -> None:
    fill(quick)
    data = exported(quick)
    imported(client, data)
    before = client.stats()
    report = imported(client, data)
    assert (report.imported_trees, report.imported) == (0, 0)
    assert report.already_there == report.checkpoints + report.tombstones
    assert client.stats() == before


def test_a_newer_export_goes_on_from_an_older_one(client: SyncClient, quick: SyncClient) -> None:
    fill(quick)
    older = exported(quick)
    imported(client, older)
    for step in range(5):
        state = quick.latest(session_id="main").execution_state
        state["messages"] += messages(30, 300 * step)
        quick.save("writer", execution_state=state, session_id="main")
    quick.fork(quick.latest(session_id="main").checkpoint_id, "a new fork")
    newer = exported(quick)
    size = client.stats().segment_bytes
    report = imported(client, newer)
    assert (report.imported, report.imported_sessions) == (6, 2)
    equal_stores(quick, client)
    assert exported(client) == newer
    assert client.verify().problems == ()
    assert client.stats().segment_bytes < 3 * size  # the older elements were not written again
    assert imported(client, older).imported == 0  # an older export has nothing new


def test_a_session_that_went_another_way_is_a_conflict(client: SyncClient, quick: SyncClient) -> None:
    quick.save("a", execution_state={"n": 1}, session_id="s")
    quick.save("a", execution_state={"n": 1}, session_id="later tree")
    imported(client, exported(quick))
    quick.save("a", execution_state={"n": 2}, session_id="s")
    quick.save("a", execution_state={"n": 2}, session_id="later tree")
    client.save("a", execution_state={"n": "another"}, session_id="s")
    before = exported(client)
    with pytest.raises(ConflictError, match="'s' has gone another way here since its number 1"):
        imported(client, exported(quick))
    assert exported(client) == before
    report = imported(client, exported(quick), on_conflict="skip")
    assert [skipped.sessions for skipped in report.skipped] == [("s",)]
    assert client.latest(session_id="later tree").execution_state == {"n": 2}
    assert client.latest(session_id="s").execution_state == {"n": "another"}


def test_a_session_of_another_tree_is_a_conflict(client: SyncClient, quick: SyncClient) -> None:
    quick.save("a", execution_state={"n": 1}, session_id="s")
    client.save("b", execution_state={"n": 2}, session_id="s")
    with pytest.raises(ConflictError, match="'s' is there already, in another tree"):
        imported(client, exported(quick))
    assert len(client.timeline(session_id="s")) == 1


def test_a_checkpoint_with_other_content_is_a_conflict(client: SyncClient, quick: SyncClient) -> None:
    id_ = quick.save("a", execution_state={"n": 1}, session_id="s")
    client.save("a", execution_state={"n": 2}, session_id="t", checkpoint_id=id_)
    with pytest.raises(ConflictError, match=id_):
        imported(client, exported(quick))


def test_a_session_that_was_rolled_back_here_is_left_alone(client: SyncClient, quick: SyncClient) -> None:
    first = quick.save("a", execution_state={"n": 1}, session_id="s")
    quick.save("a", execution_state={"n": 2}, session_id="s")
    imported(client, exported(quick))
    client.rollback("s", first)
    with pytest.raises(ConflictError, match="'s' stands elsewhere here"):
        imported(client, exported(quick))
    assert client.latest(session_id="s").checkpoint_id == first


def test_expiry_on_either_side_is_no_conflict(client: SyncClient, quick: SyncClient) -> None:
    ids = [quick.save("a", execution_state={"n": n, "m": messages(20)}, session_id="s") for n in range(4)]
    imported(client, exported(quick))
    client.expire(ids[1])
    quick.expire(ids[2])
    quick.expire(ids[3])
    quick.save("a", execution_state={"n": 4, "m": messages(25)}, session_id="s")
    report = imported(client, exported(quick))
    assert (report.imported, report.already_there) == (1, 4)
    assert [entry.sequence for entry in client.timeline(session_id="s")] == [5, 4, 3, 1]
    assert client.verify().problems == ()


def test_pins_and_tags_come_with_their_checkpoints(client: SyncClient, quick: SyncClient) -> None:
    ids = [quick.save("a", execution_state={"n": n}, session_id="s") for n in range(3)]
    quick.pin(ids[0], "note")
    quick.tag("release", ids[1])
    data = exported(quick)
    imported(client, data)
    assert [(pin.checkpoint_id, pin.note) for pin in client.pins()] == [(ids[0], "note")]
    assert [(tag.name, tag.checkpoint_id) for tag in client.tags()] == [("release", ids[1])]
    client.unpin(ids[0])
    imported(client, data)  # what is there already is this store's own business
    assert client.pins() == []


def test_inboxes(client: SyncClient, quick: SyncClient) -> None:
    start = quick.save("a", execution_state={"n": 1}, session_id="s")
    handed = quick.handoff(start, "reviewer")
    imported(client, exported(quick))
    assert [one.checkpoint.checkpoint_id for one in client.inbox("reviewer")] == [handed]
    with quick.claim(handed, "reviewer") as claim:
        quick.save("reviewer", execution_state={"n": 2}, lease=claim.lease)
    data = exported(quick)
    imported(client, data)
    assert client.inbox("reviewer") == []  # somebody went on from it, there
    assert exported(client) == data
    there, here = (one.inbox("reviewer", include_claimed=True)[0] for one in (quick, client))
    assert (there.status, there.next_id, there.since) == (here.status, here.next_id, here.since)


def test_a_tag_that_stands_elsewhere_is_a_conflict(client: SyncClient, quick: SyncClient) -> None:
    quick.tag("release", quick.save("a", execution_state={"n": 1}, session_id="s"))
    client.tag("release", client.save("a", execution_state={"n": 1}, session_id="t"))
    with pytest.raises(ConflictError, match="tag 'release' is there already"):
        imported(client, exported(quick))
    assert client.session("s") is None


def test_a_leased_session_is_not_gone_on_with(client: SyncClient, quick: SyncClient) -> None:
    quick.save("a", execution_state={"n": 1}, session_id="s")
    imported(client, exported(quick))
    with quick.lease("s", holder="worker") as lease:
        quick.save("a", execution_state={"n": 2}, session_id="s", lease=lease)
        newer = exported(quick)
    assert b"worker" not in newer
    with client.lease("s", holder="here") as mine:
        with pytest.raises(ConflictError, match="leased to 'here'"):
            imported(client, newer)
        client.save("a", execution_state={"n": 3}, session_id="s", lease=mine)


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing(client: SyncClient, quick: SyncClient) -> None:
    fill(quick)
    empty = exported(client)
    report = imported(client, exported(quick), dry_run=True)
    assert report.dry_run
    assert report.imported == report.checkpoints + report.tombstones > 0
    assert exported(client) == empty


def test_a_file_is_whole_or_as_it_was(quick: SyncClient, tmp_path: Path) -> None:
    fill(quick)
    path = tmp_path / "x.holdfast"
    path.write_bytes(b"what was there")

    def interrupted(done: int, _all: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick.export(path, progress=interrupted)
    assert path.read_bytes() == b"what was there"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.holdfast"]
    quick.export(path)
    assert path.read_bytes() == exported(quick)
    assert path.stat().st_mode & 0o777 == 0o600


class Pipe(io.RawIOBase):
    """Gives a few bytes at a time, and never anything twice."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(min(size, 1000))


def test_a_pipe_can_be_read(client: SyncClient, quick: SyncClient) -> None:
    fill(quick)
    client.import_(Pipe(exported(quick)))
    equal_stores(quick, client)


def test_a_file_may_begin_in_the_middle_of_another(client: SyncClient, quick: SyncClient) -> None:
    fill(quick)
    file = io.BytesIO(b"before " + exported(quick))
    file.seek(7)
    client.import_(file)
    equal_stores(quick, client)


def test_progress_is_told_and_ends_at_its_end(quick: SyncClient, tmp_path: Path) -> None:
    fill(quick)
    told: list[tuple[int, int]] = []
    quick.export(tmp_path / "x", progress=lambda done, of_all: told.append((done, of_all)))
    there = SyncClient.memory()
    told_by_import: list[tuple[int, int]] = []
    there.import_(tmp_path / "x", progress=lambda done, of_all: told_by_import.append((done, of_all)))
    for steps in (told, told_by_import):
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)
        assert steps[-1][0] == steps[-1][1]


def test_arguments_that_can_not_be_right(quick: SyncClient, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on_conflict"):
        quick.import_(tmp_path / "x", on_conflict="overwrite")
    with pytest.raises(UsageError, match="directory"):
        quick.import_(tmp_path)
    with pytest.raises(UsageError, match="session_id"):
        quick.export(tmp_path / "x", [1])


def test_a_client_on_another_thread_of_the_loop(tmp_path: Path) -> None:
    """The event loop is free while files are read and written."""

    async def story() -> int:
        async with Client.memory() as client:
            await client.save("a", execution_state={"m": messages(3000)}, session_id="s")
            turns = 0

            async def ticking() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            ticker = asyncio.create_task(ticking())
            await client.export(tmp_path / "x")
            ticker.cancel()
            return turns

    assert asyncio.run(story()) > 10
