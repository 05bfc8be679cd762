"""Forks and replays that are not named: a readable name, which no two of them share."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from stores import Store

from holdfast import Client, SyncClient
from holdfast.operations.session_names import find_stem, free_number

pytestmark = pytest.mark.every_store


@pytest.mark.parametrize(
    ("session", "begin"),
    [
        ("run-001", "run-001"),
        ("run-001-fork-12", "run-001"),
        ("run-001-replay-1", "run-001"),
        ("-fork-1", "-fork-1"),
        ("workspace /srv/ann/project", "project"),
        ("restores of /srv/ann/project", "project"),
        ("workspace", "workspace"),
        ("workspace of mine", "workspace of mine"),
        ("x" * 5000, "x" * 200),
    ],
)
def test_what_a_name_begins_with(session: str, begin: str) -> None:
    assert find_stem(session) == begin


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 1000])
def test_the_number_after_those_that_are_used(count: int) -> None:
    asked = []

    async def is_used(name: str) -> bool:
        asked.append(name)
        return int(name.removeprefix("s-")) <= count

    assert asyncio.run(free_number("s-", is_used)) == f"s-{count + 1}"
    assert len(asked) < 25


def test_forks_are_numbered(client: SyncClient) -> None:
    id_ = client.save("a", session_id="run-001", execution_state={"n": 1})
    assert client.fork(id_).session_id == "run-001-fork-1"
    assert client.fork("run-001-fork-1").session_id == "run-001-fork-2"
    assert [one.session_id for one in client.fork(id_, set=[{"n": 2}, {"n": 3}])] == [
        "run-001-fork-3",
        "run-001-fork-4",
    ]
    client.save("a", session_id="run-001-fork-5", execution_state={"n": 9})
    assert client.fork(id_).session_id == "run-001-fork-6"
    assert client.fork(id_, "mine").session_id == "mine"


def test_the_name_of_a_fork_that_was_undone_is_not_given_again(client: SyncClient) -> None:
    id_ = client.save("a", session_id="s", execution_state={"n": 1})
    client.fork(id_)
    client.undo()
    assert client.fork(id_).session_id == "s-fork-2"


def test_a_repetition_is_the_same_fork(client: SyncClient) -> None:
    id_ = client.save("a", session_id="s", execution_state={"n": 1})
    given = client.fork(id_).checkpoint_id
    assert client.fork(id_, new_id=given).session_id == "s-fork-1"


def test_replays_are_numbered(client: SyncClient) -> None:
    def program(run: Any) -> int:
        return run.step("count", len, "abc")

    with client.run("run-001", agent_id="a") as run:
        program(run)
    names = [client.replay("run-001", program).session_id for _ in range(2)]
    assert names == ["run-001-replay-1", "run-001-replay-2"]
    assert client.replay("run-001-replay-1", program).session_id == "run-001-replay-3"


def test_a_directory_is_forked(client: SyncClient, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "file").write_text("one")
    workspace = client.workspace(tmp_path / "project")
    taken = workspace.snapshot("first").checkpoint_id
    assert workspace.fork(taken, tmp_path / "second").session_id == "project-fork-1"


def test_many_at_once_have_names_of_their_own(store: Store) -> None:
    id_ = store.client().save("a", session_id="s", execution_state={"n": 1})
    names: list[str] = []

    def fork(client: SyncClient) -> None:
        names.extend(client.fork(id_).session_id for _ in range(5))

    threads = [threading.Thread(target=fork, args=(store.client(),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == sorted(f"s-fork-{number}" for number in range(1, 31))


def test_many_tasks_at_once(disk_store: Store) -> None:
    async def fork() -> list[str]:
        async with Client.open(disk_store.url) as client:
            id_ = await client.save("a", session_id="s", execution_state={"n": 1})
            return [one.session_id for one in await asyncio.gather(*(client.fork(id_) for _ in range(12)))]

    assert sorted(asyncio.run(fork())) == sorted(f"s-fork-{number}" for number in range(1, 13))
