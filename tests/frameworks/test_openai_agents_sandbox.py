"""Sandboxes of the OpenAI Agents SDK: their files come back with the conversation."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("openai_agents")

from agents import RunConfig, Runner, set_tracing_disabled
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.sandbox.entries import File
from agents.sandbox.errors import SnapshotPersistError
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from agents.sandbox.snapshot import SnapshotBase
from agents.testing import ScriptedModel, assistant_message, function_call
from openai_agents_turns import Killed, restart, scripted

from holdfast import SyncClient, UsageError
from holdfast.adapters.base import session as sessions
from holdfast.openai_agents import HoldfastSnapshot, resumable

set_tracing_disabled(True)  # it would be sent to api.openai.com
CONFIG = RunConfig(tracing_disabled=True)


@pytest.fixture(autouse=True)
def as_a_new_process() -> None:
    sessions._finished.clear()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


# -- sandboxes ---------------------------------------------------------------------------------------------------------


def shell(number: int, command: str) -> Any:
    return function_call("exec_command", {"cmd": command, "login": False}, call_id=f"shell-{number}")


def coder(*answers: Any) -> SandboxAgent[Any]:
    manifest = Manifest(entries={"notes.txt": File(content=b"begin\n")})
    return SandboxAgent("coder", model=scripted(*answers), capabilities=[Shell()], default_manifest=manifest)


def in_a_sandbox(**options: Any) -> RunConfig:
    return RunConfig(tracing_disabled=True, sandbox=SandboxRunConfig(client=UnixLocalSandboxClient(), **options))


def last_output(result: Any) -> str:
    outputs = [item["output"] for item in result.to_input_list() if item.get("type") == "function_call_output"]
    return str(outputs[-1]).partition("Output:\n")[2].strip()


def test_the_files_of_a_sandbox_come_back_with_the_conversation(store):
    write = shell(1, "echo more >> notes.txt; mkdir -p sub; echo x > sub/y; ln -s notes.txt link; chmod 700 sub/y")
    agent = resumable(coder(write, assistant_message("ok")), session_id="s", store=store)
    agent.run_sync("write", run_config=in_a_sandbox())
    restart()
    read = shell(2, "cat link sub/y; ls -l sub/y | cut -c1-10")
    agent = resumable(coder(read, assistant_message("ok")), session_id="s", store=store)
    assert last_output(agent.run_sync("read", run_config=in_a_sandbox())).split() == [
        "begin",
        "more",
        "x",
        "-rwx------",
    ]


@survives("files of a sandbox", "come back, also in the middle of a turn")
def test_the_files_of_a_sandbox_come_back_in_the_middle_of_a_turn(store):
    """A call that is replayed does not run again; what it did to the files is there, still."""

    class Dying(ScriptedModel):
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            if self.is_dead:
                raise Killed
            self.is_dead = True
            return await super().get_response(*args, **kwargs)

        is_dead = False

    dying = coder()
    dying.model = Dying([[shell(1, "echo more >> notes.txt")]])
    with pytest.raises(Killed):
        resumable(dying, session_id="s", store=store).run_sync("write", run_config=in_a_sandbox())
    restart()
    agent = resumable(coder(shell(2, "cat notes.txt"), assistant_message("ok")), session_id="s", store=store)
    assert last_output(agent.run_sync("write", run_config=in_a_sandbox())).split() == ["begin", "more"]


def test_a_fork_has_the_files_of_its_checkpoint(store):
    for number, text in ((1, "one"), (2, "two")):
        agent = resumable(
            coder(shell(number, f"echo {text} >> notes.txt"), assistant_message("ok")), session_id="s", store=store
        )
        agent.run_sync(text, run_config=in_a_sandbox())
        if number == 1:
            with SyncClient.open(store) as client:
                client.fork("s", session_id="fork")
    agent = resumable(coder(shell(3, "cat notes.txt"), assistant_message("ok")), session_id="fork", store=store)
    assert last_output(agent.run_sync("read", run_config=in_a_sandbox())).split() == ["begin", "one"]


def test_a_snapshot_works_with_the_runner_alone(store):
    async def run(answer: Any) -> Any:
        snapshot = HoldfastSnapshot(id="files", store=store)
        try:
            config = in_a_sandbox(snapshot=snapshot)
            return await Runner.run(coder(answer, assistant_message("ok")), "go", run_config=config)
        finally:
            await snapshot.close()

    asyncio.run(run(shell(1, "echo more >> notes.txt; head -c 20000 /dev/urandom > large")))
    result = asyncio.run(run(shell(2, "cat notes.txt; wc -c < large")))
    assert last_output(result).split() == ["begin", "more", "20000"]


def test_a_file_that_does_not_change_is_stored_once(store, tmp_path):
    async def run(number: int) -> None:
        snapshot = HoldfastSnapshot(id="files", store=store)
        command = "head -c 300000 /dev/urandom > large" if number == 0 else f"echo {number} > small"
        await Runner.run(
            coder(shell(number, command), assistant_message("ok")), "go", run_config=in_a_sandbox(snapshot=snapshot)
        )
        await snapshot.close()

    for number in range(4):
        asyncio.run(run(number))
    assert sum(path.stat().st_size for path in tmp_path.glob("store.db*")) < 2 * 300_000 + 400_000


def test_a_snapshot_that_was_serialized_has_no_store(store):
    snapshot = HoldfastSnapshot(id="files", store=store)
    dumped = snapshot.model_dump(mode="json")
    assert "store.db" not in json.dumps(dumped)
    assert asyncio.run(SnapshotBase.parse(dumped).restorable()) is False  # in this process it finds its store
    del snapshot
    with pytest.raises(UsageError, match="without its store"):
        asyncio.run(SnapshotBase.parse(dumped).restorable())


def test_what_is_no_archive_is_refused(store):
    with pytest.raises(SnapshotPersistError):
        asyncio.run(HoldfastSnapshot(id="files", store=store).persist(io.BytesIO(b"no archive")))
