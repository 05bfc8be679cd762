"""A deep agent that writes files in two turns, over the middleware of `docs/frameworks/deepagents.md`.

python deepagents_agent.py STORE DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from call_log import log_call
from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from deepagents_model import WriterModel
from langchain_core.messages import HumanMessage
from paths import ROOT
from snippets import snippets

from holdfast import SyncClient
from holdfast.langgraph import HoldfastSaver

TURNS = ("first draft", "second draft")
THREAD: Any = {"configurable": {"thread_id": "notes"}}
PAGE = ROOT / "docs" / "frameworks" / "deepagents.md"
recipe: dict[str, Any] = {"__name__": "recipe"}
code = next(iter(snippets(PAGE, "python"))).code  # the code of the page is what is tested
exec(compile(code, PAGE, "exec", dont_inherit=True), recipe)


def make_agent(client: SyncClient, directory: Path, project: Path) -> Any:
    class CountedBackend(FilesystemBackend):
        def write(self, file_path: str, content: str) -> Any:
            log_call(directory, "write", file_path, content)
            return super().write(file_path, content)

    project.mkdir(exist_ok=True)
    return create_deep_agent(
        model=WriterModel(on_request=lambda *about: log_call(directory, "model", *about)),
        backend=CountedBackend(root_dir=project, virtual_mode=True),
        middleware=[recipe["FileSnapshots"](client.workspace(project))],
        checkpointer=HoldfastSaver(client),
    )


def take_turn(agent: Any, text: str, thread: Any = THREAD) -> None:
    """Take a turn, or continue it; do nothing if a later one was begun."""
    messages = agent.get_state(thread).values.get("messages", ())
    asked = [one.content for one in messages if isinstance(one, HumanMessage)]
    if text not in asked:
        agent.invoke({"messages": [HumanMessage(text, id=text)]}, thread, durability="sync")
    elif text == asked[-1]:
        agent.invoke(None, thread, durability="sync")  # nothing happens if it is finished


def read_files(project: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(project.iterdir())}


def main(store: str, directory: Path) -> None:
    project = directory / "project"
    with SyncClient.open(store) as client:
        agent = make_agent(client, directory, project)
        for text in TURNS:
            take_turn(agent, text)
        state = agent.get_state(THREAD).values
        snapshot = client.workspace(project).entries(state["files_at"])
    told = [[type(one).__name__, str(one.content)] for one in state["messages"]]
    print(json.dumps({"told": told, "files": read_files(project), "snapshot": [str(one.path) for one in snapshot]}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
