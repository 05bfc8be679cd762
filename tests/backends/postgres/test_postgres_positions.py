"""Positions: a transaction that commits late is waited for, never skipped; and trees don't wait for each other."""

from __future__ import annotations

import asyncio
import threading

import pytest
from open_transaction import OpenTransaction, connected, schema_of

from holdfast import SyncClient
from holdfast.backends.port import Commit
from holdfast.backends.postgres import open_url
from holdfast.backends.postgres.schema import quote_name
from holdfast.testing.harness import OTHER_TREE, TREE, record

pytestmark = pytest.mark.servers

FIRST = Commit(TREE, record(1, session=b"one"))
SECOND = Commit(OTHER_TREE, record(2, session=b"two", tree=OTHER_TREE))


def sessions(changes):
    return [change.record.session for change in changes]


def test_who_commits_late_is_waited_for(postgres_url):
    async def use():
        backend = open_url(postgres_url)
        await backend.setup()
        late = OpenTransaction(postgres_url)
        late.write([FIRST])
        assert await backend.commit_all([SECOND]) == [None]
        assert [bool(found) for found in await backend.records([SECOND.record.id])] == [True]  # it is there…
        assert await backend.changes(0, 9) == []  # …but who follows would miss the one that is still to come
        assert await backend.last_change() == 0
        late.commit()
        found = await backend.changes(0, 9)
        assert sessions(found) == [b"one", b"two"]
        assert await backend.last_change() == found[-1].position
        await backend.close()

    asyncio.run(use())


def test_who_gives_up_is_not_waited_for_any_longer(postgres_url):
    async def use():
        backend = open_url(postgres_url)
        await backend.setup()
        late = OpenTransaction(postgres_url)
        late.write([FIRST])
        assert await backend.commit_all([SECOND]) == [None]
        late.rollback()
        assert sessions(await backend.changes(0, 9)) == [b"two"]
        await backend.close()

    asyncio.run(use())


def test_who_waited_for_a_tree_comes_after_whom_it_waited_for(postgres_url):
    """Two trees in one transaction, of which the second is held: no number must be drawn before both are free."""

    async def use():
        backend = open_url(postgres_url)
        await backend.setup()
        commits = sorted((FIRST, SECOND), key=lambda commit: locks_of(commit, postgres_url))
        held = commits[-1]
        before = Commit(held.tree, record(7, session=b"before", tree=held.tree))
        holder = OpenTransaction(postgres_url)
        holder.lock([held])
        waiting = asyncio.ensure_future(backend.commit_all(commits))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        holder.write([before])
        holder.commit()
        assert await waiting == [None, None]
        assert sessions(await backend.changes(0, 9)) == [b"before", *(commit.record.session for commit in commits)]
        await backend.close()

    asyncio.run(use())


def locks_of(commit, url):
    from holdfast.backends.postgres.commit import batches

    return next(batches([commit], schema_of(url)))[1]


def test_trees_do_not_wait_for_each_other(postgres_url):
    async def use():
        backend = open_url(postgres_url)
        await backend.setup()
        holder = OpenTransaction(postgres_url)
        holder.write([FIRST])
        assert await asyncio.wait_for(backend.commit_all([SECOND]), 240) == [None]
        same_tree = asyncio.ensure_future(backend.commit_all([Commit(TREE, record(3, session=b"three"))]))
        await asyncio.sleep(0.3)
        assert not same_tree.done()  # the control: the lock that was held is one
        holder.commit()
        assert await same_tree == [None]
        await backend.close()

    asyncio.run(use())


def test_positions_go_on_after_a_dump_was_loaded_into_a_server_with_lower_transaction_numbers(postgres_url):
    client = SyncClient.open(postgres_url)
    client.save("a", session_id="s")
    client.close()
    with connected(postgres_url) as connection:
        # As if everything had been written by a server that was a billion transactions older.
        schema = quote_name(schema_of(postgres_url))
        connection.execute(f"UPDATE {schema}.record SET position = position + (1000000000::bigint << 20)".encode())
        connection.execute(f"UPDATE {schema}.store SET base_transaction = base_transaction + 1000000000".encode())

    async def follow():
        backend = open_url(postgres_url)
        (old,) = await backend.changes(0, 9)
        assert await backend.commit_all([FIRST]) == [None]
        assert sessions(await backend.changes(old.position, 9)) == [b"one"]
        await backend.close()

    asyncio.run(follow())


def test_following_while_workers_write_in_many_trees(postgres_url):
    """Workers with connections of their own, each in trees of its own, some commits held back: nothing is missed."""
    writers, saves = 6, 15
    done = threading.Event()
    met: list[str] = []
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with SyncClient.open(postgres_url) as client:
                for step in range(saves):
                    client.save("a", session_id=f"{number}-{step % 3}", execution_state={"step": step})
        except BaseException as error:
            failed.append(error)

    def follow() -> None:
        async def read() -> None:
            backend = open_url(postgres_url)
            after = 0
            while True:
                was_done = done.is_set()
                page = await backend.changes(after, 5)
                met.extend(change.record.id.hex() for change in page)
                after = page[-1].position if page else after
                if was_done and not page:
                    break
            await backend.close()

        asyncio.run(read())

    reader = threading.Thread(target=follow)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    reader.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert failed == []
    assert len(met) == len(set(met)) == writers * saves
