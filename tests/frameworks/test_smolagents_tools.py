"""Tools, managed agents and plans of resumable smolagents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("smolagents")

from smolagents import (
    Tool,
    ToolCallingAgent,
    UserInputTool,
    tool,
)
from smolagents.memory import PlanningStep
from smolagents_model import FunctionModel, answer_in_steps, final, text_of
from smolagents_runs import Interrupted, Look, interrupted_at, make_agent, never

from holdfast import Effect, SyncClient
from holdfast.errors import ApprovalPendingError
from holdfast.smolagents import reconstruct, resumable
from holdfast.transcript import ToolResponsePart, to_transcript


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@survives("failures of tools", "raised again")
def test_a_failure_of_a_tool_reaches_the_model_in_every_life(url):
    called: list[str] = []

    class OddError(Exception):
        pass

    class Fail(Tool):
        name, description, inputs, output_type = "fail", "Fails.", {}, "string"

        def forward(self) -> str:
            called.append("fail")
            raise (KeyError("no such key") if len(called) == 1 else OddError("odd"))

    plan = answer_in_steps([("fail", {})], [("fail", {})], final("done"))
    first, second = FunctionModel(interrupted_at(2, plan)), FunctionModel(plan)
    for kind in ({}, {"fail": "read"}, {"fail": Effect("irreversible", not_done=(Exception,))}):
        called.clear()
        first.answer, first.asked, second.asked = interrupted_at(2, plan), 0, 0
        session = f"s{len(kind)}{kind.get('fail')!r:.8}"
        with pytest.raises(Interrupted):
            resumable(make_agent(first, Fail()), session_id=session, store=url, tools=kind).run("go")
        agent = make_agent(second, Fail())
        assert resumable(agent, session_id=session, store=url, tools=kind).run("go") == "done"
        assert len(called) == 2, kind
        assert (first.asked, second.asked) == (3, 1), kind
        errors = [str(one.error) for one in agent.memory.steps if getattr(one, "error", None)]
        assert [name in error for name, error in zip(("KeyError: 'no such key'", "OddError: odd"), errors, strict=True)]


@survives("calls in the text of an answer", "replayed")
def test_calls_in_the_text_of_an_answer_are_the_same_calls_in_every_life(url):
    plan = answer_in_steps('{"name": "look", "arguments": {}}', '{"name": "look", "arguments": {}}', final("done"))
    with pytest.raises(Interrupted):
        resumable(make_agent(interrupted_at(2, plan), Look()), session_id="s", store=url).run("go")
    second = FunctionModel(plan)
    assert resumable(make_agent(second, Look()), session_id="s", store=url).run("go") == "done"
    assert second.asked == 1  # smolagents draws the ids of such calls by lot, and sends them to the model


@survives("finished tool calls", "replayed, also those of parallel calls")
def test_tools_of_one_step_are_recorded_in_their_threads(url):
    called: list[int] = []

    class Square(Tool):
        name, description, output_type = "square", "Squares.", "integer"
        inputs = {"number": {"type": "integer", "description": "It."}}  # noqa: RUF012 - as smolagents wants it

        def forward(self, number: int) -> int:
            called.append(number)
            if number == 7 and is_cut_off:
                raise Interrupted
            return number * number

    calls = [("square", {"number": number}) for number in range(8)]
    plan = answer_in_steps(calls, final("done"))
    is_cut_off = True
    with pytest.raises(Interrupted):
        resumable(make_agent(plan, Square()), session_id="s", store=url).run("go")
    is_cut_off = False
    agent = make_agent(plan, Square())
    assert resumable(agent, session_id="s", store=url, tools={}).run("go") == "done"
    assert sorted(called) == list(range(8))
    assert agent.memory.steps[1].observations.startswith("0\n1\n4\n9\n16\n25\n36\nThis call was interrupted")
    with SyncClient.open(url) as client:
        parts = [part for one in to_transcript(client.latest("s")) for part in one.parts]
    answered = [part.content[0].content for part in parts if isinstance(part, ToolResponsePart)]
    assert answered[:3] == ["0", "1", "4"]  # each call has its own


def test_a_declaration_is_found_on_tool_class_and_function(url):
    paid: list[str] = []

    @Effect("irreversible")
    class Pay(Tool):
        name, description, inputs, output_type = "pay", "Pays.", {}, "string"

        def forward(self) -> str:
            paid.append("class")
            raise Interrupted

    class Send(Tool):
        name, description, inputs, output_type = "send", "Sends.", {}, "string"

        @Effect("irreversible")
        def forward(self) -> str:
            paid.append("function")
            raise Interrupted

    @tool
    def read() -> str:
        """Reads."""
        paid.append("read")
        raise Interrupted

    for number, one in enumerate((Pay(), Send(), Effect("read")(read))):
        answer = answer_in_steps([(one.name, {})], final("done"))
        for _ in range(2):
            with pytest.raises(Interrupted):
                resumable(make_agent(answer, one), session_id=f"s{number}", store=url).run("go")
            if number < 2:
                agent = make_agent(answer, one)
                assert resumable(agent, session_id=f"s{number}", store=url).run("go") == "done"
                assert "Don't repeat it" in agent.memory.steps[1].observations
                break
    assert paid == ["class", "function", "read", "read"]


def test_tools_of_smolagents_that_read_need_no_declaration(url, monkeypatch):
    answers: Iterator[Any] = iter([Interrupted(), "blue"])

    def read_line(_: str) -> str:
        given = next(answers)
        if isinstance(given, BaseException):
            raise given
        return str(given)

    monkeypatch.setattr("builtins.input", read_line)
    answer = answer_in_steps([("user_input", {"question": "which?"})], final("done"))
    with pytest.raises(Interrupted):
        resumable(make_agent(answer, UserInputTool()), session_id="s", store=url).run("go")
    agent = make_agent(answer, UserInputTool())
    assert resumable(agent, session_id="s", store=url).run("go") == "done"
    assert agent.memory.steps[1].observations == "blue"  # asked again, not answered with an interruption


@survives("people's answers", "asked for once")
def test_a_person_approves_changes_or_rejects_a_call(url):
    paid: list[tuple[str, int]] = []

    @tool
    def pay(invoice: str, amount: int = 5) -> str:
        """Pays.

        Args:
            invoice: Which.
            amount: How much.
        """
        paid.append((invoice, amount))
        return f"receipt {amount}"

    effect = {"pay": Effect("irreversible", key="invoice", approve="finance")}
    plan = answer_in_steps([("pay", {"invoice": "7"})], final("done"))

    def life(session: str) -> Any:
        agent = make_agent(plan, pay)
        resumable(agent, session_id=session, store=url, tools=effect).run("go")
        return agent.memory.steps[1].observations

    def decide(*answer: Any, **options: Any) -> None:
        with SyncClient.open(url) as client:
            [asked] = client.approvals()
            assert asked.arguments == {"invoice": "7", "amount": 5}
            client.decide(asked.approval_id, *answer, by="ann", **options)

    for session, decision, observed in (
        ("yes", {"answer": ("approve",)}, "receipt 5"),
        ("less", {"answer": ("modify",), "arguments": {"invoice": "7", "amount": 3}}, "receipt 3"),
        ("no", {"answer": ("reject",), "note": "not now"}, "not now"),
    ):
        with pytest.raises(ApprovalPendingError):
            life(session)
        options = {name: value for name, value in decision.items() if name != "answer"}
        decide(*decision["answer"], **options)
        assert observed in life(session)
    assert paid == [("7", 5), ("7", 3)]


# -- managed agents and plans ------------------------------------------------------------------------------------------


@survives("managed agents", "their calls are replayed")
def test_calls_of_managed_agents_are_recorded(url):
    called: list[str] = []

    class Count(Look):
        def forward(self) -> str:
            called.append("look")
            return "seen"

    def make_team(top: Any, deep: Any) -> ToolCallingAgent:
        digger = make_agent(deep, Count(), name="digger", description="Digs.")
        middle = make_agent(
            answer_in_steps([("digger", {"task": "dig"})], final("dug")),
            name="middle",
            description="Leads.",
            managed_agents=[digger],
        )
        return make_agent(top, managed_agents=[middle])

    top = answer_in_steps([("middle", {"task": "lead"})], final("all done"))
    deep = answer_in_steps([("look", {})], final("deep"))
    with pytest.raises(Interrupted):
        resumable(make_team(top, interrupted_at(1, deep)), session_id="s", store=url).run("go")
    team = make_team(FunctionModel(top), FunctionModel(deep))
    assert resumable(team, session_id="s", store=url).run("go") == "all done"
    assert called == ["look"]
    middle = team.managed_agents["middle"]
    assert [team.model.asked, middle.managed_agents["digger"].model.asked] == [1, 1]
    with SyncClient.open(url) as client:
        names = {one.step_name for one in client.timeline("s")}
    assert {"middle", "digger", "look", "agent"} <= names  # each call under the name of its agent


@survives("plans", "asked for once")
def test_a_plan_is_asked_for_once(url):
    def answer(messages: Any) -> Any:
        if "<end_plan>" in text_of(messages[-1]):
            planned.append(1)
            return f"plan {len(planned)}"
        steps = answer_in_steps([("look", {})], [("look", {})], [("look", {})], final("done"))
        return steps(messages)

    planned: list[int] = []
    with pytest.raises(Interrupted):
        agent = make_agent(interrupted_at(5, answer), Look(), planning_interval=2)
        resumable(agent, session_id="s", store=url).run("go")
    assert len(planned) == 2
    agent = make_agent(answer, Look(), planning_interval=2)
    assert resumable(agent, session_id="s", store=url).run("go", turn=None) == "done"
    assert len(planned) == 2
    plans = [one.plan for one in agent.memory.steps if isinstance(one, PlanningStep)]
    other = make_agent(never, Look(), planning_interval=2)
    with SyncClient.open(url) as client:
        reconstruct(client.latest("s"), other)
    assert [one.plan for one in other.memory.steps if isinstance(one, PlanningStep)] == plans
