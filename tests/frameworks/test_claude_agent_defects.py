"""What the Claude Agent SDK loses or does behind one's back after a kill, and that `resumable` does not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from anthropic_server import AnthropicServer, read_prompts
from crash_kit import PROGRAMS, SETTINGS
from framework_environments import require
from survives import survives

require("claude_agent")

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, InMemorySessionStore
from claude_talk import LOOK, Bank, follow, make_options, result_texts

from holdfast import Client
from holdfast.adapters.claude_agent.conversation import CONTINUE
from holdfast.adapters.claude_agent.orphan import VARIABLE
from holdfast.claude_agent import HoldfastSessionStore, resumable
from holdfast.errors import HoldfastError

PROGRAM = PROGRAMS / "claude_agent_shell.py"
SUPPORT = Path(__file__).parent.parent / "support"


class Shell:
    """A program whose CLI runs a command, which can be killed alone: its CLI stays."""

    def __init__(self, server: AnthropicServer, where: Path) -> None:
        self.where = where
        self.store = f"sqlite:///{where}/store.db"
        self._groups: list[int] = []
        more = {"PYTHONPATH": str(SUPPORT), "TMPDIR": str(where)}  # the SDK leaves files when it is killed
        self._environment = SETTINGS | server.environment(where / "home") | more

    def start(self, how: str) -> subprocess.Popen[bytes]:
        with (self.where / "output").open("wb") as output:  # no pipe: the CLI has it, too
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), how, str(self.where), self.store],
                env=self._environment, cwd=self.where, start_new_session=True, stdout=output, stderr=output,
            )  # fmt: skip
        self._groups.append(process.pid)
        return process

    def run(self, how: str) -> str:
        """Run the program to its end; return the last line that it has printed."""
        assert self.start(how).wait(120) == 0, (self.where / "output").read_text()
        return (self.where / "output").read_text().splitlines()[-1]

    def kill_when(self, process: subprocess.Popen[bytes], is_time: Callable[[], bool]) -> None:
        """Kill the program, and nothing else, at a moment that a function names."""
        wait_for(is_time)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue


def wait_for(is_true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)


def begin_and_wait(where: Path) -> str:
    """A command that goes on once there is a file `go`: when the program that began it was killed."""
    return f"touch {where}/begun; while ! test -e {where}/go; do sleep 0.1; done"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AnthropicServer]:
    command = f"{begin_and_wait(tmp_path)}; touch {tmp_path}/late"
    with AnthropicServer(follow(("Bash", {"command": command, "description": "wait"}), "done")) as started:
        yield started


@pytest.fixture
def shell(server: AnthropicServer, tmp_path: Path) -> Iterator[Shell]:
    started = Shell(server, tmp_path)
    yield started
    started.end()


def test_alone_the_cli_of_a_killed_program_goes_on(server, shell, tmp_path):
    shell.kill_when(shell.start("alone"), (tmp_path / "begun").exists)
    asked = len(server.requests)
    (tmp_path / "go").touch()
    wait_for(lambda: (tmp_path / "late").exists() and len(server.requests) > asked)


@survives("a tool of the CLI under way", "the model reads that it was interrupted")
@survives("the CLI of the killed program", "is ended before the turn continues")
def test_the_next_life_ends_the_cli_of_the_last_one_and_tells_the_model_the_truth(server, shell, tmp_path):
    shell.kill_when(shell.start("resumable"), (tmp_path / "begun").exists)
    [orphan] = find_clis(tmp_path)
    assert shell.run("resumable") == "done"
    assert orphan not in find_clis(tmp_path)
    (tmp_path / "go").touch()
    time.sleep(4)
    assert not (tmp_path / "late").exists()
    [_, told] = read_prompts(server.requests[-1])
    assert told == CONTINUE
    [result] = result_texts(server.requests[-1])
    assert "interrupted" in result  # the CLI's own words
    assert len(server.requests) == 2


@survives("the tools of that CLI", "it finishes one, and can use no other")
def test_the_cli_of_a_killed_program_can_use_no_other_tool(tmp_path):
    commands = [begin_and_wait(tmp_path), f"touch {tmp_path}/second"]
    plan = [("Bash", {"command": one, "description": "run"}) for one in commands]
    with AnthropicServer(follow(*plan, "done")) as server:
        shell = Shell(server, tmp_path)
        try:
            shell.kill_when(shell.start("resumable"), (tmp_path / "begun").exists)
            (tmp_path / "go").touch()
            wait_for(lambda: len(server.requests) == 3)  # it has gone on
        finally:
            shell.end()
    assert len(result_texts(server.requests[-1])) == 2
    assert not (tmp_path / "second").exists()


def find_clis(directory: Path) -> list[int]:
    """Return the CLIs that were started for a resumable session, and work in a directory."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            is_ours = VARIABLE.encode() in (process / "environ").read_bytes()
            if is_ours and (process / "cwd").resolve() == directory and (process / "comm").read_text() == "claude\n":
                found.append(int(process.name))
        except (OSError, ValueError):
            continue
    return found


def test_alone_a_kill_loses_the_turn_that_the_store_should_have(shell, tmp_path):
    async def load(store: str) -> list[str]:
        async with Client.open(store) as client:
            return await client.session_ids("")

    shell.kill_when(shell.start("batched"), (tmp_path / "begun").exists)
    assert asyncio.run(load(shell.store)) == []  # entries are flushed when a turn ends
    (tmp_path / "begun").unlink()
    shell.kill_when(shell.start("resumable"), (tmp_path / "begun").exists)
    assert asyncio.run(load(shell.store)) == ["shell"]


@pytest.mark.parametrize("is_resumable", [False, True])
def test_a_store_that_fails_is_dropped_by_the_sdk_and_ends_a_resumable_turn(tmp_path, is_resumable):
    async def main() -> None:
        bank = Bank()
        with AnthropicServer(follow((LOOK, {}), "looked")) as server:
            options = make_options(server, tmp_path, bank, cwd=tmp_path)
            client = Client.sqlite(tmp_path / "store.db")

            async def lose_store(*_: object) -> dict[str, object]:
                await client.close()
                return {}

            options.hooks = {"PostToolUse": [claude_agent_sdk.HookMatcher(hooks=[lose_store])]}
            if is_resumable:
                with pytest.raises(HoldfastError):
                    async for _ in resumable(options, session_id="s", store=client).query("look"):
                        pass
            else:
                options.session_store, options.session_store_flush = HoldfastSessionStore(client), "eager"
                messages = [one async for one in claude_agent_sdk.query(prompt="look", options=options)]
                assert [one for one in messages if one.__class__.__name__ == "ResultMessage"][-1].result == "looked"
                assert "MirrorErrorMessage" in {one.__class__.__name__ for one in messages}

    asyncio.run(main())


def test_alone_files_can_not_be_checkpointed_with_a_store():
    options = ClaudeAgentOptions(session_store=InMemorySessionStore(), enable_file_checkpointing=True)
    with pytest.raises(ValueError, match="enable_file_checkpointing"):
        asyncio.run(anext(claude_agent_sdk.query(prompt="hi", options=options)))
