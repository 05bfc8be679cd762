"""An office of Strands agents that pays three invoices, one a turn, then a graph that reports and a swarm that files.

    python strands_agent.py STORE DIRECTORY

The clerk reads the balance and has a researcher look the creditor up (an agent as a tool), pays, and archives the
invoice after a person has approved that. The first turn is a call that blocks, the second one is streamed, and the
third one is awaited. The graph has a writer and a checker side by side, an editor who uses a tool on what both said,
and a node that is a function. The swarm hands the case over.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from call_log import log_call, read_calls
from strands import Agent, ToolContext, tool
from strands.agent import AgentResult
from strands.multiagent import GraphBuilder, MultiAgentBase, MultiAgentResult, Status, Swarm
from strands.multiagent.base import NodeResult
from strands.multiagent.graph import Graph
from strands.telemetry.metrics import EventLoopMetrics
from strands_model import Answer, FunctionModel, call, results_since_user, text_of

from holdfast import NOT_DONE, Client, Done, Effect
from holdfast.errors import ApprovalPendingError
from holdfast.strands import resumable

SESSION, REPORT, CASES = "invoices", "report", "cases"
API_KEY = "sk-strands-0123456789"
Plan = list[list[tuple[str, dict[str, str]] | str]]


class OfficeModel(FunctionModel):
    """A model whose answer depends on the request only: on its plan, and how much of it this turn has done."""

    def __init__(self, directory: Path, agent: str, plan: Plan) -> None:
        super().__init__(self._answer)
        self.directory = directory
        self.agent = agent
        self.plan = plan
        self.api_key = API_KEY

    def _answer(self, messages: Sequence[Any]) -> Answer:
        said = [text_of(one) for one in messages if one["role"] == "user" and text_of(one)]
        turn, subject = len(said), re.findall(r"(?:invoice|report on|case) (\w)", said[-1])[0]
        done, step = len(results_since_user(messages)), 0
        while done > 0:
            done -= len(self.plan[step])
            step += 1
        log_call(self.directory, "model", self.agent, subject, turn, step)
        wanted = self.plan[step]
        if isinstance(wanted[0], str):
            return f"{wanted[0]} {subject}"
        return [
            call(
                name,
                f"{self.agent}-{turn}-{step}-{number}",
                **{key: value.format(subject) for key, value in arguments.items()},
            )
            for number, (name, arguments) in enumerate(wanted)
        ]


def make_agent(directory: Path, name: str, plan: Plan, tools: Sequence[Any] = ()) -> Agent:
    return Agent(OfficeModel(directory, name, plan), name=name, tools=list(tools), callback_handler=None)


def make_office(directory: Path) -> Agent:
    @tool(context=True)
    def balance(tool_context: ToolContext) -> int:
        """Read the balance."""
        log_call(directory, "balance")
        read = tool_context.agent.state.get("read") or 0
        tool_context.agent.state.set("read", read + 1)
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

    @tool(context=True)
    def archive(invoice: str, tool_context: ToolContext) -> str:
        """Archive an invoice."""
        if tool_context.interrupt("archive", reason=f"invoice {invoice} is paid") != "y":
            return "not archived"
        log_call(directory, "archive", invoice)
        return f"archived {invoice}"

    plan: Plan = [[("lookup", {"creditor": "creditor of {}"})], ["trust"]]
    researcher = make_agent(directory, "researcher", plan, [lookup])
    plan = [
        [("balance", {}), ("researcher", {"input": "who is the creditor of invoice {}"})],
        [("pay", {"invoice": "{}"})],
        [("archive", {"invoice": "{}"})],
        ["paid"],
    ]
    return make_agent(directory, "clerk", plan, [balance, researcher, pay, archive])


class Stamp(MultiAgentBase):
    """A node that is a function."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.id = "stamp"
        self._directory = directory

    async def invoke_async(self, task: Any, invocation_state: Any = None, **_: Any) -> MultiAgentResult:
        text = "\n".join(block["text"] for block in task)
        log_call(self._directory, "stamp", text)
        message = {"role": "assistant", "content": [{"text": f"stamped {len(text)}"}]}
        result = AgentResult("end_turn", message, EventLoopMetrics(), {})
        return MultiAgentResult(Status.COMPLETED, {"stamp": NodeResult(result, status=Status.COMPLETED)})


def make_report(directory: Path) -> Graph:
    @tool
    def spell(text: str) -> str:
        """Check the spelling."""
        log_call(directory, "spell", text)
        return "no mistakes"

    builder = GraphBuilder()
    builder.add_node(make_agent(directory, "writer", [["a draft about"]]), "writer")
    builder.add_node(make_agent(directory, "checker", [["facts about"]]), "checker")
    plan: Plan = [[("spell", {"text": "{}"})], ["an edited text about"]]
    builder.add_node(make_agent(directory, "editor", plan, [spell]), "editor")
    builder.add_node(Stamp(directory), "stamp")
    both = lambda state: {"writer", "checker"} <= {node.node_id for node in state.completed_nodes}  # noqa: E731 - short
    builder.add_edge("writer", "editor", condition=both)
    builder.add_edge("checker", "editor", condition=both)
    builder.add_edge("editor", "stamp")
    builder.set_execution_timeout(60)
    return builder.build()


def make_swarm(directory: Path) -> Swarm:
    @tool
    def close(case: str) -> str:
        """Close a case."""
        log_call(directory, "close", case)
        return f"closed {case}"

    handoff = ("handoff_to_agent", {"agent_name": "closer", "message": "close the case {}"})
    triage = make_agent(directory, "triage", [[handoff], ["handed over"]])
    closer = make_agent(directory, "closer", [[("close", {"case": "{}"})], ["done with"]], [close])
    return Swarm([triage, closer])


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
    clerk = resumable(make_office(directory), session_id=SESSION, store=store, tools=declare_tools(directory))

    async def stream() -> Any:
        events = [event async for event in clerk.stream_async("pay the invoice b")]
        assert any("data" in event for event in events)
        return events[-1]["result"]

    takes = (
        lambda: asyncio.to_thread(clerk, "pay the invoice a"),
        stream,
        lambda: clerk.invoke_async("pay the invoice c"),
    )
    results = [await until_approved(store, SESSION, take) for take in takes]
    report = resumable(make_report(directory), session_id=REPORT, store=store, tools={"spell": "read"})
    reports = [await report.invoke_async(f"report on {subject}") for subject in "xy"]
    swarm = resumable(make_swarm(directory), session_id=CASES, store=store, tools={"close": "idempotent"})
    cases = [await swarm.invoke_async(f"case {subject}") for subject in "pq"]
    async with Client.open(store) as client:
        states = [(await client.latest(name)).execution_state for name in (SESSION, REPORT, CASES)]
    said = [
        {name: [message["content"] for message in one] for name, one in state.items() if name.startswith("messages")}
        for state in states
    ]
    told = [[str(one), one.stop_reason, one.metrics.accumulated_usage] for one in results]
    groups = [
        [{name: str(node) for name, node in one.results.items()}, one.status.value, one.accumulated_usage]
        for one in (*reports, *cases)
    ]
    print(json.dumps([told, said, states[0]["agents"][""]["state"], groups], sort_keys=True))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
