"""Agents of smolagents: turns, tools, managed agents, streams, images, people, transcripts, states saved by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("smolagents")

import PIL.Image
from crash_kit import SETTINGS
from rich.console import Console
from smolagents import (
    AgentLogger,
    CodeAgent,
    FinalAnswerTool,
    LogLevel,
    Tool,
    tool,
)
from smolagents.agent_types import AgentImage
from smolagents.memory import ActionStep, FinalAnswerStep, MemoryStep, TaskStep
from smolagents.models import ChatMessageStreamDelta
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError, AgentGenerationError
from smolagents_model import FunctionModel, StreamingModel, answer_in_steps, final, text_of
from smolagents_runs import Interrupted, Look, interrupt, interrupted_at, make_agent, never

from holdfast import NOT_DONE, Done, Effect, SyncClient
from holdfast.errors import HoldfastWarning, UnfinishedTurnError, UsageError
from holdfast.smolagents import extract, reconstruct, resumable
from holdfast.transcript import BlobPart, to_transcript


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def count_tasks(messages: Any) -> Any:
    """Answer with how many tasks the model has been sent."""
    return final(f"{sum(text_of(one).startswith('New task:') for one in messages)} heard")


# -- turns -------------------------------------------------------------------------------------------------------------


def test_a_finished_run_returns_its_recorded_result(url):
    answer = answer_in_steps([("look", {"where": "here"})], final("seen"))

    @tool
    def look(where: str) -> str:
        """Looks.

        Args:
            where: The place.
        """
        return f"looked {where}"

    done = resumable(make_agent(answer, look), session_id="s", store=url).run("go", turn="1", return_full_result=True)
    other = resumable(make_agent(never, look), session_id="s", store=url)
    again = other.run("go", turn="1", return_full_result=True)
    assert (done.output, done.state, done.token_usage.input_tokens) == ("seen", "success", 20)
    for step in done.steps:
        step.pop("model_input_messages", None)  # they are not stored
    for step in again.steps:
        step.pop("model_input_messages", None)
        if step.get("model_output_message"):
            step["model_output_message"].pop("raw")
    for step in done.steps:
        if step.get("model_output_message"):
            step["model_output_message"].pop("raw")
    assert again.dict() == done.dict()
    assert other.run("go", turn="1") == "seen"
    assert [type(one) for one in other.agent.memory.steps] == [TaskStep, ActionStep, ActionStep]


def test_runs_without_reset_are_one_conversation_in_every_life(url):
    for number, heard in enumerate(("1 heard", "2 heard", "3 heard")):
        agent = resumable(make_agent(count_tasks), session_id="s", store=url)
        assert agent.run(f"task {number}", reset=False) == heard
    assert agent.run("task 3", reset=False) == "4 heard"  # in the same life
    assert agent.run("task 4") == "1 heard"  # reset is smolagents' default
    agent = resumable(make_agent(count_tasks), session_id="s", store=url)
    assert agent.run("task 5", reset=False) == "2 heard"
    with SyncClient.open(url) as client:
        head = client.latest("s")
        spoken = to_transcript(head)
    assert [one.text for one in spoken if one.role == "user"] == ["task 4", "task 5"]
    assert sum(one["step"] == "task" for one in head.execution_state["messages"]) == 6  # those before stay stored


def test_an_earlier_run_returns_its_result_after_a_later_reset(url):
    agent = resumable(make_agent(count_tasks), session_id="s", store=url)
    first = agent.run("one", turn="1", return_full_result=True)
    agent.run("two", turn="2")
    again = resumable(make_agent(never), session_id="s", store=url).run("one", turn="1", return_full_result=True)
    assert [one["task"] for one in again.steps if "task" in one] == ["one"]
    assert again.output == first.output


@pytest.mark.parametrize("stream", [False, True])
def test_a_misspelt_tool_is_refused(url, stream):
    @tool
    def search(words: str) -> str:
        """Searches.

        Args:
            words: What to look for.
        """
        return words

    @tool
    def pay(amount: int) -> str:
        """Pays.

        Args:
            amount: How much.
        """
        return "paid"

    cashier = make_agent(never, pay, name="cashier", description="Pays.")
    agent = make_agent(count_tasks, search, managed_agents=[cashier])
    with pytest.raises(UsageError, match=r"'serch'.*Did you mean 'search'.*It has 'final_answer', 'pay', 'search'"):
        resumable(agent, session_id="s", store=url, tools={"serch": "read"}).run("hi", stream=stream)
    with SyncClient.open(url) as client:
        assert client.latest(session_id="s") is None
    right = resumable(agent, session_id="s", store=url, tools={"search": "read", "pay": "irreversible"})
    assert right.run("hi") == "1 heard"


def test_another_run_is_refused_while_one_is_unfinished(url):
    with pytest.raises(Interrupted):
        resumable(make_agent(interrupt), session_id="s", store=url).run("this")
    agent = resumable(make_agent(count_tasks), session_id="s", store=url)
    with pytest.raises(UnfinishedTurnError, match="'that'"):
        agent.run("that")
    assert agent.run("this") == "1 heard"
    assert agent.run("that", reset=False) == "2 heard"


@survives("a declared tool under way", "looked up by its probe")
def test_a_declared_tool_that_was_under_way_is_looked_up(url):
    paid: list[str] = []

    @tool
    def pay(invoice: str) -> str:
        """Pays.

        Args:
            invoice: Its letter.
        """
        paid.append(invoice)
        return interrupt()

    def find(invoice: str) -> Any:
        return Done(f"receipt {invoice}") if invoice in paid else NOT_DONE

    def answer(messages: Any) -> Any:
        heard = text_of(messages[-1])
        return final(heard) if "receipt" in heard else [("pay", {"invoice": "a"})]

    def life() -> Any:
        agent = make_agent(answer, pay)
        effects = {"pay": Effect("irreversible", key="invoice", probe=find)}
        return resumable(agent, session_id="s", store=url, tools=effects).run("pay")

    with pytest.raises(Interrupted):
        life()
    assert "receipt a" in life()
    assert paid == ["a"]


@survives("an undeclared tool under way", "the model reads that it was interrupted")
def test_a_run_that_was_cut_off_asks_no_question_twice(url):
    paid: list[str] = []

    @tool
    def pay(invoice: str) -> str:
        """Pays.

        Args:
            invoice: Which.
        """
        paid.append(invoice)
        if len(paid) == 2:
            raise Interrupted
        return f"receipt {invoice}"

    def answer(messages: Any) -> Any:
        said = "\n".join(map(text_of, messages))
        plan = answer_in_steps([("pay", {"invoice": "a"})], [("pay", {"invoice": "b"})], final(said[-250:]))
        return plan(messages)

    first, second = FunctionModel(answer), FunctionModel(answer)
    with pytest.raises(Interrupted):
        resumable(make_agent(first, pay), session_id="s", store=url).run("it")
    done = resumable(make_agent(second, pay), session_id="s", store=url).run("it", return_full_result=True)
    assert paid == ["a", "b"]
    assert "its outcome is unknown: it may or may not have been carried out. It was not repeated." in done.output
    assert (first.asked, second.asked) == (2, 1)
    assert done.token_usage.input_tokens == 30  # those of both lives


def test_a_run_that_failed_continues_in_the_same_process(url):
    agent = make_agent(interrupted_at(1, answer_in_steps([("look", {})], final("unreached"))), Look())
    resumed = resumable(agent, session_id="s", store=url)
    with pytest.raises(Interrupted):
        resumed.run("go")
    agent.model = FunctionModel(count_tasks)
    assert resumed.run("go") == "1 heard"
    assert [type(one) for one in agent.memory.steps] == [TaskStep, ActionStep, ActionStep]


def test_a_failure_of_the_model_is_raised_and_the_run_continues(url):
    def fail(_: Any) -> Any:
        raise ConnectionError("the provider is down")

    with pytest.raises(AgentGenerationError, match="the provider is down"):
        resumable(make_agent(fail), session_id="s", store=url).run("go")
    assert resumable(make_agent(count_tasks), session_id="s", store=url).run("go") == "1 heard"


def test_an_agent_that_was_interrupted_continues(url):
    class Stop(Tool):
        name, description, inputs, output_type = "stop", "Stops.", {}, "string"

        def forward(self) -> str:
            agent.interrupt()
            return "stopped"

    agent = make_agent(answer_in_steps([("stop", {})], final("done")), Stop())
    resumed = resumable(agent, session_id="s", store=url)
    with pytest.raises(AgentError, match="interrupted"):
        resumed.run("go")
    assert resumed.run("go") == "done"
    assert agent.model.asked == 2


def test_an_agent_is_itself_again_after_a_run(url):
    look, final_answer = Look(), FinalAnswerTool()
    agent = make_agent(answer_in_steps([("look", {})], final("done")), look, final_answer)
    model, tools = agent.model, agent.tools
    assert resumable(agent, session_id="s", store=url).run("go") == "done"
    assert (agent.model, agent.tools) == (model, tools)
    assert agent.tools["look"] is look
    assert agent.run("go") == "done"  # without a session


def test_the_steps_of_an_agent_that_reached_its_limit_come_back(url):
    def answer(messages: Any) -> Any:
        return "out of steps" if "provide an answer" in text_of(messages[-1]) else [("look", {})]

    agent = resumable(make_agent(answer, Look()), session_id="s", store=url)
    done = agent.run("go", max_steps=2, return_full_result=True, turn="1")
    again = resumable(make_agent(never, Look()), session_id="s", store=url).run("go", return_full_result=True, turn="1")
    assert (done.output, done.state) == (again.output, again.state) == ("out of steps", "max_steps_error")
    assert again.steps[-1]["error"] == {"type": "AgentMaxStepsError", "message": "Reached max steps."}


def test_sessions_that_share_an_agent_share_no_memory(url):
    agent = make_agent(count_tasks)
    ann, bob = (resumable(agent, session_id=one, store=url) for one in ("ann", "bob"))
    assert [ann.run("one", reset=False), bob.run("one", reset=False)] == ["1 heard", "1 heard"]
    assert [ann.run("two", reset=False), bob.run("two", reset=False)] == ["2 heard", "2 heard"]
    late = resumable(agent, session_id="late", store=url)  # made when the agent has a memory
    assert late.run("one", reset=False) == "1 heard"
    assert ann.run("three", reset=False) == "3 heard"
    agent.run("without a session", reset=False)
    assert ann.run("four", reset=False) == "4 heard"
    agent.memory.steps[0].task = "changed between runs, which no other life would see"
    ann.run("five", reset=False)
    assert agent.memory.steps[0].task == "one"


def test_an_agent_is_in_one_run_at_a_time(url):
    agent = make_agent(answer_in_steps([("look", {})], final("done")), Look())
    stream = resumable(agent, session_id="s", store=url).run("go", stream=True)
    next(stream)
    with pytest.raises(UsageError, match="in the middle of another turn"):
        resumable(agent, session_id="t", store=url).run("go")
    stream.close()
    assert resumable(agent, session_id="t", store=url).run("go") == "done"


def test_the_memory_is_the_same_in_every_life(url):
    def life() -> Any:
        agent = resumable(make_agent(count_tasks), session_id="s", store=url)
        agent.run("one", turn="1")
        agent.run("two", turn="2", reset=False)
        return agent.agent.memory

    assert life().get_full_steps()[1]["model_input_messages"] is None  # dropped when the next run began
    first, second = (life().get_succinct_steps() for _ in range(2))
    assert first == second


# -- streams -----------------------------------------------------------------------------------------------------------


def kinds(events: Any) -> list[str]:
    return [type(one).__name__ for one in events]


def test_a_stream_has_the_events_of_smolagents(url):
    plan = answer_in_steps([("look", {})], final("done"))
    expected = kinds(make_agent(plan, Look()).run("go", stream=True))
    agent = resumable(make_agent(plan, Look()), session_id="s", store=url)
    assert kinds(agent.run("go", stream=True, turn="1")) == expected
    again = list(resumable(make_agent(never, Look()), session_id="s", store=url).run("go", stream=True, turn="1"))
    assert kinds(again) == ["ActionStep", "ActionStep", "FinalAnswerStep"]
    assert again[-1].output == "done"


@survives("streamed answers", "replayed as one delta")
def test_an_answer_that_is_streamed_is_recorded(url):
    plan = answer_in_steps([("look", {})], '{"name": "look", "arguments": {}}', final("done"))
    options = {"stream_outputs": True, "planning_interval": 5}
    model = StreamingModel(lambda messages: plan(messages) if len(messages) > 1 else "a plan")
    expected = list(make_agent(model, Look(), **options).run("go", stream=True))

    cut_off = StreamingModel(interrupted_at(3, model.answer))
    seen: list[Any] = []
    with pytest.raises(Interrupted):
        seen.extend(resumable(make_agent(cut_off, Look(), **options), session_id="s", store=url).run("go", stream=True))
    assert any(isinstance(one, ChatMessageStreamDelta) for one in seen)

    second = StreamingModel(model.answer)
    agent = make_agent(second, Look(), **options)
    events = list(resumable(agent, session_id="s", store=url).run("go", stream=True))
    without_deltas = [[one for one in kinds(each) if "Delta" not in one] for each in (events, expected)]
    assert without_deltas[0] == without_deltas[1]
    assert second.asked == 1
    tokens = [one.token_usage.input_tokens for one in agent.memory.steps if isinstance(one, ActionStep)]
    assert tokens == [10, 10, 10]


def test_a_reader_who_stops_early_continues_the_run_later(url):
    plan = answer_in_steps([("look", {})], final("done"))
    agent = make_agent(plan, Look())
    resumed = resumable(agent, session_id="s", store=url)
    events = resumed.run("go", stream=True)
    next(events)
    events.close()
    assert isinstance(agent.model, FunctionModel)  # it is itself again
    assert [type(one) for one in resumed.run("go", stream=True)][-1] is FinalAnswerStep
    assert agent.model.asked == 2


# -- images and other values -------------------------------------------------------------------------------------------


class Photo(Tool):
    name, description, inputs, output_type = "photo", "Takes a photo.", {}, "image"
    taken = 0

    def forward(self) -> Any:
        Photo.taken += 1
        return PIL.Image.effect_noise((80, 60), 50).convert("RGB")


class Crop(Tool):
    name, description, output_type = "crop", "Crops.", "image"
    inputs = {"image": {"type": "object", "description": "It."}}  # noqa: RUF012 - smolagents takes no "image" here
    cropped: list[Any] = []  # noqa: RUF012 - of all instances

    def forward(self, image: Any) -> Any:
        self.cropped.append(image.copy())
        if len(self.cropped) == 1:
            raise Interrupted
        return image.crop((0, 0, 8, 8))


@survives("images", "the same pixels")
def test_images_come_back_as_they_were(url):
    shown = PIL.Image.effect_noise((64, 64), 90)
    plan = answer_in_steps([("photo", {})], [("crop", {"image": "image.png"})], final("image.png"))
    first, second = FunctionModel(plan), FunctionModel(plan)

    def life(model: FunctionModel) -> Any:
        agent = make_agent(model, Photo(), Crop())
        tools: Any = {"photo": "read", "crop": Effect("idempotent")}
        return resumable(agent, session_id="s", store=url, tools=tools).run("show", images=[shown.copy()], turn="1")

    with pytest.raises(Interrupted):
        life(first)
    done = life(second)
    assert Photo.taken == 1
    assert Crop.cropped[0] == Crop.cropped[1]  # pixel by pixel
    assert isinstance(done, AgentImage)
    assert done.to_raw().size == (8, 8)
    assert (first.asked, second.asked) == (2, 1)
    again = life(FunctionModel(never))
    assert isinstance(again, AgentImage)
    assert again.to_raw() == done.to_raw().copy()

    other = make_agent(never)
    with SyncClient.open(url) as client:
        head = client.latest("s")
    reconstruct(head, other)
    assert other.memory.steps[0].task_images == [shown]
    assert other.state["image.png"].size == (8, 8)
    [picture, *_] = [part for one in to_transcript(head) for part in one.parts if isinstance(part, BlobPart)]
    assert picture.mime_type == "image/png"


def test_arguments_identify_a_run_and_are_variables_of_its_agent(url):
    page = PIL.Image.new("L", (4, 4))  # its address is in the text of the task
    plan = answer_in_steps([("look", {})], final("key"))

    def life(answer: Any, number: int) -> Any:
        agent = resumable(make_agent(answer, Look()), session_id="s", store=url)
        return agent.run("go", additional_args={"key": number, "page": page.copy(), "of": object()}, turn=None)

    with pytest.raises(Interrupted):
        life(interrupted_at(1, plan), 1)
    with pytest.raises(UnfinishedTurnError):
        life(plan, 2)
    second = FunctionModel(plan)
    assert life(second, 1) == 1
    assert second.asked == 1
    agent = make_agent(answer_in_steps(final("key")))
    assert resumable(agent, session_id="s", store=url).run("and the key?", reset=False) == 1


def test_an_answer_that_cant_be_stored_is_announced(url):
    class Odd:
        def __str__(self) -> str:
            return "an odd thing"

    agent = resumable(make_agent(final_key := (lambda _: final("thing"))), session_id="s", store=url)
    with pytest.warns(HoldfastWarning, match=r"the answer is a .*Odd, which can't be stored"):
        done = agent.run("go", additional_args={"thing": Odd()}, turn="1")
    assert isinstance(done, Odd)
    again = resumable(make_agent(final_key), session_id="s", store=url)
    assert again.run("go", additional_args={"thing": Odd()}, turn="1") == "an odd thing"


# -- refusals ----------------------------------------------------------------------------------------------------------


@survives("tools of a remote interpreter", "refused")
def test_what_resumable_does_not_take_is_refused(url):
    with pytest.raises(UsageError, match="takes an agent of smolagents"):
        resumable(object(), session_id="s", store=url)
    with pytest.raises(UsageError, match="in memory"):
        resumable(make_agent(never), session_id="s", store="memory://")
    agent = resumable(make_agent(never, Look()), session_id="s", store=url, tools={"look": "agent"})
    with pytest.raises(UsageError, match="declared as an agent"):
        agent.run("go")
    other = make_agent(never)
    other.managed_agents["odd"] = SimpleNamespace(name="odd", description="Odd.", inputs={}, output_type="string")
    with pytest.raises(UsageError, match="the managed agent 'odd'"):
        resumable(other, session_id="t", store=url).run("go")

    class Elsewhere(RemotePythonExecutor):
        def send_tools(self, tools: Any) -> None: ...

    logger = AgentLogger(LogLevel.OFF, Console(quiet=True))
    remote = CodeAgent(tools=[Look()], model=FunctionModel(never), executor=Elsewhere([], logger), logger=logger)
    with pytest.raises(UsageError, match=r"in another process \(Elsewhere\)"):
        resumable(remote, session_id="u", store=url).run("go")


def test_a_step_of_another_class_is_refused(url):
    class Note(MemoryStep):
        def to_messages(self, summary_mode: bool = False) -> list[Any]:
            return []

    agent = make_agent(answer_in_steps(final("done")))
    agent.step_callbacks.register(ActionStep, lambda _, agent: agent.memory.steps.append(Note()))
    with pytest.raises(UsageError, match="has a Note"):
        resumable(agent, session_id="s", store=url).run("go")


def test_without_smolagents_the_adapter_says_what_to_install(tmp_path):
    (tmp_path / "smolagents.py").write_text("raise ModuleNotFoundError('no', name='smolagents')")
    done = subprocess.run(
        [sys.executable, "-c", "import holdfast.smolagents"],
        env=SETTINGS | {"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "pip install 'holdfast[smolagents]'" in done.stderr


# -- forks, transcripts, states saved by hand --------------------------------------------------------------------------


def test_a_fork_goes_on_with_the_same_history(url):
    resumable(make_agent(count_tasks), session_id="s", store=url).run("one")
    with SyncClient.open(url) as client:
        client.fork("s", session_id="try-2")
    fork = resumable(make_agent(count_tasks), session_id="try-2", store=url)
    assert fork.run("two", reset=False) == "2 heard"
    assert resumable(make_agent(count_tasks), session_id="s", store=url).run("other", reset=False) == "2 heard"


def test_a_run_that_was_cut_off_has_a_transcript(url):
    plan = answer_in_steps([("look", {})], final("done"))
    with pytest.raises(Interrupted):
        resumable(make_agent(interrupted_at(1, plan), Look()), session_id="s", store=url).run("go")
    with SyncClient.open(url) as client:
        spoken = to_transcript(client.latest("s"))
    assert [one.role for one in spoken] == ["user", "assistant", "tool"]
    assert [call.name for one in spoken for call in one.tool_calls] == ["look"]


def test_a_state_saved_by_hand_comes_back(url):
    agent = make_agent(answer_in_steps([("look", {})], '{"name": "nothing"}', final("done")), Look())
    agent.run("go", additional_args={"limit": 5})
    checkpoint = extract(agent, agent_id="clerk", session_id="s", context={"of": "ann"})
    with SyncClient.open(url) as client:
        client.save_checkpoint(checkpoint)
        stored = client.latest("s")
    other = reconstruct(stored, make_agent(count_tasks, Look()))
    assert [one.to_messages() for one in other.memory.steps] == [one.to_messages() for one in agent.memory.steps]
    assert other.state == {"limit": 5}
    assert resumable(make_agent(count_tasks), session_id="s", store=url).run("more", reset=False) == "2 heard"
    roles = [one.role for one in to_transcript(stored)]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool"]
    for take in (lambda: extract("x", agent_id="a", session_id="s"), lambda: reconstruct(stored, "x")):
        with pytest.raises(UsageError, match="takes an agent of smolagents"):
            take()
    with pytest.raises(UsageError, match="takes a Checkpoint, not a str"):
        reconstruct("s", other)
