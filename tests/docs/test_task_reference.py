"""Tables of names are whole: of a task, of its status, and of the methods of a client by task."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast import Client, SyncClient
from holdfast.model.task import TaskStatus

PAGE = (Path(__file__).parents[2] / "docs" / "runs.md").read_text("utf-8")


def documented(what: str) -> set[str]:
    return set(re.findall(rf"^\| `{what}\.(\w+)", PAGE, re.MULTILINE))


def public(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


def test_the_page_has_what_a_task_has() -> None:
    with SyncClient.memory() as client, client.run("s", agent_id="a") as run:
        tasks = run.tasks("files", ["one"])
        for task in tasks:
            assert documented("task") == public(task)
        assert documented("tasks") == public(tasks)
        assert "| `len(tasks)` |" in PAGE
        assert len(tasks) == 1


def test_the_page_has_every_status() -> None:
    [said] = re.findall(r"^`TaskStatus` is (.*?);", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)`", said) == [str(status) for status in TaskStatus]


def test_every_method_of_a_client_is_listed_by_its_task() -> None:
    page = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text("utf-8")
    table = page.partition("## Methods by task\n")[2]
    rows = re.findall(r"^\| [^`].*", table, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(listed) == len(set(listed))
    assert set(listed) == {name for name in public(Client) if callable(getattr(Client, name))}
