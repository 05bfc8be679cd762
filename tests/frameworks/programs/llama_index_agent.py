"""A workflow of LlamaIndex that pays three invoices, one a turn.

    python llama_index_agent.py STORE DIRECTORY

The clerk's model asks for the balance and for a researcher, which is a workflow of its own; both run at the same
time. Then it pays, and archives the invoice if the boss, who is a person, says so. The boss decides the first and the
third invoice in `holdfast approvals`, and the second one by an event, since that turn is streamed. Each use of a tool
is counted in the state.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from call_log import log_call, read_calls
from pydantic import BaseModel
from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

from holdfast import NOT_DONE, Client, Done, Effect
from holdfast.errors import ApprovalPendingError
from holdfast.llama_index import ResumableLlamaWorkflow, call_model, call_tool, resumable

SESSION = "invoices"
API_KEY = "sk-llama-index-0123456789"
Messages = list[dict[str, Any]]


class OfficeState(BaseModel):
    messages: Messages = []
    uses: list[str] = []


class Think(Event):
    pass


class ToolCall(Event):
    id: str
    name: str
    arguments: dict[str, Any]


class ToolResult(Event):
    id: str
    result: Any
    of: int


class AskBoss(InputRequiredEvent):
    invoice: str


class BossSays(HumanResponseEvent):
    response: str


class OfficeModel:
    """A model whose answer depends on the request only: on its plan, and how much of it this turn has done."""

    def __init__(self, directory: Path, agent: str, plan: list[Any]) -> None:
        self.directory, self.agent, self.plan = directory, agent, plan
        self.api_key = API_KEY

    async def answer(self, messages: Messages) -> dict[str, Any]:
        begins = max(number for number, one in enumerate(messages) if one["role"] == "user")
        step = sum(one["role"] == "assistant" for one in messages[begins:])
        invoice = messages[begins]["content"][-1]
        log_call(self.directory, "model", self.agent, invoice, step)
        wanted = self.plan[step]
        if isinstance(wanted, str):
            return {"role": "assistant", "content": f"{wanted} {invoice}"}
        calls = [
            {"id": f"{self.agent}-{invoice}-{step}-{number}", "name": name, "args": {"invoice": invoice}}
            for number, name in enumerate(wanted)
        ]
        return {"role": "assistant", "content": "", "tool_calls": calls}


class Researcher(Workflow):
    """A workflow within a tool: its calls are recorded as those of the step that uses the tool."""

    def __init__(self, directory: Path) -> None:
        super().__init__(timeout=None)
        self.directory = directory
        self.model = OfficeModel(directory, "researcher", [["lookup"], "trust the creditor of"])

    def lookup(self, invoice: str) -> str:
        log_call(self.directory, "lookup", invoice)
        return "5 stars"

    @step
    async def look_up(self, ev: StartEvent) -> Think:
        found = await call_tool(self.lookup, invoice=ev.invoice)
        return Think(invoice=ev.invoice, found=found)

    @step
    async def judge(self, ev: Think) -> StopEvent:
        asked = [{"role": "user", "content": f"{ev.found}: who is the creditor of {ev.invoice}"}]
        answer = await call_model(self.model.answer, [*asked, {"role": "assistant"}])
        return StopEvent(result=answer["content"])


class Office(Workflow):
    def __init__(self, directory: Path) -> None:
        super().__init__(timeout=None)
        plan = [["balance", "research"], ["pay"], ["archive"], "paid"]
        self.model = OfficeModel(directory, "clerk", plan)
        self.directory = directory
        self.researcher = Researcher(directory)

    def balance(self, invoice: str) -> int:
        log_call(self.directory, "balance", invoice)
        return 100

    async def research(self, invoice: str) -> str:
        return str(await self.researcher.run(invoice=invoice))

    def pay(self, invoice: str) -> str:
        log_call(self.directory, "pay", invoice)  # which is the payment
        return f"receipt {invoice}"

    def archive(self, invoice: str) -> str:
        log_call(self.directory, "archive", invoice)
        return f"archived {invoice}"

    @step
    async def begin(self, ctx: Context[OfficeState], ev: StartEvent) -> Think:
        async with ctx.store.edit_state() as state:
            state.messages.append({"role": "user", "content": ev.task})
        return Think()

    @step
    async def think(self, ctx: Context[OfficeState], ev: Think) -> ToolCall | StopEvent | None:
        answer = await call_model(self.model.answer, await ctx.store.get("messages"))
        async with ctx.store.edit_state() as state:
            state.messages.append(answer)
        if "tool_calls" not in answer:
            return StopEvent(result=answer["content"])
        for call in answer["tool_calls"]:
            ctx.send_event(
                ToolCall(id=call["id"], name=call["name"], arguments=call["args"], of=len(answer["tool_calls"]))
            )
        return None

    @step(num_workers=4)
    async def use(self, ctx: Context[OfficeState], ev: ToolCall) -> ToolResult:
        async with ctx.store.edit_state() as state:
            state.uses.append(ev.id)
        if ev.name == "archive":
            asked = AskBoss(invoice=ev.arguments["invoice"])
            answer = await ctx.wait_for_event(BossSays, waiter_event=asked, waiter_id=ev.id, timeout=None)
            if answer.response != "do it":
                return ToolResult(id=ev.id, result="the boss said no", of=ev.of)
        result = await call_tool(getattr(self, ev.name), **ev.arguments)
        return ToolResult(id=ev.id, result=result, of=ev.of)

    @step
    async def gather(self, ctx: Context[OfficeState], ev: ToolResult) -> Think | None:
        results = ctx.collect_events(ev, [ToolResult] * ev.of)
        if results is None:
            return None
        async with ctx.store.edit_state() as state:
            for one in sorted(results, key=lambda result: result.id):
                state.messages.append({"role": "tool", "tool_call_id": one.id, "content": one.result})
        return Think()


def declare_tools(directory: Path) -> dict[str, Effect | str]:
    def find_payment(invoice: str) -> Any:
        paid = json.dumps([invoice]) in read_calls(directory).get("pay", [])
        return Done(f"receipt {invoice}") if paid else NOT_DONE

    return {
        "balance": "read",
        "lookup": "read",
        "research": "agent",
        "pay": Effect("irreversible", key="invoice", probe=find_payment),
        "archive": "idempotent",
    }


async def stream(office: ResumableLlamaWorkflow, task: str) -> Any:
    handler = office.run(task=task)
    async for event in handler.stream_events():
        if isinstance(event, AskBoss):
            handler.ctx.send_event(BossSays(response="do it"))
    return await handler


async def take_turns(store: str, directory: Path) -> dict[str, Any]:
    office = resumable(Office(directory), session_id=SESSION, store=store, tools=declare_tools(directory))
    results: list[Any] = []
    for invoice in "abc":
        task = f"pay the invoice {invoice}"
        while len(results) <= "abc".index(invoice):
            try:
                results.append(await (stream(office, task) if invoice == "b" else office.run(task=task)))
            except ApprovalPendingError:
                async with Client.open(store) as client:
                    for asked in await client.approvals(SESSION):
                        await client.decide(asked.approval_id, "approve", by="ann", note="do it")
    async with Client.open(store) as client:
        state = (await client.latest(SESSION)).execution_state
    return {
        "results": results,
        "messages": state["messages"],
        "uses": sorted({*state["state"]["value"]["uses"]}),
        "counted": len(state["state"]["value"]["uses"]),
    }


def main(store: str, directory: Path) -> None:
    print(json.dumps(asyncio.run(take_turns(store, directory))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
