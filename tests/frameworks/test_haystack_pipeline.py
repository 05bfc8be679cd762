"""Haystack's pipelines: components, loops, streams, effects, and snapshots."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from stored_steps import wait_for_step
from survives import survives

require("haystack")

from haystack_model import FunctionModel, answer_once_called, call, echo, refuse, results_of  # isort: skip  # first

from haystack import Pipeline, SuperComponent, component
from haystack.components.agents import Agent
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import MockChatGenerator
from haystack.components.joiners import ListJoiner
from haystack.components.routers import LLMMessagesRouter
from haystack.core.errors import BreakpointException, PipelineRuntimeError
from haystack.dataclasses import Breakpoint, ChatMessage, Document
from haystack.tools import tool

from holdfast import NOT_DONE, Client, Done, Effect, SyncClient
from holdfast.errors import EffectUnknownError, ResultNotKeptError, UsageError
from holdfast.haystack import HoldfastSnapshots, extract, reconstruct, resumable
from holdfast.transcript import to_transcript


class Interrupted(BaseException):
    """What a kill does, in a test that stays in its process."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give Haystack another home directory: it makes one for snapshots there when a component fails."""
    monkeypatch.setenv("HOME", str(tmp_path))


def run(pipeline: Any, data: dict[str, Any], **options: Any) -> dict[str, Any]:
    return pipeline.run(data, **options)


def run_awaited(pipeline: Any, data: dict[str, Any], **options: Any) -> dict[str, Any]:
    return asyncio.run(pipeline.run_async(data, **options))


in_both_ways = pytest.mark.parametrize("go", [run, run_awaited])


@component
class Step:
    """A component that is a function of one value."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    @component.output_types(value=Any)
    def run(self, value: Any) -> dict[str, Any]:
        return {"value": self.function(value)}


def chain(**functions: Callable[[Any], Any]) -> Pipeline:
    """Return a pipeline of steps, one after the other."""
    pipeline, former = Pipeline(), None
    for name, function in functions.items():
        pipeline.add_component(name, Step(function))
        if former:
            pipeline.connect(f"{former}.value", f"{name}.value")
        former = name
    return pipeline


# -- components --------------------------------------------------------------------------------------------------------


@survives("finished components of a pipeline", "not run again")
@in_both_ways
def test_a_finished_component_is_not_run_again(url, go):
    called: list[str] = []

    def make(*, is_cut_off: bool) -> Any:
        def fetch(value: str) -> list[Document]:
            called.append("fetch")
            return [Document(content=value, meta={"page": 1}, score=0.5)]

        def rank(documents: list[Document]) -> tuple[Document, ...]:
            called.append("rank")
            if is_cut_off:
                raise Interrupted
            return tuple(documents)

        return resumable(chain(fetch=fetch, rank=rank), session_id="s", store=url)

    data = {"fetch": {"value": "text"}}
    with pytest.raises(Interrupted):
        go(make(is_cut_off=True), data)
    done = go(make(is_cut_off=False), data)
    assert done["rank"]["value"] == (Document(content="text", meta={"page": 1}, score=0.5),)
    assert called == ["fetch", "rank", "rank"]
    with SyncClient.open(url) as client:
        assert [one.step_name for one in client.timeline("s")] == ["run", "rank", "fetch", "run started"]


@component
class Speaker:
    """A component that says its name when `wait` returns."""

    def __init__(self, name: str, wait: Callable[[], None]) -> None:
        self.name, self.wait = name, wait

    @component.output_types(messages=list[ChatMessage])
    def run(self) -> dict[str, Any]:
        self.wait()
        return {"messages": [ChatMessage.from_user(self.name)]}


@survives("components side by side", "their outputs come in the order of the first life")
def test_a_model_that_reads_components_side_by_side_is_not_asked_again(url):
    """In the first life the second one ends first; the next one replays both at once."""
    heard: list[list[str | None]] = []

    def make(*, is_cut_off: bool) -> Any:
        def end(value: list[ChatMessage]) -> str | None:
            if is_cut_off:
                raise Interrupted
            return value[0].text

        def answer(messages: Sequence[ChatMessage]) -> str:
            heard.append([message.text for message in messages])
            return "concluded"

        pipeline = Pipeline()
        pipeline.add_component("first", Speaker("first", lambda: wait_for_step(url, "second")))
        pipeline.add_component("second", Speaker("second", lambda: None))
        pipeline.add_component("join", ListJoiner(list[ChatMessage]))
        pipeline.add_component("model", FunctionModel(answer))
        pipeline.add_component("end", Step(end))
        for name in ("first", "second"):
            pipeline.connect(f"{name}.messages", "join.values")
        pipeline.connect("join.values", "model.messages")
        pipeline.connect("model.replies", "end.value")
        return resumable(pipeline, session_id="s", store=url)

    with pytest.raises(Interrupted):
        run_awaited(make(is_cut_off=True), {})
    assert run_awaited(make(is_cut_off=False), {})["end"]["value"] == "concluded"
    assert heard == [["second", "first"]]


@survives("a component whose outputs can't be stored", "runs again")
@in_both_ways
def test_a_component_whose_outputs_cant_be_stored_runs_again(url, go):
    called: list[str] = []

    def connect(value: str) -> Any:
        called.append("connect")
        return threading.Lock()

    def use(lock: Any) -> str:
        called.append("use")
        if called.count("use") == 1:
            raise Interrupted
        return type(lock).__name__

    data = {"connect": {"value": "x"}}
    with pytest.raises(Interrupted):
        go(resumable(chain(connect=connect, use=use), session_id="s", store=url), data)
    assert go(resumable(chain(connect=connect, use=use), session_id="s", store=url), data)["use"]["value"] == "lock"
    assert called == ["connect", "use", "connect", "use"]


def test_outputs_of_a_pipeline_that_cant_be_stored_are_refused_by_name(url):
    with pytest.raises(ResultNotKeptError, match=r"connect\.value: a _thread\.lock can't be stored"):
        resumable(chain(connect=lambda _: threading.Lock()), session_id="s", store=url).run({"value": "x"})


def test_a_component_with_other_inputs_runs(url):
    called: list[Any] = []

    def make(first: str, *, is_cut_off: bool) -> Any:
        def change(_: Any) -> Any:
            return [first, threading.Lock()]  # it can't be stored, so it is made again

        def use(value: Any) -> str:
            called.append(value[0])
            return value[0]

        def end(value: str) -> str:
            if is_cut_off:
                raise Interrupted
            return value

        return resumable(chain(change=change, use=use, end=end), session_id="s", store=url)

    with pytest.raises(Interrupted):
        make("one", is_cut_off=True).run({"value": "x"})
    assert make("two", is_cut_off=False).run({"value": "x"})["end"]["value"] == "two"
    assert called == ["one", "two"]


@in_both_ways
def test_a_finished_run_returns_its_recorded_outputs(url, go):
    pipeline = Pipeline()
    template = [ChatMessage.from_user("say {{ word }}")]
    pipeline.add_component("prompt", ChatPromptBuilder(template=template, required_variables="*"))
    pipeline.add_component("llm", FunctionModel(lambda said: f"you said {said[-1].text}"))
    pipeline.connect("prompt.prompt", "llm.messages")
    turns = resumable(pipeline, session_id="s", store=url)
    done = go(turns, {"word": "yes"}, turn="1", include_outputs_from={"prompt"})
    pipeline.get_component("llm").answer = refuse().answer
    assert go(turns, {"word": "yes"}, turn="1", include_outputs_from={"prompt"}) == done
    assert done["llm"]["replies"][0].text == "you said say yes"
    with SyncClient.open(url) as client:
        assert [one.text for one in to_transcript(client.latest("s"))] == ["say yes", "you said say yes"]


@in_both_ways
def test_an_agent_in_a_loop_of_a_pipeline_makes_the_calls_of_each_visit(url, go):
    """Visits with equal inputs are told apart, also if the first one is not looked into again."""
    added: list[int] = []

    @tool
    def add() -> int:
        """Add one."""
        added.append(1)
        return len(added)

    @component
    class Check:
        """A component that sends the same question again until the answer is 3."""

        @component.output_types(again=list[ChatMessage], done=str)
        def run(self, answer: ChatMessage) -> dict[str, Any]:
            if answer.text.endswith("3"):
                return {"done": answer.text}
            return {"again": [ChatMessage.from_user("go")]}

    @component
    class Door:
        """A component that takes the question from outside, or from the loop."""

        @component.output_types(messages=list[ChatMessage])
        def run(self, first: str | None = None, again: list[ChatMessage] | None = None) -> dict[str, Any]:
            return {"messages": again or [ChatMessage.from_user("go")]}

    def life(*, is_cut_off: bool) -> Any:
        model = answer_once_called(call("add"))
        answer = model.answer
        model.answer = lambda said: interrupt() if is_cut_off and results_of(said) == ["2"] else answer(said)
        pipeline = Pipeline()
        pipeline.add_component("door", Door())
        pipeline.add_component("agent", Agent(chat_generator=model, tools=[add]))
        pipeline.add_component("check", Check())
        pipeline.connect("door.messages", "agent.messages")
        pipeline.connect("agent.last_message", "check.answer")
        pipeline.connect("check.again", "door.again")
        return go(resumable(pipeline, session_id="s", store=url), {"door": {"first": "go"}})

    def interrupt() -> Any:
        raise Interrupted

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    assert life(is_cut_off=False)["check"]["done"] == "done: 3"
    assert len(added) == 3


@survives("a component under way", "runs again, with its calls replayed")
@in_both_ways
def test_models_agents_and_pipelines_that_a_component_holds_record_their_calls(url, go):
    looked: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        looked.append("")
        return "seen"

    @component
    class Office:
        def __init__(self, agents: list[Agent], inner: Pipeline) -> None:
            self.agents = agents
            self.inner = {"pipeline": inner}
            self.begun = 0

        @component.output_types(text=str)
        def run(self, question: str) -> dict[str, str]:
            self.begun += 1
            said = [agent.run([ChatMessage.from_user(question)])["last_message"].text for agent in self.agents]
            told = self.inner["pipeline"].run({"value": ", ".join(said)})
            return {"text": told["last"]["value"]}

    def make(*, is_cut_off: bool) -> tuple[Any, FunctionModel]:
        def last(value: str) -> str:
            if is_cut_off:
                raise Interrupted
            return f"last {value}"

        model = answer_once_called(call("look"))
        pipeline = Pipeline()
        pipeline.add_component("office", Office([Agent(chat_generator=model, tools=[look])], chain(last=last)))
        return resumable(pipeline, session_id="s", store=url), model

    for is_cut_off, asked in ((True, 2), (False, 0)):
        pipeline, model = make(is_cut_off=is_cut_off)
        if is_cut_off:
            with pytest.raises(Interrupted):
                go(pipeline, {"question": "it"})
        else:
            assert go(pipeline, {"question": "it"})["office"]["text"] == "last done: seen"
        assert model.asked == asked
        office = pipeline.pipeline.get_component("office")
        assert (office.begun, office.agents[0].chat_generator) == (1, model)
    assert len(looked) == 1


def test_a_model_within_a_component_of_haystack_is_asked_once(url):
    models = [MockChatGenerator("news"), FunctionModel(lambda _: "news")]

    def life(model: Any, *, is_cut_off: bool) -> Any:
        router = LLMMessagesRouter(model, output_names=["news", "other"], output_patterns=["news", ".*"])
        inner = Pipeline()
        inner.add_component("router", router)
        inner.add_component("end", Step(lambda said: interrupt() if is_cut_off else said[0].text))
        inner.connect("router.news", "end.value")
        outer = Pipeline()
        mapping = {"messages": ["router.messages"]}
        outer.add_component("inner", SuperComponent(inner, mapping, {"end.value": "value"}))
        given = {"inner": {"messages": [ChatMessage.from_user("what is this?")]}}
        return resumable(outer, session_id="s", store=url).run(given)

    def interrupt() -> Any:
        raise Interrupted

    with pytest.raises(Interrupted):
        life(models[1], is_cut_off=True)
    assert life(refuse(), is_cut_off=False)["inner"]["value"] == "what is this?"
    assert models[1].asked == 1


# -- effects -----------------------------------------------------------------------------------------------------------


@survives("a declared component under way", "looked up by its probe")
@in_both_ways
def test_a_component_that_is_declared_is_carried_out_once(url, go):
    sent: list[str] = []

    def send(documents: list[Document]) -> str:
        sent.append(documents[0].content)
        raise Interrupted

    def make(probe: Any) -> Any:
        pipeline = chain(write=lambda value: [Document(content=value)], send=send, end=lambda value: f"end {value}")
        effects = {"send": Effect("irreversible", key=lambda value: value[0].id, probe=probe)}
        return resumable(pipeline, session_id="s", store=url, tools=effects)

    def find(value: list[Document]) -> Any:
        return Done({"value": f"sent {value[0].content}"}) if value[0].content in sent else NOT_DONE

    data = {"write": {"value": "letter"}}
    with pytest.raises(Interrupted):
        go(make(None), data)
    with pytest.raises(EffectUnknownError, match="send"):  # there is no model that could be told of it
        go(make(None), data)
    assert go(make(find), data)["end"]["value"] == "end sent letter"
    assert sent == ["letter"]


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_run_that_was_begun_is_finished_by_a_stream(url):
    def make(*, is_cut_off: bool) -> Any:
        pipeline = Pipeline(connection_type_validation=False)
        pipeline.add_component("first", MockChatGenerator("one two"))
        pipeline.add_component("next", Step(lambda said: interrupt() if is_cut_off else said))
        pipeline.add_component("second", MockChatGenerator("three four"))
        pipeline.connect("first.replies", "next.value")
        pipeline.connect("next.value", "second.messages")
        return resumable(pipeline, session_id="s", store=url)

    def interrupt() -> Any:
        raise Interrupted

    data = {"first": {"messages": [ChatMessage.from_user("count")]}}

    async def stream() -> tuple[str, Any]:
        handle = make(is_cut_off=False).stream(data)
        chunks = [chunk.content async for chunk in handle]
        return "".join(chunks), handle.result

    with pytest.raises(Interrupted):
        make(is_cut_off=True).run(data)
    text, result = asyncio.run(stream())
    assert (text, result["second"]["replies"][0].text) == ("three four", "three four")

    async def generate() -> list[Any]:
        pipeline = make(is_cut_off=False)
        return [one async for one in pipeline.run_async_generator(data, {"first"})]

    outputs = asyncio.run(generate())  # another turn: it includes other outputs
    assert [sorted(one) for one in outputs] == [["first"], ["second"], ["first", "second"]]
    assert [sorted(one) for one in asyncio.run(generate())] == [["first"], ["second"], ["first", "second"]]


def test_a_generator_that_is_not_read_to_its_end_is_continued(url):
    called: list[str] = []

    def note(name: str) -> Callable[[Any], Any]:
        return lambda value: called.append(name) or f"{value}{name}"

    async def generate(*, is_whole: bool) -> Any:
        generator = pipeline.run_async_generator({"value": ""}, {"a", "b"}, turn="1")
        outputs = [await anext(generator)]
        if is_whole:
            outputs += [one async for one in generator]
        await generator.aclose()
        return outputs[-1]

    pipeline = resumable(chain(a=note("a"), b=note("b"), c=note("c")), session_id="s", store=url)
    asyncio.run(generate(is_whole=False))
    done = asyncio.run(generate(is_whole=True))
    assert (done["c"]["value"], called.count("a")) == ("abc", 1)
    assert asyncio.run(generate(is_whole=True)) == done
    assert called == ["a", "b", "c"]


# -- Haystack's own snapshots ------------------------------------------------------------------------------------------


def test_snapshots_are_kept_in_a_store_and_continue_a_pipeline(url):
    called: list[str] = []

    def make(*, fails: bool = False) -> Pipeline:
        def first(value: str) -> list[Document]:
            called.append("first")
            return [Document(content=value)]

        def second(value: list[Document]) -> str:
            called.append("second")
            if fails:
                raise ValueError("no")
            return value[0].content

        pipeline = Pipeline()
        pipeline.add_component("first", Typed(first))
        pipeline.add_component("second", Step(second))
        pipeline.connect("first.documents", "second.value")
        return pipeline

    snapshots = HoldfastSnapshots("s", store=url)
    assert snapshots.load() is None
    with pytest.raises(BreakpointException):
        make().run({"first": {"value": "x"}}, break_point=Breakpoint("second"), snapshot_callback=snapshots)
    with pytest.raises(PipelineRuntimeError):
        make(fails=True).run({}, pipeline_snapshot=snapshots.load(), snapshot_callback=snapshots)
    assert make().run({}, pipeline_snapshot=snapshots.load())["second"]["value"] == "x"
    assert called == ["first", "second", "second"]
    snapshots.close()
    with SyncClient.open(url) as client:
        assert [one.step_name for one in client.timeline("s")] == ["second", "second"]
        stored = client.latest("s")
    snapshot = reconstruct(stored, make())
    again = extract(snapshot, agent_id="a", session_id="other")
    assert again.execution_state["snapshot"] == stored.execution_state["snapshot"]


@component
class Typed:
    def __init__(self, function: Callable[[str], list[Document]]) -> None:
        self.function = function

    @component.output_types(documents=list[Document])
    def run(self, value: str) -> dict[str, Any]:
        return {"documents": self.function(value)}


def test_a_resumable_pipeline_takes_breakpoints_but_no_snapshots(url):
    pipeline = resumable(chain(a=lambda value: f"{value}a", b=lambda value: f"{value}b"), session_id="s", store=url)
    with pytest.raises(BreakpointException) as stopped:
        pipeline.run({"value": ""}, break_point=Breakpoint("b"))
    with pytest.raises(UsageError, match="pipeline_snapshot="):
        pipeline.run({"value": ""}, pipeline_snapshot=stopped.value.pipeline_snapshot)
    assert pipeline.run({"value": ""})["b"]["value"] == "ab"


def test_blocking_code_in_the_event_loop_is_told_what_to_do():
    @component
    class Impatient:
        def __init__(self, agent: Agent) -> None:
            self.agent = agent

        @component.output_types(text=str)
        def run(self, question: str) -> dict[str, str]:
            return {"text": self.agent.run([ChatMessage.from_user(question)])["last_message"].text}

        @component.output_types(text=str)
        async def run_async(self, question: str) -> dict[str, str]:
            return self.run(question)

    pipeline = Pipeline()
    pipeline.add_component("impatient", Impatient(Agent(chat_generator=echo())))

    async def main() -> None:
        async with Client.memory() as client:
            with pytest.raises(UsageError, match="run_async"):
                await resumable(pipeline, session_id="s", store=client).run_async({"question": "x"})

    asyncio.run(main())
