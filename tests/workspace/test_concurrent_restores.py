"""Restores in an event loop: without blocking it, two at once, and one that is cancelled."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path

import pytest
from restore_trees import on_disk
from stores import Store, python_process

from holdfast import Client, SyncClient
from holdfast.errors import ConflictError, LeaseHeldError, WorkspaceChangedError
from holdfast.workspace.restore import apply

pytestmark = pytest.mark.slow  # in sum: processes, terminals, waits


def fill(root: Path, text: str, count: int = 30) -> None:
    for n in range(count):
        (root / f"f{n}").write_text(f"{text} {n}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def test_everything_with_an_event_loop(store: Store, root: Path, tmp_path: Path):
    async def story(client: Client) -> None:
        workspace = client.workspace(root)
        fill(root, "one")
        first = await client.save("a", execution_state={"n": 1}, session_id="s", workspace=workspace)
        fill(root, "two")
        await client.save("a", execution_state={"n": 2}, session_id="s", workspace=workspace)
        assert len((await workspace.plan(first)).actions) == 30
        report = await workspace.restore(first, scope="both")
        assert report.changed == 30
        assert (root / "f0").read_text() == "one 0"
        assert (await client.latest(session_id="s")).execution_state == {"n": 1}
        await workspace.undo()
        assert (root / "f0").read_text() == "two 0"
        assert await workspace.interrupted() is None
        forked = await workspace.fork(first, tmp_path / "fork")
        (forked.directory / "f0").write_text("better")
        adopted = await workspace.adopt(forked)
        assert adopted.session_id == "s"
        assert (root / "f0").read_text() == "better"
        await client.close()

    asyncio.run(story(store.async_client()))


def test_two_at_once_go_one_after_the_other(memory_store: Store, root: Path):
    async def story(client: Client) -> list[object]:
        workspace = client.workspace(root)
        fill(root, "one")
        first = (await workspace.snapshot()).checkpoint_id
        fill(root, "two")
        second = (await workspace.snapshot()).checkpoint_id
        fill(root, "three")
        await workspace.snapshot()
        return await asyncio.gather(
            workspace.restore(first), workspace.restore(second), client.workspace(root).restore(first)
        )

    reports = asyncio.run(story(memory_store.async_client()))
    assert [report.changed for report in reports] == [30, 30, 30]
    assert (root / "f0").read_text() == "one 0"


def test_a_restore_that_runs_in_another_process_is_not_taken_for_one_that_was_cut_off(sqlite_store: Store, root: Path):
    code = """
        import sys
        from holdfast import SyncClient
        from holdfast.workspace.restore import apply
        def waiting(*_given):
            print("within", flush=True)
            sys.stdin.read()
        apply.Applier.put_file = waiting
        with SyncClient.open(sys.argv[1]) as client:
            client.workspace(sys.argv[2]).restore(sys.argv[3])
    """
    with sqlite_store.client() as client:
        workspace = client.workspace(root)
        fill(root, "one", 1)
        first = workspace.snapshot().checkpoint_id
        fill(root, "two", 1)
        workspace.snapshot()
        other = python_process(code, sqlite_store.url, str(root), first)
        try:
            assert other.stdout.readline() == "within\n", other.stderr.read()
            with pytest.raises(ConflictError, match=f"running, in process {other.pid}"):
                workspace.restore(first)
            with pytest.raises(ConflictError, match="running"):
                workspace.resume()
        finally:
            other.kill()
            other.communicate()
        workspace.resume()
        assert (root / "f0").read_text() == "one 0"


def test_a_restore_that_is_stopped_by_hand_puts_everything_back(quick: SyncClient, root: Path, monkeypatch):
    workspace = quick.workspace(root)
    fill(root, "one")
    first = workspace.snapshot().checkpoint_id
    fill(root, "two")
    workspace.snapshot()
    before = on_disk(root)
    put_file, done = apply.Applier.put_file, []

    def stopped(self, action, data):
        done.append(action.path)
        if len(done) == 10:
            signal.raise_signal(signal.SIGINT)
        put_file(self, action, data)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(apply.Applier, "put_file", stopped)
            with pytest.raises(KeyboardInterrupt):
                workspace.restore(first)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert on_disk(root) == before
    assert workspace.interrupted() is None


@pytest.mark.parametrize("by", ["cancel", "Ctrl-C"])
def test_a_restore_that_is_cancelled_puts_everything_back(tmp_path: Path, root: Path, monkeypatch, by: str):
    """Under `asyncio.run`, Ctrl-C is a cancellation."""
    begun, put_file = threading.Event(), apply.Applier.put_file

    def noted(self, action, data):
        put_file(self, action, data)
        begun.set()

    async def story() -> None:
        async with Client.sqlite(tmp_path / "store.db") as client:
            workspace = client.workspace(root)
            fill(root, "one", 1500)
            first = (await workspace.snapshot()).checkpoint_id
            fill(root, "two", 1500)
            await workspace.snapshot()
            with monkeypatch.context() as patched:
                patched.setattr(apply.Applier, "put_file", noted)
                restore = asyncio.create_task(workspace.restore(first))
                await asyncio.to_thread(begun.wait)
                if by == "cancel":
                    restore.cancel()
                else:
                    signal.raise_signal(signal.SIGINT)
                await restore

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(asyncio.CancelledError if by == "cancel" else KeyboardInterrupt):
            asyncio.run(story())
    finally:
        signal.signal(signal.SIGINT, previous)
    assert {(root / f"f{n}").read_text()[:3] for n in range(1500)} == {"two"}
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        assert client.workspace(root).interrupted() is None


def test_a_second_cancellation_leaves_it_to_be_finished(tmp_path: Path, root: Path, monkeypatch):
    put_file, done = apply.Applier.put_file, list[bytes]()

    async def story() -> None:
        async with Client.sqlite(tmp_path / "store.db") as client:
            workspace = client.workspace(root)
            fill(root, "one")
            first = (await workspace.snapshot()).checkpoint_id
            fill(root, "two")
            await workspace.snapshot()
            loop = asyncio.get_running_loop()

            def cancelling(self, action, data):
                put_file(self, action, data)
                done.append(action.path)
                if len(done) in (10, 40):  # of the restore, and of putting back
                    is_cancelled = threading.Event()
                    loop.call_soon_threadsafe(lambda: (restore.cancel(), loop.call_soon(is_cancelled.set)))
                    assert is_cancelled.wait(60)
                    threading.Event().wait(0.1)

            with monkeypatch.context() as patched:
                patched.setattr(apply.Applier, "put_file", cancelling)
                restore = asyncio.create_task(workspace.restore(first))
                with pytest.raises(asyncio.CancelledError):
                    await restore
            assert await workspace.interrupted() is not None
            await workspace.roll_back()

    asyncio.run(story())
    assert {(root / f"f{n}").read_text()[:3] for n in range(30)} == {"two"}


def test_an_error_of_the_callers_own_puts_everything_back(quick: SyncClient, root: Path):
    workspace = quick.workspace(root)
    fill(root, "one")
    first = workspace.snapshot().checkpoint_id
    fill(root, "two")
    workspace.snapshot()
    before = on_disk(root)

    def failing(done: int, of: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        workspace.restore(first, progress=failing)
    assert on_disk(root) == before
    assert workspace.interrupted() is None


def test_what_stands_against_the_state_is_heard_before_a_file_is_touched(quick: SyncClient, root: Path):
    workspace = quick.workspace(root)
    fill(root, "one")
    first = quick.save("a", session_id="s", workspace=workspace)
    fill(root, "two")
    quick.save("a", session_id="s", workspace=workspace)
    before = on_disk(root)
    with quick.lease("s"), pytest.raises(LeaseHeldError):
        workspace.restore(first, scope="both")
    assert on_disk(root) == before


def test_what_was_collected_can_not_vouch_for_what_is_there(sqlite_store: Store, root: Path):
    """The snapshot that a file is known by has gone: then it counts as changed, and nothing breaks."""
    with sqlite_store.client() as client:
        workspace = client.workspace(root)
        fill(root, "one", 1)
        first = client.save("a", session_id="s", workspace=workspace)
        fill(root, "two", 1)
        second = client.save("a", session_id="s", workspace=workspace)
        fill(root, "three", 1)
        workspace.restore(first, force=True)
        fill(root, "two", 1)
        (root / "more").write_text("so that it is not the very same snapshot")
        client.expire(second)
        client.gc()
        with pytest.raises(WorkspaceChangedError):
            workspace.restore(first)
        workspace.restore(first, force=True)
        assert (root / "f0").read_text() == "one 0"
        assert client.verify().ok


def test_safety_snapshots_of_a_directory_do_not_pile_up(quick: SyncClient, root: Path):
    workspace = quick.workspace(root)
    fill(root, "one", 1)
    points = [workspace.snapshot().checkpoint_id]
    fill(root, "two", 1)
    points.append(workspace.snapshot().checkpoint_id)
    for n in range(30):
        workspace.restore(points[n % 2])
    (root / "f0").write_text("by hand")
    for _ in range(10):
        with pytest.raises(WorkspaceChangedError):
            workspace.restore(points[0])
    workspace.restore(points[0], force=True)
    session = f"restores of {root}"
    assert len(quick.pins(session)) == 20
    assert len(quick.timeline(session_id=session, limit=None)) <= 31  # 20 that are pinned, and the newest that are not
    workspace.undo()
    assert (root / "f0").read_text() == "by hand"
