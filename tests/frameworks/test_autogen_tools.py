"""Tools and code of AutoGen's agents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("autogen")

from autogen_agentchat.agents import (
    ApprovalResponse,
    AssistantAgent,
    CodeExecutorAgent,
)
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import FunctionExecutionResultMessage
from autogen_model import FunctionModel, call
from autogen_turns import answer_once_called, texts

from holdfast import Client, Effect
from holdfast.autogen import resumable


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


# -- tools -------------------------------------------------------------------------------------------------------------


class DelayedModel(FunctionModel):
    """A model that takes its time."""

    def __init__(self, answer: Any, seconds: float = 0) -> None:
        super().__init__(answer)
        self.seconds = seconds

    async def create(self, messages: Sequence[Any], **options: Any) -> Any:
        await asyncio.sleep(self.seconds)
        return await super().create(messages, **options)


def test_an_agent_that_hears_parallel_ones_in_another_order_is_not_asked_again(url):
    """In the first life the second one is quicker; in the next one both answers are replayed at once."""
    sealed: list[str] = []
    asked: list[str] = []
    is_away = True

    def seal(what: str) -> str:
        sealed.append(what)
        return f"sealed {what}"

    def conclude(messages: Sequence[Any]) -> Any:
        asked.append("conclude")
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            if is_away:
                raise RuntimeError("the model is away")
            return "concluded"
        return [call("seal", f"call-{len(asked)}", what="it")]

    def make() -> GraphFlow:
        models = {"start": DelayedModel(lambda _: "begin"), "slow": DelayedModel(lambda _: "one", 0.2)}
        models |= {"quick": DelayedModel(lambda _: "two"), "last": DelayedModel(conclude)}
        agents = {name: AssistantAgent(name, model, description=name) for name, model in models.items()}
        agents["last"] = AssistantAgent("last", models["last"], tools=[seal], max_tool_iterations=3, description="last")
        graph = DiGraphBuilder()
        for agent in agents.values():
            graph.add_node(agent)
        for name in ("slow", "quick"):
            graph.add_edge(agents["start"], agents[name]).add_edge(agents[name], agents["last"])
        return GraphFlow(list(agents.values()), graph=graph.build())

    async def main() -> None:
        nonlocal is_away
        with pytest.raises(RuntimeError, match="away"):
            await resumable(make(), session_id="s", store=url).run(task="go", turn="1")
        assert asked == ["conclude"] * 2
        is_away = False
        result = await resumable(make(), session_id="s", store=url).run(task="go", turn="1")
        assert "concluded" in texts(result)

    asyncio.run(main())
    assert (asked, sealed) == (["conclude"] * 3, ["it"])


def test_a_failure_of_a_declared_tool_reaches_the_model(url):
    attempts: list[int] = []

    async def pay(invoice: int) -> str:
        """Pay."""
        attempts.append(invoice)
        raise ConnectionError("no route to the bank")

    async def main() -> None:
        agent = AssistantAgent("a", answer_once_called(call("pay", invoice=7)), tools=[pay], max_tool_iterations=3)
        paid = {"pay": Effect("irreversible", key="invoice", not_done=(ConnectionError,))}
        result = await resumable(agent, session_id="s", store=url, tools=paid).run(task="pay")
        assert texts(result)[-1] == "done: no route to the bank"
        assert result.messages[2].content[0].is_error
        async with Client.open(url) as client:
            assert [str(one.state) for one in await client.effects("s")] == ["failed"]

    asyncio.run(main())
    assert attempts == [7]


class LoggedExecutor(CodeExecutor):
    def __init__(self) -> None:
        self.executed: list[str] = []

    async def execute_code_blocks(self, code_blocks: list[CodeBlock], cancellation_token: Any) -> CodeResult:
        self.executed += [block.code.strip() for block in code_blocks]
        return CodeResult(exit_code=0, output="42")

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def restart(self) -> None: ...


@survives("code of a `CodeExecutorAgent`", "executed and approved once")
def test_code_is_executed_and_approved_once(url):
    executor, asked = LoggedExecutor(), []

    def approve(request: Any) -> ApprovalResponse:
        asked.append(request.code)
        return ApprovalResponse(approved=True, reason="fine")

    def fail(_: Any) -> str:
        raise ConnectionError("away")

    async def main() -> None:
        def make(model: FunctionModel) -> RoundRobinGroupChat:
            coder = CodeExecutorAgent("coder", executor, approval_func=approve)
            return RoundRobinGroupChat([coder, AssistantAgent("critic", model)], max_turns=2)

        task = "```python\nprint(6 * 7)\n```"
        with pytest.raises(RuntimeError, match="away"):
            await resumable(make(FunctionModel(fail)), session_id="s", store=url).run(task=task)
        result = await resumable(make(FunctionModel(lambda _: "good")), session_id="s", store=url).run(task=task)
        assert texts(result)[-1] == "good"

    asyncio.run(main())
    assert executor.executed == ["print(6 * 7)"]
    assert len(asked) == 1
