"""Tools and sub-agents of resumable Haystack agents."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("haystack")

from haystack_model import FunctionModel, answer_once_called, call, results_of  # isort: skip  # first

from haystack import Pipeline, component
from haystack.components.agents import Agent, State
from haystack.dataclasses import ChatMessage, Document
from haystack.hooks import hook
from haystack.tools import AgentTool, ComponentTool, PipelineTool, SearchableToolset, Toolset, tool
from haystack.tools.errors import ToolInvocationError
from haystack_turns import Interrupted, in_both_ways, run, say

from holdfast import NOT_DONE, Done, Effect, SyncClient
from holdfast.haystack import resumable


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


# -- tools -------------------------------------------------------------------------------------------------------------


@survives("failures of tools", "given to the model again, word for word")
@in_both_ways
@pytest.mark.parametrize("kind", ["read", "irreversible"])
def test_a_failure_of_a_tool_reads_the_same_in_every_life(url, go, kind):
    read: list[str] = []

    @tool
    def fail(what: str, state: State) -> str:
        """Fail."""
        raise ValueError(f"no {what} {uuid.uuid4()}")

    def life(*, is_cut_off: bool) -> Any:
        model = answer_once_called(call("fail", what="luck"))
        answer = model.answer
        model.answer = lambda said: answer(said) if not results_of(said) or not is_cut_off else interrupt(said)
        agent = Agent(chat_generator=model, tools=[fail])
        return go(resumable(agent, session_id="s", store=url, tools={"fail": kind}), "go")["last_message"].text

    def interrupt(said: Any) -> Any:
        read.append(f"done: {', '.join(results_of(said))}")
        raise Interrupted

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    assert life(is_cut_off=False) == read[0]
    assert "Failed to invoke Tool `fail`" in read[0]
    assert "no luck" in read[0]


@in_both_ways
@pytest.mark.parametrize(
    ("tools", "heard", "times"), [({"flaky": "read"}, "it works", 2), ({}, "outcome is unknown", 1)]
)
def test_a_read_whose_failure_ended_the_run_is_tried_again(url, go, tools, heard, times):
    tried: list[str] = []

    @tool
    def flaky() -> str:
        """Work at the second time."""
        tried.append("")
        if len(tried) == 1:
            raise ConnectionError("not yet")
        return "it works"

    agent = Agent(
        chat_generator=answer_once_called(call("flaky")), tools=[flaky], raise_on_tool_invocation_failure=True
    )
    agent = resumable(agent, session_id="s", store=url, tools=tools)
    with pytest.raises(ToolInvocationError, match="not yet"):
        go(agent, "go")
    assert heard in go(agent, "go")["last_message"].text
    assert len(tried) == times


@survives("a declared tool under way", "looked up by its probe")
def test_a_probe_answers_with_the_objects_of_haystack(url):
    paid: list[str] = []

    @tool(outputs_to_state={"receipts": {"source": "receipt"}})
    def pay(invoice: str) -> dict[str, Any]:
        """Pay."""
        paid.append(invoice)
        raise Interrupted

    def find(invoice: str) -> Any:
        return Done({"receipt": Document(content=f"receipt {invoice}")}) if invoice in paid else NOT_DONE

    def life() -> Any:
        model = answer_once_called(call("pay", invoice="a"))
        agent = Agent(chat_generator=model, tools=[pay], state_schema={"receipts": {"type": list[Document]}})
        effects = {"pay": Effect("irreversible", key="invoice", probe=find)}
        return run(resumable(agent, session_id="s", store=url, tools=effects), "pay")

    with pytest.raises(Interrupted):
        life()
    assert [one.content for one in life()["receipts"]] == ["receipt a"]
    assert paid == ["a"]


def test_a_result_that_cant_be_stored_is_recorded_as_the_text_that_the_model_reads(url):
    class Answer:
        def to_dict(self) -> dict[str, int]:
            return {"number": 42}

    @tool
    def ask() -> Answer:
        """Ask."""
        return Answer()

    alone = Agent(chat_generator=answer_once_called(call("ask")), tools=[ask]).run(say("go"))["last_message"].text
    agent = Agent(chat_generator=answer_once_called(call("ask")), tools=[ask])
    assert run(resumable(agent, session_id="s", store=url), "go")["last_message"].text == alone
    assert "42" in alone


@survives("what a tool changed in the `State`", "changed again")
@in_both_ways
def test_what_a_tool_changes_in_the_state_is_changed_again(url, go):
    called: list[str] = []

    @tool
    def note(text: str, state: State) -> str:
        """Note something."""
        called.append(text)
        state.set("notes", [text])
        state.set("last", Document(content=text))
        return "noted"

    def life(*, is_cut_off: bool) -> Any:
        model = answer_once_called(call("note", text="a"), call("note", text="b"))
        answer = model.answer
        model.answer = lambda said: answer(said) if len(results_of(said)) < 2 or not is_cut_off else interrupt()
        schema = {"notes": {"type": list[str]}, "last": {"type": Document}}
        agent = Agent(chat_generator=model, tools=[note], state_schema=schema)
        return go(resumable(agent, session_id="s", store=url), "go", notes=["before"])

    def interrupt() -> Any:
        raise Interrupted

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    done = life(is_cut_off=False)
    assert (done["notes"], done["last"].content, called) == (["before", "a", "b"], "b", ["a", "b"])


@survives("tools that a `SearchableToolset` found", "found again")
@in_both_ways
def test_tools_that_a_toolset_finds_are_found_in_every_life(url, go):
    called: list[str] = []

    def make(name: str) -> Any:
        def function(words: str) -> str:
            called.append(name)
            return f"{name} {words}"

        return tool(function, name=name, description=f"{name} things")

    def life(*, is_cut_off: bool) -> Any:
        first = call("search_tools", tool_keywords="juggle", k=1)
        model = answer_once_called(first, call("juggle", words="balls"), call("plain", words="words"))
        answer = model.answer
        model.answer = lambda said: answer(said) if len(results_of(said)) < 2 or not is_cut_off else interrupt()
        catalog = [make(name) for name in ("juggle", *(f"other{number}" for number in range(9)))]
        tools = [SearchableToolset(catalog), Toolset([make("plain")])]
        return go(resumable(Agent(chat_generator=model, tools=tools), session_id="s", store=url), "go")

    def interrupt() -> Any:
        raise Interrupted

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    done = life(is_cut_off=False)
    assert done["last_message"].text.endswith("juggle balls, plain words")
    assert called == ["juggle", "plain"]


def test_tools_are_chosen_for_a_run_by_name_or_given_to_it(url):
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @tool
    def drop() -> str:
        """Drop."""
        return "dropped"

    seen: list[list[str]] = []

    @hook
    def look(state: State) -> None:
        seen.append(sorted(one.name for one in state.get("tools")))  # a copy, of our proxies too

    for number, chosen in enumerate((["add"], [add], Toolset([add, drop]))):
        given = Toolset([add, drop]) if number == 0 else [drop]
        model = answer_once_called(call("add", a=1, b=2))
        agent = Agent(chat_generator=model, tools=given, hooks={"before_llm": [look]})
        done = run(resumable(agent, session_id=f"s{number}", store=url), "go", tools=chosen)
        assert done["last_message"].text == "done: 3"
        with SyncClient.open(url) as client:
            assert "add" in [one.step_name for one in client.timeline(f"s{number}")]
    assert seen == [["add"]] * 4 + [["add", "drop"]] * 2


# -- sub-agents --------------------------------------------------------------------------------------------------------


@component
class Department:
    """A component of the user's own that holds an agent."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    @component.output_types(answer=str)
    def run(self, question: str) -> dict[str, str]:
        return {"answer": self.agent.run(say(question))["last_message"].text}


def make_sub_agent(kind: str, researcher: Agent) -> tuple[Any, Any]:
    """Return a tool with an agent in it, and a call of it."""
    if kind == "agent":
        return AgentTool(researcher, name="ask", description="Ask."), {"messages": [{"role": "user", "content": "it"}]}
    if kind == "component":
        return ComponentTool(Department(researcher), name="ask", description="Ask."), {"question": "it"}
    pipeline = Pipeline()
    pipeline.add_component("department", Department(researcher))
    made = PipelineTool(
        pipeline,
        name="ask",
        description="Ask.",
        input_mapping={"question": ["department.question"]},
        output_mapping={"department.answer": "answer"},
    )
    return made, {"question": "it"}


@survives("sub-agents (`AgentTool`, `ComponentTool`, `PipelineTool`)", "their calls are replayed")
@in_both_ways
@pytest.mark.parametrize("kind", ["agent", "component", "pipeline"])
def test_calls_of_an_agent_that_is_a_tool_are_recorded_within(url, go, kind):
    looked: list[str] = []

    @tool
    def look(words: str) -> str:
        """Look."""
        looked.append(words)
        return f"seen {words}"

    def life(*, is_cut_off: bool) -> Any:
        inner = answer_once_called(call("look", words="x"), call("look", words="y"))
        answer = inner.answer
        inner.answer = lambda said: answer(said) if len(results_of(said)) < 2 or not is_cut_off else interrupt()
        ask, arguments = make_sub_agent(kind, Agent(chat_generator=inner, tools=[look]))
        outer = answer_once_called(call("ask", **arguments))
        agent = resumable(Agent(chat_generator=outer, tools=[ask]), session_id="s", store=url)
        return go(agent, "go")["last_message"].text, outer.asked, inner.asked

    def interrupt() -> Any:
        raise Interrupted

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    text, outer, inner = life(is_cut_off=False)
    assert "done: seen x, seen y" in text
    assert (outer, inner, looked) == (1, 1, ["x", "y"])


def test_equal_sub_agents_at_the_same_time_keep_their_calls(url):
    looked: list[str] = []

    @tool
    def look(words: str) -> str:
        """Look."""
        looked.append(words)
        return f"seen {words}"

    def inner(said: Any) -> Any:
        words = said[-1].text
        return f"{said[0].text}: {results_of(said)[0]}" if results_of(said) else message(call("look", words=words))

    def message(*calls: Any) -> ChatMessage:
        return ChatMessage.from_assistant(tool_calls=list(calls))

    def life(*, is_cut_off: bool) -> str:
        researcher = Agent(chat_generator=FunctionModel(inner), tools=[look])
        ask = AgentTool(researcher, name="ask", description="Ask.")
        calls = [call("ask", str(n), messages=[{"role": "user", "content": f"q{n}"}]) for n in range(4)]
        model = answer_once_called(calls)
        answer = model.answer
        model.answer = lambda said: answer(said) if not results_of(said) or not is_cut_off else interrupt()
        return run(resumable(Agent(chat_generator=model, tools=[ask]), session_id="s", store=url), "go")[
            "last_message"
        ].text

    def interrupt() -> Any:
        raise Interrupted

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    assert life(is_cut_off=False) == "done: " + ", ".join(f"q{n}: seen q{n}" for n in range(4))
    assert sorted(looked) == ["q0", "q1", "q2", "q3"]
