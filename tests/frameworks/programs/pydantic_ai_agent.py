"""An agent of Pydantic AI that pays four invoices, one a turn, with the help of a second agent.

    python pydantic_ai_agent.py STORE DIRECTORY

In each turn the clerk reads the balance, has a researcher look the creditor up (an agent within a tool), pays, and
archives the invoice after a person has approved that. The turns are taken by `run`, `run_stream`, `iter` and
`run_sync`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from call_log import log_call, read_calls
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, RequestUsage, RunContext, ToolCallPart
from pydantic_ai.messages import TextPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from holdfast import NOT_DONE, Client, Done, Effect, SyncClient
from holdfast.errors import ApprovalPendingError
from holdfast.pydantic_ai import HoldfastDurability, ResumablePydanticAgent, resumable

SESSION = "invoices"
API_KEY = "sk-pydantic-ai-0123456789"
INVOICES = "abcd"
Plan = list[list[tuple[str, dict[str, str]] | str]]


class Office:
    """What the tools depend on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.api_key = API_KEY


class OfficeModel(FunctionModel):
    """A model whose answer depends on the request only: on its plan, and how much of it this turn has done."""

    def __init__(self, directory: Path, agent: str, plan: Plan) -> None:
        super().__init__(self._answer, stream_function=self._stream, model_name=f"{agent}-model")
        self.directory = directory
        self.agent = agent
        self.plan = plan
        self.api_key = API_KEY

    def _next(self, messages: list[ModelMessage]) -> ModelResponse:
        parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
        begins = max(number for number, part in enumerate(parts) if isinstance(part, UserPromptPart))
        turn = sum(isinstance(part, UserPromptPart) for part in parts)
        invoice = str(parts[begins].content)[-1]
        done = sum(isinstance(part, ToolReturnPart) for part in parts[begins:])
        step, counted = 0, 0
        while counted < done:
            counted += len(self.plan[step])
            step += 1
        log_call(self.directory, "model", self.agent, invoice, step)
        made: list[Any] = []
        for number, wanted in enumerate(self.plan[step]):
            if isinstance(wanted, str):
                made.append(TextPart(f"{wanted} {invoice}"))
            else:
                arguments = {name: value.format(invoice) for name, value in wanted[1].items()}
                made.append(ToolCallPart(wanted[0], arguments, tool_call_id=f"{self.agent}-{invoice}-{step}-{number}"))
        return ModelResponse(made, usage=RequestUsage(input_tokens=10 * len(parts) + turn, output_tokens=5))

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return self._next(messages)

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for number, part in enumerate(self._next(messages).parts):
            if isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield f"{word} "
            else:
                call = DeltaToolCall(part.tool_name, json.dumps(part.args), tool_call_id=part.tool_call_id)
                yield {number: call}


def make_clerk(directory: Path) -> Agent[Office, str]:
    plan: Plan = [[("lookup", {"creditor": "creditor of {}"})], ["trust the creditor of"]]
    researcher = Agent(
        OfficeModel(directory, "researcher", plan),
        name="researcher",
        deps_type=Office,
        capabilities=[HoldfastDurability()],
    )

    @researcher.tool
    def lookup(ctx: RunContext[Office], creditor: str) -> dict[str, Any]:
        log_call(ctx.deps.directory, "lookup", creditor)
        return {"creditor": creditor, "rating": 5}

    plan = [
        [("balance", {}), ("research", {"question": "who is the creditor of {}"})],
        [("pay", {"invoice": "{}"})],
        [("archive", {"invoice": "{}"})],
        ["paid"],
    ]
    clerk = Agent(OfficeModel(directory, "clerk", plan), name="clerk", deps_type=Office, instructions="You pay.")

    @clerk.tool
    def balance(ctx: RunContext[Office]) -> int:
        log_call(ctx.deps.directory, "balance", ctx.prompt)
        return 100

    @clerk.tool
    async def research(ctx: RunContext[Office], question: str) -> str:
        return (await researcher.run(question, deps=ctx.deps, usage=ctx.usage)).output

    @clerk.tool
    @Effect("irreversible", key="invoice", probe=lambda invoice: find_payment(directory, invoice))
    def pay(ctx: RunContext[Office], invoice: str) -> str:
        log_call(ctx.deps.directory, "pay", invoice)  # which is the payment
        return f"receipt {invoice}"

    @clerk.tool(requires_approval=True)
    def archive(ctx: RunContext[Office], invoice: str) -> str:
        log_call(ctx.deps.directory, "archive", invoice)
        return f"archived {invoice}"

    return clerk


def find_payment(directory: Path, invoice: str) -> Any:
    paid = json.dumps([invoice]) in read_calls(directory).get("pay", [])
    return Done(f"receipt {invoice}") if paid else NOT_DONE


async def stream(agent: ResumablePydanticAgent, prompt: str, deps: Office) -> Any:
    async with agent.run_stream(prompt, deps=deps) as streamed:
        async for _ in streamed.stream_text():
            pass
    return streamed.result


async def iterate(agent: ResumablePydanticAgent, prompt: str, deps: Office) -> Any:
    async with agent.iter(prompt, deps=deps) as agent_run:
        async for _ in agent_run:
            pass
    return agent_run.result


async def take_three_turns(store: str, agent: ResumablePydanticAgent, deps: Office) -> list[Any]:
    results: list[Any] = []
    for invoice in INVOICES[:3]:
        prompt = f"pay the invoice {invoice}"
        while True:
            try:
                if invoice == "a":
                    results.append(await agent.run(prompt, deps=deps))
                else:
                    results.append(await (stream if invoice == "b" else iterate)(agent, prompt, deps))
                break
            except ApprovalPendingError:
                async with Client.open(store) as client:
                    for asked in await client.approvals(SESSION):
                        await client.decide(asked.approval_id, "approve", by="ann")
    return results


def main(store: str, directory: Path) -> None:
    deps = Office(directory)
    tools = {"balance": "read", "lookup": "read", "research": "agent", "archive": "idempotent"}
    agent = resumable(make_clerk(directory), session_id=SESSION, store=store, tools=tools)
    results = asyncio.run(take_three_turns(store, agent, deps))
    while len(results) < len(INVOICES):
        try:
            results.append(agent.run_sync(f"pay the invoice {INVOICES[-1]}", deps=deps))
        except ApprovalPendingError:
            with SyncClient.open(store) as client:
                for asked in client.approvals(SESSION):
                    client.decide(asked.approval_id, "approve", by="ann")
    told = [
        {
            "answer": result.output,
            "tokens": result.usage.total_tokens,
            "tool_calls": result.usage.tool_calls,
            "run": result.run_id,
            "new": len(result.new_messages()),
            "conversation": [
                [part.part_kind, getattr(part, "content", None) or getattr(part, "args", None)]
                for message in result.all_messages()
                for part in message.parts
            ],
        }
        for result in results
    ]
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
