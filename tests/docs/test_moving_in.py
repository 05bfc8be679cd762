"""docs/moving-in.md: its commands run, on sources that the other programs made."""

import asyncio
import json
import os
import shlex
import subprocess
import sys

import checkpnt
import pytest
from snippets import ROOT, snippets

DOCUMENT = ROOT / "docs" / "moving-in.md"


def make_sources() -> None:
    async def fill() -> None:
        async with checkpnt.Client.sqlite() as client:
            await client.save("a", checkpnt.Framework.CUSTOM, {"scores": {1: "one"}}, session_id="run-001")

    asyncio.run(fill())
    os.makedirs(".checkpoints/my-session")  # noqa: PTH103 - a path of the document
    state = {"version": "1.0.0", "id": "x", "messages": [], "step": 1, "metadata": {}, "reasoning": []}
    about = {"sessionId": "my-session", "timestamp": "2026-01-01T00:00:00.000Z", "step": 1, "agentId": "unknown"}
    for name, content in {"checkpoint": state, "metadata": about}.items():
        with open(f".checkpoints/my-session/{name}.json", "w", encoding="utf-8") as file:  # noqa: PTH123 - as above
            json.dump(content, file, indent=2)


@pytest.mark.slow
def test_every_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    make_sources()
    commands = [line for snippet in snippets(DOCUMENT, "console") for line in snippet.code.splitlines()]
    assert len(commands) == 11
    # Threads of LangGraph are imported in tests/langgraph, where graphs have made them.
    for command in [command for command in commands if "langgraph" not in command]:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *shlex.split(command)[1:]],
            check=False,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert done.stdout
    listed = subprocess.run([sys.executable, "-m", "holdfast", "sessions", "--json"], capture_output=True, check=True)
    assert {one["session_id"] for one in json.loads(listed.stdout)["sessions"]} == {"run-001", "my-session"}


def test_the_tables_name_methods_that_are_there():
    from holdfast import CheckpointExpiredError, Client, CorruptError, FileCheckpoints, SyncClient

    text = DOCUMENT.read_text("utf-8")
    for owner, names in {
        Client: ("save", "restore", "handoff", "timeline", "expire", "latest", "as_store", "import_checkpnt",
                 "import_providerprotocol"),
        FileCheckpoints: ("load_metadata", "list", "delete"),
        SyncClient: ("sqlite",),
    }.items():  # fmt: skip
        for name in names:
            assert name in text
            assert callable(getattr(owner, name))
    assert issubclass(CheckpointExpiredError, LookupError)
    assert CorruptError.__name__ in text
