"""People and AG2's agents: approvals of tools, questions, hooks of the user's own, parallel questions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("ag2")

from ag2 import Agent, Context, Plugin, tool
from ag2.events import BaseEvent, HumanInputRequest, HumanMessage, ToolCallEvent
from ag2.exceptions import HumanInputFailedError
from ag2.middleware.builtin.tools import approval_required
from ag2.tools import LocalEnvironment, SandboxShellTool
from ag2_model import FunctionConfig, call, results_of

from holdfast import Client, Effect
from holdfast.ag2 import resumable
from holdfast.errors import ApprovalPendingError


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def run(test: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(test())


def text_of(result: Any) -> str:
    return ", ".join(str(getattr(part, "content", getattr(part, "data", part))) for part in result.result.parts)


def make_model(*calls: ToolCallEvent) -> FunctionConfig:
    """Return a model that makes all calls at once, then says what they returned."""

    def answer(events: Sequence[BaseEvent]) -> Any:
        results = results_of(events)
        return f"done: {', '.join(map(text_of, results))}" if results else list(calls)

    return FunctionConfig(answer)


async def decide(url: str, decision: str = "approve", **options: Any) -> list[tuple[str, Any]]:
    """Decide all that waits; return what it was."""
    async with Client.open(url) as client:
        waiting = await client.approvals("s")
        for asked in waiting:
            await client.decide(asked.approval_id, decision, by="ann", **options)
        return [(asked.call.tool, dict(asked.arguments)) for asked in waiting]


@survives("questions to a person", "wait, and keep their answer")
@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_an_approval_is_decided_by_another_process(url, tmp_path, decision):
    called = []
    config = make_model(call("archive", invoice="7"))

    @tool(middleware=[approval_required()])
    async def archive(invoice: str) -> str:
        called.append(invoice)
        return "archived"

    async def life() -> str | None:
        agent = Agent("clerk", config=config, tools=[archive])
        tools = {"archive": Effect("irreversible", key="invoice")}
        return (await resumable(agent, session_id="s", store=url, tools=tools).ask("go", turn="1")).body

    for _ in range(2):  # it waits
        with pytest.raises(ApprovalPendingError, match="archive"):
            run(life)
    assert called == []

    async def find() -> str:
        async with Client.open(url) as client:
            [asked] = await client.approvals("s")
        assert (asked.call.tool, asked.arguments) == ("archive", {"invoice": "7"})
        return asked.approval_id

    words = [sys.executable, "-m", "holdfast", "--store", url, decision, run(find), "--yes", "--by", "ann"]
    if decision == "reject":
        words.remove("--yes")
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    wanted = "done: archived" if decision == "approve" else "done: User denied the tool call request"
    assert run(life) == wanted
    assert run(life) == wanted  # recorded
    assert called == (["7"] if decision == "approve" else [])
    assert len(config.requests) == 2


def test_a_person_changes_the_arguments(url):
    async def main() -> None:
        @tool(middleware=[approval_required()])
        async def pay(amount: int) -> str:
            return f"paid {amount}"

        agent = resumable(
            Agent("clerk", config=make_model(call("pay", amount=500)), tools=[pay]), session_id="s", store=url
        )
        with pytest.raises(ApprovalPendingError):
            await agent.ask("go", turn="1")
        await decide(url, "modify", arguments={"amount": 50})
        assert (await agent.ask("go", turn="1")).body == "done: paid 50"

    run(main)


def test_a_tool_that_is_denied_may_be_called_later(url):
    """What a person denies was not carried out: the ledger has nothing of it."""

    async def main() -> None:
        @tool(middleware=[approval_required()])
        async def pay(invoice: str) -> str:
            return f"paid {invoice}"

        tools = {"pay": Effect("irreversible", key="invoice")}
        agent = resumable(
            Agent("clerk", config=make_model(call("pay", invoice="7")), tools=[pay]),
            session_id="s",
            store=url,
            tools=tools,
        )
        for turn, decision, said in (("1", "reject", "User denied the tool call request"), ("2", "approve", "paid 7")):
            with pytest.raises(ApprovalPendingError):
                await agent.ask("go", turn=turn)
            await decide(url, decision)
            assert (await agent.ask("go", turn=turn)).body == f"done: {said}"

    run(main)


def test_parallel_calls_end_before_the_turn_does_and_all_questions_wait(url):
    """AG2 cancels the other calls when one ends the turn. Here they end first, and are not made again."""
    events: list[str] = []

    @tool(middleware=[approval_required()])
    async def pay(invoice: str) -> str:
        events.append(f"paid {invoice}")
        return f"paid {invoice}"

    async def slow() -> str:
        events.append("slow begins")
        await asyncio.sleep(0.3)
        events.append("slow ends")
        return "slow"

    async def life() -> str | None:
        config = make_model(call("pay", "p1", invoice="1"), call("slow"), call("pay", "p2", invoice="2"))
        agent = Agent("clerk", config=config, tools=[pay, slow])
        return (await resumable(agent, session_id="s", store=url).ask("go", turn="1")).body

    with pytest.raises(ApprovalPendingError):
        run(life)
    assert events == ["slow begins", "slow ends"]
    waiting = sorted(run(lambda: decide(url)), key=str)  # the calls begin in any order
    assert waiting == [("pay", {"invoice": "1"}), ("pay", {"invoice": "2"})]
    assert run(life) == "done: paid 1, slow, paid 2"
    assert sorted(events[2:]) == ["paid 1", "paid 2"]


def test_a_question_within_a_tool_is_answered_by_a_note(url):
    """The tool is called again from its top when the answers are there; the turn waits for both of them."""
    began: list[int] = []

    async def book(context: Context) -> str:
        began.append(1)
        name = await context.input("In whose name?")
        smoking = await context.input("Smoking?")
        return f"{name}, smoking: {smoking}"

    async def life() -> str | None:
        agent = Agent("clerk", config=make_model(call("book")), tools=[book])
        return (await resumable(agent, session_id="s", store=url).ask("go", turn="1")).body

    with pytest.raises(ApprovalPendingError, match="clerk"):
        run(life)
    assert run(lambda: decide(url, note="Ann")) == [("clerk", {"question": "In whose name?"})]
    with pytest.raises(ApprovalPendingError):
        run(life)
    assert run(lambda: decide(url, "reject")) == [("clerk", {"question": "Smoking?"})]
    assert run(life) == "done: Ann, smoking: no"
    assert run(life) == "done: Ann, smoking: no"
    assert len(began) == 3


def test_an_effect_that_asks_in_its_middle_is_not_repeated(url):
    """What an irreversible tool did before its question is unknown: ask with `approval_required` instead."""
    began: list[int] = []

    async def pay(context: Context) -> str:
        began.append(1)
        return await context.input("Really?")

    async def life() -> str | None:
        agent = Agent("clerk", config=make_model(call("pay")), tools=[pay])
        return (
            await resumable(agent, session_id="s", store=url, tools={"pay": "irreversible"}).ask("go", turn="1")
        ).body

    with pytest.raises(ApprovalPendingError):
        run(life)
    run(lambda: decide(url))
    assert "its outcome is unknown" in run(life)
    assert len(began) == 1


def test_a_hook_of_the_users_own_is_asked_once(url):
    asked: list[str] = []
    died: list[int] = []

    class Killed(BaseException):
        pass

    def hook(event: HumanInputRequest) -> HumanMessage:
        asked.append(event.content)
        return HumanMessage("y")

    @tool(middleware=[approval_required("May I {tool_name}?")])
    async def pay() -> str:
        if not died:
            died.append(1)
            raise Killed
        return "paid"

    async def life(**options: Any) -> str | None:
        agent = Agent("clerk", config=make_model(call("pay")), tools=[pay])
        agent = resumable(agent, session_id="s", store=url, tools={"pay": "idempotent"})
        return (await agent.ask("go", turn="1", **options)).body

    with pytest.raises(Killed):
        asyncio.run(life(hitl_hook=hook))
    assert asyncio.run(life(plugins=[Plugin(hitl_hook=hook)])) == "done: paid"
    assert asked == ["May I pay?"]


def test_a_hook_that_fails_is_asked_again(url):
    answers: list[Any] = [ConnectionError("nobody there"), "y"]

    def hook(event: HumanInputRequest) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(context: Context) -> str:
        return await context.input("Well?")

    @tool(middleware=[approval_required()])
    async def pay() -> str:
        return "paid"

    async def life(name: str) -> str | None:
        agent = Agent("clerk", config=make_model(call(name)), tools=[pay, ask], hitl_hook=hook)
        return (await resumable(agent, session_id=name, store=url).ask("go", turn="1")).body

    for name, said in (("pay", "done: paid"), ("ask", "done: y")):
        answers[:] = [ConnectionError("nobody there"), "y"]
        with pytest.raises(HumanInputFailedError, match="nobody there"):
            asyncio.run(life(name))
        assert asyncio.run(life(name)) == said


def test_questions_of_sub_agents_wait_too(url):
    async def main() -> None:
        @tool(middleware=[approval_required()])
        async def pay(invoice: str) -> str:
            return f"paid {invoice}"

        payer = Agent("payer", config=make_model(call("pay", invoice="7")), tools=[pay])
        clerk = Agent(
            "clerk",
            config=make_model(call("task_payer", objective="pay it")),
            tools=[payer.as_tool(description="pays")],
        )
        agent = resumable(clerk, session_id="s", store=url)
        with pytest.raises(ApprovalPendingError):
            await agent.ask("go", turn="1")
        assert await decide(url) == [("pay", {"invoice": "7"})]
        assert (await agent.ask("go", turn="1")).body == "done: done: paid 7"

    run(main)


def test_a_shell_that_needs_approval_waits(url, tmp_path):
    async def main() -> None:
        shell = SandboxShellTool(LocalEnvironment(tmp_path), middleware=[approval_required()])
        config = make_model(call("run_shell_command", command="echo x >> shell.txt"))
        tools = {"run_shell_command": "irreversible"}
        agent = resumable(Agent("clerk", config=config, tools=[shell]), session_id="s", store=url, tools=tools)
        with pytest.raises(ApprovalPendingError):
            await agent.ask("go", turn="1")
        assert not (tmp_path / "shell.txt").exists()
        await decide(url)
        await agent.ask("go", turn="1")
        assert (tmp_path / "shell.txt").read_text() == "x\n"

    run(main)
