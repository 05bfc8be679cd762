"""What Haystack's own means lose or repeat after a crash, and ours do not; Haystack's own way is the control."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crash_kit import SETTINGS
from framework_environments import require
from prose import PROSE
from survives import survives

require("haystack")

from haystack_model import FunctionModel, answer_once_called, call  # isort: skip  # it turns telemetry off

from haystack.components.agents import Agent, State
from haystack.dataclasses import ChatMessage
from haystack.hooks import hook
from haystack.tools import tool

from holdfast import SyncClient
from holdfast.haystack import resumable

TURNS = 300
KILLED_PIPELINE = """
import os, signal, sys
from haystack import Pipeline, component
from holdfast.haystack import HoldfastSnapshots, resumable

way, is_killed = sys.argv[1], "--kill" in sys.argv

@component
class First:
    @component.output_types(value=str)
    def run(self, value: str):
        print("first", flush=True)
        return {"value": value}

@component
class Second:
    @component.output_types(value=str)
    def run(self, value: str):
        print("second", flush=True)
        if value == "raise":
            raise ValueError(value)
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"value": value}

pipeline = Pipeline()
pipeline.add_component("first", First())
pipeline.add_component("second", Second())
pipeline.connect("first.value", "second.value")
if way == "ours":
    print(resumable(pipeline, session_id="s", store="sqlite:///store.db").run({"first": {"value": "it"}}))
else:
    for what in ("raise", "kill"):
        try:
            snapshots = HoldfastSnapshots(what, store="sqlite:///store.db")
            pipeline.run({"first": {"value": what}}, snapshot_callback=snapshots)
        except Exception:
            print("raised", flush=True)
"""


class Interrupted(BaseException):
    """What a kill does, in a test that stays in its process."""


def say(text: str) -> list[ChatMessage]:
    return [ChatMessage.from_user(text)]


def run_script(directory: Path, *words: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_PIPELINE, *words],
        cwd=directory, env=SETTINGS | {"HOME": str(directory)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout.split("\n")[:-1]


def test_a_pipeline_that_is_killed_leaves_no_snapshot_but_a_session(tmp_path):
    """Haystack makes snapshots when a component raises, not of a process that is killed."""
    begun = ["first", "second"]
    assert run_script(tmp_path, "snapshots", "--kill") == (-signal.SIGKILL, [*begun, "raised", *begun])
    with SyncClient.open(f"sqlite:///{tmp_path}/store.db") as client:
        assert [one.session_id for one in client.sessions()] == ["raise"]
    assert run_script(tmp_path, "ours", "--kill") == (-signal.SIGKILL, begun)
    assert run_script(tmp_path, "ours") == (0, ["second", "{'second': {'value': 'it'}}"])


@survives("step count, token usage, outputs of the state", "those of the whole run")
def test_steps_are_counted_from_the_start_in_every_life(tmp_path):
    """By hand, an agent is continued by its messages: its step count, and so its budget, starts again."""
    kept: list[ChatMessage] = []

    @hook
    def keep(state: State) -> None:
        kept[:] = state.data["messages"]

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def make(*, is_cut_off: bool) -> Agent:
        model = answer_once_called(call("look", "1"), call("look", "2"))
        answer = model.answer
        model.answer = lambda said: interrupt() if is_cut_off and said[-1].is_from("tool") else answer(said)
        return Agent(
            chat_generator=model, tools=[look], max_agent_steps=2, system_prompt="Look.", hooks={"after_tool": [keep]}
        )

    def interrupt() -> Any:
        raise Interrupted

    def describe(outputs: dict[str, Any]) -> tuple[Any, ...]:
        return outputs["step_count"], outputs["exit_reason"], outputs["tool_call_counts"]

    whole = describe(make(is_cut_off=False).run(say("go")))
    assert whole == (2, "max_agent_steps", {"look": 2})
    with pytest.raises(Interrupted):
        make(is_cut_off=True).run(say("go"))
    by_hand = make(is_cut_off=False).run(kept[1:])  # without the system prompt: the agent adds it
    assert describe(by_hand) == (2, "text", {"look": 1})  # one step more than the agent may take

    url = f"sqlite:///{tmp_path}/store.db"
    with pytest.raises(Interrupted):
        resumable(make(is_cut_off=True), session_id="s", store=url).run(say("go"))
    assert describe(resumable(make(is_cut_off=False), session_id="s", store=url).run(say("go"))) == whole


def test_no_model_reads_a_call_without_an_answer(tmp_path):
    """By hand, a call that was under way is sent without an answer, which providers refuse."""
    kept: list[ChatMessage] = []
    read: list[list[ChatMessage]] = []

    @hook
    def keep(state: State) -> None:
        kept[:] = state.data["messages"]

    @tool
    def pay() -> str:
        """Pay."""
        raise Interrupted

    def answer(said: Any) -> Any:
        read.append(list(said))
        asked = any(one.tool_calls for one in said)
        return "done" if asked else ChatMessage.from_assistant(tool_calls=[call("pay")])

    def make() -> Agent:
        return Agent(chat_generator=FunctionModel(answer), tools=[pay], hooks={"before_tool": [keep]})

    def count_open_calls(messages: list[ChatMessage]) -> int:
        return sum(len(one.tool_calls) - len(one.tool_call_results) for one in messages)

    with pytest.raises(Interrupted):
        make().run(say("go"))
    make().run(kept)
    assert count_open_calls(read[-1]) == 1

    agent = resumable(make(), session_id="s", store=f"sqlite:///{tmp_path}/store.db")
    with pytest.raises(Interrupted):
        agent.run(say("go"))
    agent.run(say("go"))
    assert (count_open_calls(read[-1]), "outcome is unknown" in read[-1][-1].tool_call_result.result) == (0, True)


def make_text(chance: random.Random, length: int) -> str:
    """Return English prose, as people and models write it."""
    begins = chance.randrange(len(PROSE) - length)
    return PROSE[begins : begins + length]


def test_a_conversation_of_300_turns_is_stored_once(tmp_path):
    """After 300 turns of seven kilobytes, at most one and a half times the conversation."""
    chance = random.Random(7)
    model = FunctionModel(lambda _: make_text(chance, 3500))
    with SyncClient.open(f"sqlite:///{tmp_path}/store.db", durability="fast") as client:
        agent = resumable(Agent(chat_generator=model), session_id="s", store=client)
        for number in range(TURNS):
            agent.run(say(f"{number} {make_text(chance, 3500)}"), turn=str(number))
        transcript = len(json.dumps(client.latest(session_id="s").execution_state["messages"]))
    stored = sum(one.stat().st_size for one in tmp_path.glob("store.db*"))
    assert transcript > 2_000_000
    assert stored <= 1.5 * transcript, f"{stored} bytes for a transcript of {transcript}"
