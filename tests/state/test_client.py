"""Using a client: event loops, threads, processes, cancellation, closing, and what importing costs."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from stores import Recorder, Store, messages, python

from holdfast import Client, StoreError, SyncClient, UsageError


def lines_up(client: SyncClient, session: str, count: int) -> None:
    """All saves of the session are there, one after the other."""
    line = client.timeline(session_id=session, limit=10 * count)
    assert [entry.sequence for entry in line] == list(range(count, 0, -1))
    assert [entry.parent_id for entry in line] == [*(entry.checkpoint_id for entry in line[1:]), None]


class TestEventLoops:
    def test_without_a_context_manager_the_program_ends(self, disk_store: Store):
        done = python(
            """
            import asyncio, sys
            from holdfast import Client
            client = Client.open(sys.argv[1])
            first = asyncio.run(client.save("a", session_id="s", execution_state={"x": 1}))
            asyncio.run(client.save("a", session_id="s", execution_state={"x": 2}))
            print(asyncio.run(client.restore(first)).execution_state)
            """,
            disk_store.url,
            timeout=240,
        )
        assert done.stdout == "{'x': 1}\n"
        assert len(disk_store.client().timeline(session_id="s")) == 2

    def test_one_client_in_two_loops_one_after_the_other(self, store: Store):
        client = store.async_client()
        for step in range(3):
            asyncio.run(client.save("a", session_id="s", execution_state={"step": step}))
        assert asyncio.run(client.latest(session_id="s")).execution_state == {"step": 2}
        lines_up(store.client(), "s", 3)

    def test_one_client_in_two_loops_at_once(self, store: Store):
        client = store.async_client()

        async def saves() -> None:
            await asyncio.gather(*(client.save("a", session_id="s", append={"+m": [1]}) for _ in range(10)))

        threads = [threading.Thread(target=asyncio.run, args=(saves(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lines_up(store.client(), "s", 30)
        assert store.client().latest(session_id="s").execution_state == {"m": [1] * 30}

    def test_the_loop_is_not_blocked_while_the_store_is(self, memory_store: Store):
        recorder = Recorder(memory_store.backend())
        client = Client(recorder)
        gate = threading.Event()

        async def scenario() -> int:
            recorder.before_commit = lambda commits: gate.wait(240)
            saving = asyncio.create_task(client.save("a"))
            turns = 0
            while turns < 100:
                await asyncio.sleep(0)
                turns += 1
            assert not saving.done()
            gate.set()
            await saving
            return turns

        assert asyncio.run(scenario()) == 100

    def test_the_sync_client_works_inside_a_running_loop(self, store: Store):
        async def scenario() -> str:
            return store.client().save("a", session_id="s")

        assert store.client().restore(asyncio.run(scenario())).session_id == "s"

    def test_closing_ends_the_thread(self):
        before = set(threading.enumerate())

        async def scenario() -> None:
            for _ in range(5):
                async with Client.memory() as client:
                    await client.save("a")

        asyncio.run(scenario())
        for thread in set(threading.enumerate()) - before:
            thread.join(timeout=240)
        assert set(threading.enumerate()) <= before


class TestConcurrency:
    def test_fifty_first_saves_at_once(self, store: Store):
        async def scenario() -> list[str]:
            client = store.async_client()
            return await asyncio.gather(
                *(client.save("a", session_id=f"s{i}", execution_state={"m": messages(10, i)}) for i in range(50))
            )

        saved = asyncio.run(scenario())
        client = store.client()
        for i, id_ in enumerate(saved):
            assert client.restore(id_).execution_state == {"m": messages(10, i)}

    def test_two_hundred_saves_on_one_session_are_one_line(self, store: Store):
        async def scenario() -> list[str]:
            client = store.async_client()
            return await asyncio.gather(
                *(client.save("a", session_id="s", append={"+m": [i]}, context={"i": i}) for i in range(200))
            )

        saved = asyncio.run(scenario())
        client = store.client()
        assert len(set(saved)) == 200
        lines_up(client, "s", 200)
        assert sorted(client.latest(session_id="s").execution_state["m"]) == list(range(200))

    def test_concurrent_first_saves_do_not_cost_the_square_of_their_number(self, memory_store: Store):
        recorder = Recorder(memory_store.backend())
        client = Client(recorder)

        async def scenario() -> None:
            await asyncio.gather(*(client.save("a", session_id=f"s{i}") for i in range(200)))

        asyncio.run(scenario())
        assert len(recorder.commits) < 1000

    def test_many_concurrent_saves_of_one_process_never_give_up(self, memory_store: Store):
        client = memory_store.async_client()

        async def scenario() -> None:
            await asyncio.gather(*(client.save("a", session_id="s") for _ in range(500)))

        asyncio.run(scenario())
        lines_up(memory_store.client(), "s", 500)

    def test_threads_may_share_a_sync_client(self, store: Store):
        client = store.client()
        failures = []

        def work(number: int) -> None:
            try:
                for i in range(8):
                    client.save("a", session_id="shared", append={"+m": [(number, i)]})
                    own = client.save("a", session_id=f"own{number}", execution_state={"m": messages(12 + i, number)})
                    assert client.restore(own).execution_state == {"m": messages(12 + i, number)}
            except BaseException as error:
                failures.append(error)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert failures == []
        lines_up(client, "shared", 64)
        expected = sorted((number, i) for number in range(8) for i in range(8))
        assert sorted(client.latest(session_id="shared").execution_state["m"]) == expected
        for number in range(8):
            lines_up(client, f"own{number}", 8)
        assert client.verify().ok

    def test_threads_that_commit_at_the_same_time_are_committed_together(self, memory_store: Store):
        client, recorder = memory_store.recorded()
        client.save("a")
        recorder.forget()
        first_is_in, others_wait = threading.Event(), threading.Event()

        def hold(commits) -> None:
            recorder.before_commit = None
            first_is_in.set()
            others_wait.wait(240)

        recorder.before_commit = hold
        threads = [threading.Thread(target=client.save, args=("a",), kwargs={"session_id": f"s{i}"}) for i in range(6)]
        threads[0].start()
        assert first_is_in.wait(240)
        for thread in threads[1:]:
            thread.start()
        queue, deadline = client._ctx.backend._queue, time.monotonic() + 240
        while queue.qsize() < 5 and time.monotonic() < deadline:
            time.sleep(0.001)
        others_wait.set()
        for thread in threads:
            thread.join()
        assert recorder.calls["commit_all"] == 2
        assert len(recorder.commits) == 6


class TestCancellation:
    @pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 30])
    def test_in_the_middle_of_a_save_leaves_it_whole_or_absent(self, store: Store, turns: int):
        async def scenario() -> None:
            client = store.async_client()
            await client.save("a", session_id="s", execution_state={"m": messages(20)})
            task = asyncio.create_task(client.save("a", session_id="s", execution_state={"m": messages(21)}))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.save("b", session_id="s", append={"m": ["end"]})

        asyncio.run(scenario())
        client = store.client()
        line = client.timeline(session_id="s")
        assert len(line) in (2, 3)
        lines_up(client, "s", len(line))
        assert client.restore(line[0].checkpoint_id).execution_state == {"m": [*messages(18 + len(line)), "end"]}
        assert client.verify().ok

    def test_of_one_does_not_touch_its_neighbours(self, memory_store: Store):
        async def scenario() -> int:
            client = memory_store.async_client()
            await client.save("a", session_id="s")
            tasks = [asyncio.create_task(client.save("a", session_id="s", context={"i": i})) for i in range(20)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, str) for i, result in enumerate(done) if i % 3)
            return len({result for result in done if isinstance(result, str)})

        acknowledged = asyncio.run(scenario())
        line = memory_store.client().timeline(session_id="s")
        assert acknowledged + 1 <= len(line) <= 21
        lines_up(memory_store.client(), "s", len(line))


class TestClosing:
    def test_use_after_close_is_a_store_error(self, store: Store):
        client = store.client()
        saved = client.save("a", session_id="s")
        client.close()
        client.close()
        for call in (
            lambda: client.save("a"),
            lambda: client.save("a", session_id="s"),
            lambda: client.restore(saved),
            lambda: client.timeline(session_id="s"),
            lambda: client.expire(saved),
            client.sessions,
            client.gc,
            client.stats,
        ):
            with pytest.raises(StoreError, match="closed"):
                call()

    def test_use_after_async_close_is_a_store_error(self, store: Store):
        async def scenario() -> None:
            async with store.async_client() as client:
                saved = await client.save("a", session_id="s")
            await client.close()
            with pytest.raises(StoreError, match="closed"):
                await client.restore(saved)
            with pytest.raises(StoreError, match="closed"):
                await client.save("a", session_id="s")

        asyncio.run(scenario())

    def test_what_was_saved_is_there_in_the_next_client(self, disk_store: Store):
        with disk_store.client() as client:
            saved = client.save("a", execution_state={"m": messages(30)})
        assert disk_store.client().restore(saved).execution_state == {"m": messages(30)}


class TestForkedProcesses:
    def in_child(self, work) -> str:
        """What `work` returns, or the error it raised, from a forked child."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                answer = work()
            except BaseException as error:
                answer = f"{type(error).__name__}: {error}"
            os.write(writing, str(answer).encode()[:4000])
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        return answer

    def test_a_child_may_use_its_parents_sync_client(self, disk_store: Store):
        client = disk_store.client()
        client.save("parent", session_id="s", execution_state={"m": messages(20)})
        answer = self.in_child(lambda: client.save("child", session_id="s", append={"m": ["child"]}))
        last = client.save("parent", session_id="s", append={"m": ["parent"]})
        assert client.restore(answer).agent_id == "child"
        assert client.restore(last).execution_state == {"m": [*messages(20), "child", "parent"]}
        lines_up(client, "s", 3)

    def test_a_child_may_use_its_parents_async_client(self, disk_store: Store):
        client = disk_store.async_client()
        asyncio.run(client.save("parent", session_id="s", execution_state={"m": messages(20)}))
        answer = self.in_child(lambda: asyncio.run(client.save("child", session_id="s", append={"m": ["child"]})))
        last = asyncio.run(client.save("parent", session_id="s", append={"m": ["parent"]}))
        reader = disk_store.client()
        assert reader.restore(answer).agent_id == "child"
        assert reader.restore(last).execution_state == {"m": [*messages(20), "child", "parent"]}

    def test_a_childs_saves_outlive_the_parents_client(self, disk_store: Store):
        """The parent closes while the child goes on: what the child was acknowledged is there for everybody."""
        client = disk_store.client()
        client.save("parent", session_id="s")
        from_child, to_parent = os.pipe()
        from_parent, to_child = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                client.save("child", session_id="s")
                os.write(to_parent, b".")
                os.read(from_parent, 1)
                answer = client.save("child", session_id="s")
            except BaseException as error:
                answer = repr(error)
            os.write(to_parent, answer.encode())
            os._exit(0)
        assert os.read(from_child, 1) == b"."
        client.close()
        os.write(to_child, b".")
        acknowledged = os.read(from_child, 2000).decode()
        os.waitpid(child, 0)
        for end in (from_child, to_parent, from_parent, to_child):
            os.close(end)
        elsewhere = python(
            """
            import sys
            from holdfast import SyncClient
            print([entry.checkpoint_id for entry in SyncClient.open(sys.argv[1]).timeline(session_id="s")])
            """,
            disk_store.url,
        )
        assert acknowledged in elsewhere.stdout

    def test_a_child_does_not_use_up_the_numbers_of_its_parent(self, sqlite_store: Store):
        """Both reserve their own numbers for logs, however many the parent has used since."""
        client = sqlite_store.client()
        client.save("a", session_id="first", execution_state={"m": messages(10)})

        def work() -> str:
            for i in range(230):
                client.save("a", session_id=f"child{i}", execution_state={"m": messages(10)})
            return "done"

        assert self.in_child(work) == "done"
        saved = client.save("a", session_id="parent", execution_state={"m": messages(10)})
        assert client.restore(saved).execution_state == {"m": messages(10)}


class TestOpening:
    def test_by_url(self, tmp_path):
        for url in ("memory://", f"sqlite:///{tmp_path}/a/b/store.db", f"file://{tmp_path}/c/d"):
            with SyncClient.open(url) as client:
                assert client.restore(client.save("a", execution_state={"x": 1})).execution_state == {"x": 1}
        assert (tmp_path / "a/b/store.db").stat().st_mode & 0o777 == 0o600

    def test_of_what_is_no_url_or_unknown(self):
        with pytest.raises(UsageError, match="no scheme"):
            SyncClient.open("store.db")
        with pytest.raises(UsageError, match="sqlite"):
            SyncClient.open("mongodb://host/db")
        with pytest.raises(UsageError, match="options"):
            SyncClient.open("memory://", durability="fast")
        with pytest.raises(UsageError, match="not by a PosixPath"):
            SyncClient.open(Path("store.db"))

    def test_options_are_no_part_of_a_files_name(self, tmp_path):
        with pytest.raises(UsageError, match="durability='fast'"):
            SyncClient.open(f"sqlite:///{tmp_path}/store.db?durability=fast")
        assert list(tmp_path.iterdir()) == []
        with SyncClient.sqlite(tmp_path / "why?.db") as client:
            client.save("a")
        assert (tmp_path / "why?.db").exists()

    def test_of_a_directory_as_a_file_says_so(self, tmp_path):
        with pytest.raises(StoreError, match="it is a directory"), SyncClient.sqlite(tmp_path) as client:
            client.save("a")

    def test_plain_sql_sees_the_headers(self, tmp_path):
        with SyncClient.sqlite(tmp_path / "store.db") as client:
            first = client.save("writer", session_id="s", step_name="read")
            second = client.save("writer", session_id="s", step_name="check", framework="langgraph")
            with closing(sqlite3.connect(tmp_path / "store.db")) as plain:
                columns = "checkpoint_id, session_id, sequence, agent_id, framework, step_index, step_name, parent_id"
                rows = plain.execute(f"SELECT {columns} FROM checkpoint ORDER BY sequence").fetchall()
        assert rows == [
            (first, "s", 1, "writer", "custom", 0, "read", None),
            (second, "s", 2, "writer", "langgraph", 1, "check", first),
        ]

    def test_from_the_environment(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/env.db")
        with SyncClient.from_env() as client:
            client.save("a")
        assert (tmp_path / "env.db").exists()

    def test_by_default_is_one_file_in_a_directory_that_git_ignores(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with SyncClient.sqlite() as client:
            client.save("a")
        assert (tmp_path / ".holdfast/store.db").exists()
        assert (tmp_path / ".holdfast/.gitignore").read_text().strip().endswith("*")


def public_methods(cls: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(cls, callable)
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_methods_with_the_same_signatures():
    sync, awaited = public_methods(SyncClient), public_methods(Client)
    assert set(sync) == set(awaited)
    assert len(sync) > 20
    for name, signature in awaited.items():
        assert list(sync[name].parameters.values()) == list(signature.parameters.values()), name
        if name not in (
            "as_store",
            "lease",
            "claim",
            "events",
            "messages",
            "resume_as",
            "run",
            "subscribe",
            "workspace",
        ):  # each has its own kind
            assert sync[name].return_annotation == signature.return_annotation, name
            assert inspect.iscoroutinefunction(getattr(Client, name)) or isinstance(
                inspect.getattr_static(Client, name), classmethod
            )


def test_the_constructors_take_the_same_arguments():
    assert inspect.signature(SyncClient.__init__) == inspect.signature(Client.__init__)


def test_importing_holdfast_imports_no_driver_framework_or_command_line():
    done = python("import sys, json, holdfast; print(json.dumps(sorted(sys.modules)))")
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert "holdfast" in loaded
    unwanted = {"click", "rich", "langgraph", "langchain_core", "redis", "psycopg", "pydantic", "pydantic_core", "attr",
                "attrs", "starlette", "fastapi", "sqlite3", "_sqlite3", "numpy", "hypothesis", "pytest"}  # fmt: skip
    assert loaded & unwanted == set()


def test_what_a_client_needs_is_imported_when_one_is_opened():
    done = python("import sys, json; from holdfast import Client, SyncClient; print(json.dumps(sorted(sys.modules)))")
    loaded = set(json.loads(done.stdout))
    assert "holdfast.client" in loaded
    behind = {"holdfast.backends.port", "holdfast.codec.codec", "holdfast.operations.save", "ormsgpack", "zstandard",
              "hashlib", "uuid", "decimal", "fractions"}  # fmt: skip
    assert loaded & behind == set()


FIRST_CALLS = """
import asyncio, json, sys
from holdfast import Client

async def main():
    async with Client.sqlite(sys.argv[1]) as client:
        before = set(sys.modules)
        state = {"messages": [{"text": "words " * 99, "n": n} for n in range(40)]}
        checkpoint_id = await client.save(agent_id="a", execution_state=state, session_id="s")
        await client.save(agent_id="a", append={"messages": [{"n": 40}]}, session_id="s")
        await client.restore(checkpoint_id)
        print(json.dumps(sorted(set(sys.modules) - before)))

asyncio.run(main())
"""


def test_the_first_save_and_restore_import_nothing(tmp_path: Path):
    done = python(FIRST_CALLS, str(tmp_path / "store.db"))
    assert json.loads(done.stdout) == []
