"""Resumable agents of Pydantic AI as named functions: workers carry out their turns, and continue them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require

require("pydantic_ai")

from pydantic_ai import Agent, ModelRequest, ModelResponse
from pydantic_ai.messages import TextPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

from holdfast import Client, ConflictError, Retry, Runnables, SyncClient, runnable
from holdfast.pydantic_ai import resumable


@pytest.fixture
def client(tmp_path: Path) -> Any:
    with SyncClient.sqlite(tmp_path / "store.db") as made:
        yield made


class Echo:
    """A model that answers with all that it was ever asked in the conversation."""

    def __init__(self) -> None:
        self.asked = 0
        self.model = FunctionModel(self._answer)

    def _answer(self, messages: list[Any], info: Any) -> ModelResponse:
        self.asked += 1
        prompts = [
            str(part.content)
            for one in messages
            if isinstance(one, ModelRequest)
            for part in one.parts
            if isinstance(part, UserPromptPart)
        ]
        return ModelResponse([TextPart(" / ".join(prompts))])


def make_names(echo: Echo, *, fails: list[Exception] | None = None) -> Runnables:
    names = Runnables()
    agent = Agent(echo.model, name="clerk")

    @runnable("support.agent", registry=names, turns=True, retry=Retry(attempts=3, seconds=0))
    async def support(run: Any, question: str, *, message: str | None = None) -> str:
        result = await resumable(agent, session_id=run.session_id).run(question, turn=message)
        if fails:
            raise fails.pop()
        return result.output

    return names


def drain(client: SyncClient, names: Runnables) -> int:
    return client.work(drain=True, runnables=names)


def test_each_start_is_a_turn_of_the_conversation(client: SyncClient) -> None:
    echo = Echo()
    names = make_names(echo)
    client.start("support.agent", "where is it?", session_id="talk")
    assert drain(client, names) == 1
    found = client.run_status("talk")
    assert (found.status, found.result) == ("completed", "where is it?")
    assert found.head.framework == "pydantic_ai"
    client.start("support.agent", "where is it?", session_id="talk")  # the same start: a no-op
    assert drain(client, names) == 0
    client.start("support.agent", "and now?", session_id="talk")
    with pytest.raises(ConflictError):
        client.start("support.agent", "not yet", session_id="talk")
    assert drain(client, names) == 1
    assert client.run_status("talk").result == "where is it? / and now?"
    client.start("support.agent", "where is it?", session_id="talk", message="m-3")
    assert drain(client, names) == 1
    assert client.run_status("talk").result == "where is it? / and now? / where is it?"
    assert echo.asked == 3


def test_the_next_life_in_the_same_process_repeats_no_call(client: SyncClient) -> None:
    echo = Echo()
    names = make_names(echo, fails=[ValueError("later")])
    client.start("support.agent", "where is it?", session_id="talk")
    while not client.run_status("talk").is_over:
        drain(client, names)
    assert client.run_status("talk").result == "where is it?"
    assert echo.asked == 1


def test_a_question_that_was_asked_before_is_a_turn_of_its_own_in_any_process(client: SyncClient) -> None:
    echo = Echo()
    names = make_names(echo)
    for question in ("a", "b", "a"):
        client.start("support.agent", question, session_id="talk")
        drain(client, names)
    assert client.run_status("talk").result == "a / b / a"
    assert echo.asked == 3


def test_the_conversation_continues_without_a_worker(client: SyncClient, tmp_path: Path) -> None:
    echo = Echo()
    client.start("support.agent", "a", session_id="talk")
    drain(client, make_names(echo))

    async def main() -> str:
        async with Client.sqlite(tmp_path / "store.db") as awaited:
            result = await resumable(Agent(echo.model, name="clerk"), session_id="talk", store=awaited).run("b")
            return result.output

    assert asyncio.run(main()) == "a / b"


def test_an_agent_that_is_awaited_needs_a_coroutine_function(client: SyncClient) -> None:
    names = Runnables()

    @runnable("plain", registry=names, retry=1)
    def plain(run: Any, question: str) -> str:
        return resumable(Agent(Echo().model), session_id=run.session_id).run_sync(question).output

    client.start("plain", "a", session_id="talk")
    drain(client, names)
    found = client.run_status("talk")
    assert found.failure is not None
    assert "async def" in found.failure.message


PROGRAM = """
import os, pathlib
import holdfast
from holdfast import Effect
from holdfast.pydantic_ai import resumable
from pydantic_ai import Agent, ModelResponse
from pydantic_ai.messages import TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

def note(word):
    with open("log", "a") as log:
        log.write(word + "\\n")

def answer(messages, info):
    note("model")
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse([TextPart("it is " + messages[-1].parts[-1].content)])
    return ModelResponse([ToolCallPart("find", {"order": 7}, tool_call_id="call-1")])

def find(order: int) -> str:
    note("tool")
    if not pathlib.Path("died").exists():
        pathlib.Path("died").touch()
        os._exit(9)
    return "on its way"

agent = Agent(FunctionModel(answer), name="clerk", tools=[find])

@holdfast.runnable("support.agent", turns=True)
async def support(run, question):
    talk = resumable(agent, session_id=run.session_id, tools={"find": "read"})
    return (await talk.run(question)).output
"""


def test_the_turn_of_a_killed_worker_goes_on_in_the_next_one(client: SyncClient, tmp_path: Path) -> None:
    (tmp_path / "support.py").write_text(textwrap.dedent(PROGRAM))
    client.start("support.agent", "where is it?", session_id="talk")
    command = [sys.executable, "-m", "holdfast", "work", "support", "--drain", "--store", str(tmp_path / "store.db")]
    codes = [
        subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, check=False, timeout=120).returncode
        for _ in range(2)
    ]
    assert codes == [9, 0]
    assert client.run_status("talk").result == "it is on its way"
    assert (tmp_path / "log").read_text().split() == ["model", "tool", "tool", "model"]
