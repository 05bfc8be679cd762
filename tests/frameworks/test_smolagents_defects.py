"""What is lost or repeated with the means that smolagents has, and not with ours; smolagents' own way is the control.

smolagents has no store. Its own means are `agent.memory`, `step.dict()` and `run(reset=False)`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from framework_environments import require
from prose import PROSE

require("smolagents")

from rich.console import Console
from smolagents import AgentLogger, CodeAgent, LogLevel, Tool, ToolCallingAgent
from smolagents.memory import TaskStep
from smolagents.utils import make_json_serializable
from smolagents_model import FunctionModel, answer_in_steps, code, final

from holdfast import Effect, SyncClient
from holdfast.smolagents import extract, reconstruct, resumable

TURNS = 120


class Interrupted(BaseException):
    """What a kill does, in a test that stays in its process."""


def make(kind: type, answer: Any, *tools: Any) -> Any:
    return kind(tools=list(tools), model=FunctionModel(answer), logger=AgentLogger(LogLevel.OFF, Console(quiet=True)))


class Pay(Tool):
    name, description, inputs, output_type = "pay", "Pays.", {}, "string"

    def __init__(self) -> None:
        super().__init__()
        self.paid = 0

    def forward(self) -> str:
        self.paid += 1
        return "receipt"


def test_a_run_that_was_cut_off_pays_again_by_smolagents_memory_only(tmp_path):
    """The step that was cut off is in the memory without the call. So the model does not know of it."""
    plan = answer_in_steps([("pay", {}), ("wait", {})], final("done"))

    class Wait(Tool):
        name, description, inputs, output_type = "wait", "Waits.", {}, "string"

        def forward(self) -> str:
            waited.append(1)
            if len(waited) == 1:
                raise Interrupted
            return "waited"

    own, waited = Pay(), []
    agent = make(ToolCallingAgent, plan, own, Wait())
    with pytest.raises(Interrupted):
        agent.run("go")
    assert agent.run("go", reset=False) == "done"
    assert own.paid == 2
    assert sum(isinstance(one, TaskStep) for one in agent.memory.steps) == 2  # and there are two tasks

    ours, waited[:] = Pay(), []
    tools: Any = {"pay": Effect("irreversible"), "wait": "read"}
    for _ in range(2):
        agent = make(ToolCallingAgent, plan, ours, Wait())
        resumed = resumable(agent, session_id="s", store=f"sqlite:///{tmp_path}/store.db", tools=tools)
        if not waited:
            with pytest.raises(Interrupted):
                resumed.run("go")
        else:
            assert resumed.run("go") == "done"
    assert ours.paid == 1
    assert sum(isinstance(one, TaskStep) for one in agent.memory.steps) == 1


def test_an_image_has_lost_its_shape_in_smolagents_dicts_only():
    agent = make(ToolCallingAgent, answer_in_steps(final("done")))
    picture = PIL.Image.effect_noise((30, 20), 50)
    agent.run("look", images=[picture])
    [dumped] = agent.memory.steps[1].dict()["observations_images"]
    assert dumped == picture.tobytes()  # neither size nor mode

    other = make(ToolCallingAgent, answer_in_steps(final("done")))
    reconstruct(extract(agent, agent_id="a", session_id="s"), other)
    assert other.memory.steps[1].observations_images == [picture]


def test_variables_are_lost_with_the_process_by_smolagents_memory_only(tmp_path):
    set_up = answer_in_steps(code("items = [1, 2]", "final_answer('ready')"))
    ask = answer_in_steps(code("final_answer(items)"), code("final_answer('no such variable')"))
    first, second = make(CodeAgent, set_up), make(CodeAgent, ask)
    first.run("set up")
    second.memory.steps = list(first.memory.steps)
    assert second.run("ask", reset=False) == "no such variable"

    url = f"sqlite:///{tmp_path}/store.db"
    resumable(make(CodeAgent, set_up), session_id="s", store=url).run("set up")
    assert resumable(make(CodeAgent, ask), session_id="s", store=url).run("ask", reset=False) == [1, 2]


def test_stored_bytes_grow_with_the_square_of_the_turns_by_smolagents_dicts_only(tmp_path):
    chance = random.Random(7)

    def prose(length: int) -> str:
        begins = chance.randrange(len(PROSE) - length)
        return PROSE[begins : begins + length]

    class Look(Tool):
        name, description, inputs, output_type = "look", "Looks.", {}, "string"

        def forward(self) -> str:
            return prose(3500)

    plan = answer_in_steps([("look", {})], final(prose(1500)))
    agent = make(ToolCallingAgent, plan, Look())
    for number in range(TURNS // 4):
        agent.run(f"{number} {prose(200)}", reset=False)
    said = sum(len(str(one)) for step in agent.memory.steps for one in step.to_messages())
    # smolagents' only dump repeats in each step all messages that were sent to the model.
    assert len(json.dumps(make_json_serializable(agent.memory.get_full_steps()))) > 10 * said

    agent = make(ToolCallingAgent, plan, Look())
    store = tmp_path / "store"
    store.mkdir()
    with SyncClient.sqlite(store / "store.db") as client:
        resumed = resumable(agent, session_id="s", store=client, tools={"look": "read"})
        for number in range(TURNS):
            resumed.run(f"{number} {prose(200)}", reset=False)
    said = sum(len(str(one)) for step in agent.memory.steps for one in step.to_messages())
    assert sum(path.stat().st_size for path in Path(store).iterdir()) < 1.5 * said
