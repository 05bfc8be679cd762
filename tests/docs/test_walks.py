"""docs/walks.md names modules that the call really goes through, and few enough to read."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import SyncClient

PAGE = Path(__file__).parents[2] / "docs" / "walks.md"
PACKAGE = Path(holdfast.__file__).parent
MOST = {"A save": 13, "A restore": 13, "A snapshot of a directory": 12, "An effect": 12}  # modules on the main line
NEARLY = 4  # a Python version or a cache may add a module or leave one out


def named(title: str) -> list[str]:
    section = PAGE.read_text("utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([\w/]+\.py)` \|", section, re.MULTILINE)


def visited(call: Callable[[], Any]) -> set[str]:
    seen = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return {str(Path(file).relative_to(PACKAGE)) for file in seen if Path(file).is_relative_to(PACKAGE)}


@pytest.fixture
def calls(tmp_path: Path):
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "a.txt").write_text("one")
    state: dict[str, Any] = {"messages": [{"text": "x" * 600} for _ in range(20)]}
    with SyncClient.sqlite(tmp_path / "store.db") as client, client.run("r", agent_id="a") as run:
        client.save("a", session_id="s", execution_state=state)
        workspace = client.workspace(directory)
        workspace.snapshot(session_id="w", agent_id="a")
        run.effect("pay", str, 1, key="first")
        (directory / "a.txt").write_text("another")
        yield {
            "A save": lambda: client.save("a", session_id="s", execution_state=state),
            "A restore": lambda: client.restore("s"),
            "A snapshot of a directory": lambda: workspace.snapshot(session_id="w", agent_id="a"),
            "An effect": lambda: run.effect("pay", str, 2, key="second"),
        }


@pytest.mark.parametrize("title", MOST)
def test_a_walk_names_modules_that_the_call_goes_through(calls, title: str):
    modules = named(title)
    assert 0 < len(modules) <= MOST[title]
    assert set(modules) <= visited(calls[title])


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("A save", "a save runs code of"),
        ("A restore", "a restore of"),
        ("A snapshot of a directory", "a snapshot of"),
        ("An effect", "an effect of"),
    ],
)
def test_the_page_says_how_many_modules_a_call_goes_through(calls, title: str, words: str):
    text = " ".join(PAGE.read_text("utf-8").split())
    found = re.search(rf"{words} (\d+)", text)
    assert found is not None
    assert abs(len(visited(calls[title])) - int(found[1])) <= NEARLY
