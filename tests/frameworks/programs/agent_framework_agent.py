"""An office of agent-framework agents that pays three invoices, one a turn, then a workflow that reports them.

    python agent_framework_agent.py STORE DIRECTORY

The clerk reads the balance, has a researcher look the creditor up (an agent as a tool), pays, and archives the invoice
after a person has approved that. The second turn is streamed. The workflow has a writer and an editor, who uses a
tool, and asks a person before it publishes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    AgentExecutor,
    AgentExecutorResponse,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
    tool,
)
from agent_framework_model import Answer, FunctionClient, call, results_since_user
from call_log import log_call, read_calls

from holdfast import NOT_DONE, Client, Done, Effect
from holdfast.agent_framework import resumable
from holdfast.errors import ApprovalPendingError

SESSION, REPORT = "invoices", "report"
API_KEY = "sk-agent-framework-0123456789"
Plan = list[list[tuple[str, dict[str, str]] | str]]


class OfficeClient(FunctionClient):
    """A client whose answer depends on the request only: on its plan, and how much of it this turn has done."""

    def __init__(self, directory: Path, agent: str, plan: Plan) -> None:
        super().__init__(self._answer)
        self.directory = directory
        self.agent = agent
        self.plan = plan
        self.api_key = API_KEY

    def _answer(self, messages: Sequence[Any]) -> Answer:
        said = [one for one in messages if one.role == "user" and one.text]
        turn, invoice = len(said), said[-1].text[-1]
        done, step = len(results_since_user(messages)), 0
        while done > 0:
            done -= len(self.plan[step])
            step += 1
        log_call(self.directory, "model", self.agent, invoice, turn, step)
        wanted = self.plan[step]
        if isinstance(wanted[0], str):
            return f"{wanted[0]} {invoice}"
        return [
            call(
                name,
                f"{self.agent}-{turn}-{step}-{number}",
                **{key: value.format(invoice) for key, value in arguments.items()},
            )
            for number, (name, arguments) in enumerate(wanted)
        ]


def make_office(directory: Path) -> Agent:
    @tool
    def balance() -> int:
        """Read the balance."""
        log_call(directory, "balance")
        return 100

    @tool
    def lookup(creditor: str) -> dict[str, Any]:
        """Look a creditor up."""
        log_call(directory, "lookup", creditor)
        return {"creditor": creditor, "rating": 5}

    @tool
    async def pay(invoice: str) -> str:
        """Pay an invoice."""
        log_call(directory, "pay", invoice)  # which is the payment
        return f"receipt {invoice}"

    @tool(approval_mode="always_require")
    def archive(invoice: str) -> str:
        """Archive an invoice."""
        log_call(directory, "archive", invoice)
        return f"archived {invoice}"

    researcher = Agent(
        OfficeClient(directory, "researcher", [[("lookup", {"creditor": "creditor of {}"})], ["trust"]]),
        name="researcher",
        tools=[lookup],
    )
    plan: Plan = [
        [("balance", {}), ("researcher", {"task": "who is the creditor of {}"})],
        [("pay", {"invoice": "{}"})],
        [("archive", {"invoice": "{}"})],
        ["paid"],
    ]
    tools = [balance, researcher.as_tool(), pay, archive]
    return Agent(OfficeClient(directory, "clerk", plan), name="clerk", instructions="You pay.", tools=tools)


class Publisher(Executor):
    """Asks a person, then publishes."""

    def __init__(self, directory: Path) -> None:
        super().__init__("publisher")
        self._directory = directory

    @handler
    async def ask(self, draft: AgentExecutorResponse, ctx: WorkflowContext) -> None:
        await ctx.request_info(request_data=draft.agent_response.text, response_type=bool)

    @response_handler
    async def publish(self, draft: str, is_approved: bool, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"published: {draft}" if is_approved else "dropped")


def make_report(directory: Path) -> Workflow:
    @tool
    def spell(text: str) -> str:
        """Check the spelling."""
        log_call(directory, "spell", text)
        return "no mistakes"

    writer = Agent(OfficeClient(directory, "writer", [["a draft about"]]), name="writer")
    editor = Agent(
        OfficeClient(directory, "editor", [[("spell", {"text": "{}"})], ["an edited text about"]]),
        name="editor",
        tools=[spell],
    )
    first, second, third = AgentExecutor(writer), AgentExecutor(editor), Publisher(directory)
    builder = WorkflowBuilder(start_executor=first, name="report")
    return builder.add_edge(first, second).add_edge(second, third).build()


def declare_tools(directory: Path) -> dict[str, Effect | str]:
    def find_payment(invoice: str) -> Any:
        paid = json.dumps([invoice]) in read_calls(directory).get("pay", [])
        return Done(f"receipt {invoice}") if paid else NOT_DONE

    return {
        "balance": "read",
        "lookup": "read",
        "pay": Effect("irreversible", key="invoice", probe=find_payment),
        "archive": "idempotent",
    }


async def approve_all(store: str, session_id: str) -> None:
    async with Client.open(store) as client:
        for asked in await client.approvals(session_id):
            await client.decide(asked.approval_id, "approve", by="ann")


async def until_approved(store: str, session_id: str, take: Any) -> Any:
    while True:
        try:
            return await take()
        except ApprovalPendingError:
            await approve_all(store, session_id)


async def main(store: str, directory: Path) -> None:
    tools = declare_tools(directory)
    clerk = resumable(make_office(directory), session_id=SESSION, store=store, tools=tools)

    async def stream() -> Any:
        updates = clerk.run("pay the invoice b", stream=True)
        said = [update.text async for update in updates]
        assert said
        return await updates.get_final_response()

    takes = (lambda: clerk.run("pay the invoice a"), stream, lambda: clerk.run("pay the invoice c"))
    responses = [await until_approved(store, SESSION, take) for take in takes]
    report = resumable(make_report(directory), session_id=REPORT, store=store, tools={"spell": "read"})
    outputs = [
        (await until_approved(store, REPORT, lambda text=text: report.run(text))).get_outputs()
        for text in ("report on x", "report on y")
    ]
    told = [
        {
            "said": [[message.role, message.text, message.author_name] for message in response.messages],
            "calls": [one.call_id for message in response.messages for one in message.contents if one.type != "text"],
            "tokens": response.usage_details,
        }
        for response in responses
    ]
    print(json.dumps([told, outputs]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
