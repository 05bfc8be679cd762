"""A silent server: every call ends by its timeout and reports what is known of its outcome."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from open_transaction import connected, opened, schema_of
from servers.postgres import Postgres, frozen
from servers.proxy import Proxy
from servers.running import ServerUnavailable
from servers.writers import until
from stores import messages

from holdfast import Client, StoreError, SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.postgres import open_url, pool, sync_connection
from holdfast.backends.postgres.notify import NotifyListener, ThreadNotifications

pytestmark = [pytest.mark.servers, pytest.mark.slow]
KINDS = ["thread", "loop"]
TIMEOUT = 2.0
MUCH_LATER = 60.0  # on a busy machine; without a timeout it would be never


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    try:
        postgres = Postgres()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield postgres
    postgres.stop()


@pytest.fixture
def url(server: Postgres) -> str:
    """A store that is there: to make one may take longer than the timeout."""
    made = f"{server.dsn}?schema=s{time.monotonic_ns()}"
    with SyncClient.open(made) as client:
        client.sessions()
    return made


def leave_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no commit be announced: an announcement under way would have the idle connection."""
    for kind in (NotifyListener, ThreadNotifications):
        monkeypatch.setattr(kind, "announce", lambda _: None)


def note_loans(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The connections that are taken from now on, of either kind."""
    lent: list[object] = []
    for module in (pool, sync_connection):
        enter = module._Loan.__aenter__

        async def note(loan: Any, enter: Callable[[Any], Any] = enter) -> object:
            lent.append(await enter(loan))
            return lent[-1]

        monkeypatch.setattr(module._Loan, "__aenter__", note)
    return lent


def error_of(call: Callable[[], Any]) -> StoreError:
    """What a call raises, soon."""
    began = time.monotonic()
    with pytest.raises(StoreError) as caught:
        call()
    assert time.monotonic() - began < MUCH_LATER
    return caught.value


# -- a server that is stopped
# --------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_server_is_noticed_by_every_call(
    server: Postgres, url: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    leave_idle_connections(monkeypatch)
    with opened(url, kind, timeout=TIMEOUT) as client, opened(url, kind, timeout=TIMEOUT) as unused:
        saved = client.save("a", session_id="s", execution_state={"messages": messages(20)})
        with ThreadPoolExecutor(4) as threads, opened(url, kind, timeout=TIMEOUT) as other:
            other.latest(session_id="s")
            stream = iter(other.events(after="start"))
            assert next(stream).checkpoint.checkpoint_id == saved
            lent = note_loans(monkeypatch)
            with frozen(server):
                saving = threads.submit(error_of, lambda: client.save("a", session_id="s"))
                until(lambda: lent, "the loan of the idle connection: the reader needs a new one")
                following = threads.submit(error_of, lambda: next(stream))
                opening = threads.submit(error_of, unused.sessions)
                reading = threads.submit(error_of, lambda: client.restore(saved))
                errors = [future.result() for future in (saving, following, opening, reading)]
        for error in errors:
            assert (
                f"no answer within {TIMEOUT:g} s" in str(error)
                or "timeout" in str(error)
                or "no connection within" in str(error)
            )
        lost = errors[0]
        assert "may have been carried out" in str(lost)
        assert lost.checkpoint_id
        assert client.save("a", session_id="s", checkpoint_id=lost.checkpoint_id) == lost.checkpoint_id
        assert len(client.timeline(session_id="s")) == 2


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_the_time_to_cancel_is_part_of_the_timeout(
    server: Postgres, url: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    leave_idle_connections(monkeypatch)
    with opened(url, kind, timeout=8) as client:
        client.save("a", session_id="s")
        with frozen(server):
            began = time.monotonic()
            assert "no answer within 8 s" in str(error_of(lambda: client.save("a", session_id="s")))
            assert 7.5 < time.monotonic() - began < 15.5  # with a time of its own to cancel it would be 16


@pytest.mark.timeout(120)
def test_a_stopped_server_is_noticed_by_tasks(server: Postgres, url: str):
    async def use() -> None:
        async with Client.open(url, timeout=TIMEOUT) as client:
            await asyncio.gather(*(client.save("a", session_id=f"s{n}") for n in range(8)))
            began = time.monotonic()
            with frozen(server):
                errors = await asyncio.gather(
                    *(client.save("a", session_id=f"s{n}") for n in range(8)), client.latest(session_id="s1"),
                    return_exceptions=True,
                )  # fmt: skip
            assert time.monotonic() - began < MUCH_LATER
            assert all(isinstance(error, StoreError) for error in errors)
            assert await client.latest(session_id="s1")

    asyncio.run(use())


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_a_network_that_swallows_everything(server: Postgres, url: str, kind: str, monkeypatch: pytest.MonkeyPatch):
    leave_idle_connections(monkeypatch)
    proxy = Proxy(server.port)
    through = url.replace(f":{server.port}/", f":{proxy.port}/")
    with opened(through, kind, timeout=TIMEOUT) as client, opened(through, kind, timeout=TIMEOUT) as late:
        large = {"data": os.urandom(20_000_000)}  # more than fits into all buffers
        client.save("a", session_id="s")
        proxy.swallow()
        assert "may have been carried out" in str(
            error_of(lambda: client.save("a", session_id="s", execution_state=large))
        )
        assert "can't be reached" in str(error_of(lambda: client.latest(session_id="s")))
        assert "can't be reached" in str(error_of(late.sessions))
    proxy.stop()
    with opened(url, kind) as client:
        assert len(client.timeline(session_id="s")) == 1


# -- a lock of another program
# ---------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_another_program_has_locked(url: str, kind: str):
    with opened(url, kind, timeout=TIMEOUT) as client:
        first = client.save("a", session_id="s")
        client.save("a", session_id="other")
        with connected(url) as holder:
            holder.execute(f"SELECT * FROM {schema_of(url)}.rows WHERE space = 'head' FOR UPDATE".encode())
            error = error_of(lambda: client.save("a", session_id="s"))
            assert "lock" in str(error)
            assert "Nothing was changed" in str(error)
            assert client.latest(session_id="s").checkpoint_id == first
        assert client.save("a", session_id="s", checkpoint_id=error.checkpoint_id) == error.checkpoint_id


@pytest.mark.timeout(120)
def test_a_locked_row_does_not_add_up_for_a_batch(url: str):
    async def use() -> None:
        async with Client.open(url, timeout=TIMEOUT) as client:
            await asyncio.gather(*(client.save("a", session_id=f"s{n}") for n in range(48)))
            with connected(url) as holder:
                holder.execute(f"LOCK TABLE {schema_of(url)}.rows".encode())
                began = time.monotonic()
                errors = await asyncio.gather(
                    *(client.save("a", session_id=f"s{n}") for n in range(48)), return_exceptions=True
                )
                assert time.monotonic() - began < MUCH_LATER / 2
            assert all(isinstance(error, StoreError) for error in errors)
            assert len({error.checkpoint_id for error in errors if isinstance(error, StoreError)}) == 48

    asyncio.run(use())


@pytest.mark.timeout(120)
def test_opening_beside_a_locked_schema(url: str):
    with SyncClient.open(url) as client:
        client.save("a", session_id="s")
    with connected(url) as holder, SyncClient.open(url, timeout=TIMEOUT) as late:
        holder.execute(f"LOCK TABLE {schema_of(url)}.store".encode())
        assert "lock" in str(error_of(lambda: late.latest(session_id="s")))
    with SyncClient.open(url, timeout=TIMEOUT) as client:
        assert client.latest(session_id="s")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_long_work_is_waited_for_as_long_as_the_server_is_at_it(url: str, kind: str):
    backend = open_url(url, timeout=TIMEOUT)
    asked = b"SELECT 1 FROM pg_sleep(4)"

    async def use(store: Any) -> None:
        async with store._connection() as connection:
            with store._taking_long(connection):
                assert await connection.fetch(asked) == [(1,)]
                with connected(url) as holder:
                    holder.execute(f"LOCK TABLE {schema_of(url)}.rows".encode())
                    with pytest.raises(psycopg.errors.QueryCanceled):
                        await connection.fetch(f"SELECT count(*) FROM {schema_of(url)}.rows".encode())
            with pytest.raises(psycopg.errors.QueryCanceled):
                await connection.fetch(asked)
        await store.close()

    if kind == "thread":
        run_inline(use(backend.without_loop()))
    else:
        asyncio.run(use(backend))


# -- a standby that does not confirm
# ---------------------------------------------------------------------------------------


def set_standbys(server: Postgres, names: str) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
        connection.execute("SELECT pg_reload_conf()")
    until(lambda: shown(server, "synchronous_standby_names") == names, "the setting")
    if names:  # the checkpointer, which tells commits to wait, reads it a moment later
        until(lambda: has_to_wait(server), "the first commit that waits")


def has_to_wait(server: Postgres) -> bool:
    """Whether a commit of our own waits for the standby; it is cancelled then."""

    def commit() -> None:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS public.waits; CREATE TABLE public.waits ()")

    with ThreadPoolExecutor(1) as threads:
        committing = threads.submit(commit)
        until(lambda: committing.done() or waiting_for_standby(server), "the end of the commit, or its wait")
        is_waiting = not committing.done()
        cancel_all(server)
        committing.result()
    return is_waiting


def shown(server: Postgres, setting: str) -> str:
    with psycopg.connect(server.dsn) as connection:
        found = connection.execute(f"SHOW {setting}".encode()).fetchone()
    assert found is not None
    return str(found[0])


def waiting_for_standby(server: Postgres) -> list[int]:
    with psycopg.connect(server.dsn) as connection:
        found = connection.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchall()
    return [pid for (pid,) in found]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_wait_for_the_standby_is_an_unclear_outcome(server: Postgres, url: str, kind: str):
    with opened(url, kind) as client, ThreadPoolExecutor(3) as threads:
        for name in ("one", "two"):
            client.save("a", session_id=name)
        set_standbys(server, "absent")
        try:
            plain = threads.submit(error_of, lambda: client.save("a", session_id="one"))
            until(lambda: waiting_for_standby(server), "the wait of the save")
            cancel_all(server)
            error = plain.result()
            assert "standby" in str(error)
            assert "not known" in str(error)
            assert error.checkpoint_id
            again = threads.submit(
                error_of, lambda: client.save("a", session_id="one", checkpoint_id=error.checkpoint_id)
            )
            until(lambda: waiting_for_standby(server), "the wait of the second attempt")
            cancel_all(server)
            assert "standby" in str(again.result())
            pin = threads.submit(error_of, lambda: client.pin(str(error.checkpoint_id)))
            until(lambda: waiting_for_standby(server), "the wait of the pin")
            cancel_all(server)
            assert "standby" in str(pin.result())
        finally:
            set_standbys(server, "")
        assert client.save("a", session_id="one", checkpoint_id=error.checkpoint_id) == error.checkpoint_id
        assert len(client.timeline(session_id="one")) == 2


def cancel_all(server: Postgres) -> None:
    with psycopg.connect(server.dsn) as connection:
        for pid in waiting_for_standby(server):
            connection.execute("SELECT pg_cancel_backend(%s)", (pid,))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_a_standby_that_never_confirms_ends_the_wait_by_the_timeout(server: Postgres, url: str, kind: str):
    with opened(url, kind, timeout=TIMEOUT) as client:
        client.save("a", session_id="s")
        set_standbys(server, "absent")
        try:
            error = error_of(lambda: client.save("a", session_id="s"))
        finally:
            set_standbys(server, "")
        assert "standby" in str(error)
        assert client.save("a", session_id="s", checkpoint_id=error.checkpoint_id) == error.checkpoint_id
