"""An office of AutoGen agents that pays three invoices, one a turn.

    python autogen_agent.py STORE DIRECTORY

A swarm: the clerk reads the balance, has a researcher look the creditor up (an agent as a tool), and hands off to the
payer, who pays, and asks the boss, who is a person, before the payment is archived. The second turn is streamed. A
single agent, which is no team, then writes a summary in a session of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core.models import FunctionExecutionResultMessage, UserMessage
from autogen_model import Answer, FunctionModel, call
from call_log import log_call, read_calls

from holdfast import NOT_DONE, Client, Done, Effect
from holdfast.autogen import ResumableTarget, resumable
from holdfast.errors import ApprovalPendingError

SESSION = "invoices"
API_KEY = "sk-autogen-0123456789"
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
        begins = max(number for number, one in enumerate(messages) if _is_task(one))
        turn = sum(map(_is_task, messages))
        step = sum(isinstance(one, FunctionExecutionResultMessage) for one in messages[begins:])
        invoice = str(messages[begins].content)[-1]
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


def _is_task(message: Any) -> bool:
    return isinstance(message, UserMessage) and str(message.content).startswith(("pay the invoice", "who is", "sum up"))


def make_office(directory: Path) -> Swarm:
    def balance() -> int:
        """Read the balance."""
        log_call(directory, "balance")
        return 100

    def lookup(creditor: str) -> str:
        """Look a creditor up."""
        log_call(directory, "lookup", creditor)
        return f"{creditor}: 5 stars"

    async def pay(invoice: str) -> str:
        """Pay an invoice."""
        log_call(directory, "pay", invoice)  # which is the payment
        return f"receipt {invoice}"

    def archive(invoice: str) -> str:
        """Archive an invoice."""
        log_call(directory, "archive", invoice)
        return f"archived {invoice}"

    def model(name: str, plan: Plan) -> OfficeModel:
        return OfficeModel(directory, name, plan)

    researcher = AssistantAgent(
        "researcher",
        model("researcher", [[("lookup", {"creditor": "creditor of {}"})], ["trust"]]),
        tools=[lookup],
        reflect_on_tool_use=True,
    )
    clerk = AssistantAgent(
        "clerk",
        model(
            "clerk",
            [[("balance", {}), ("researcher", {"task": "who is the creditor of {}"})], [("transfer_to_payer", {})]],
        ),
        tools=[balance, AgentTool(researcher, return_value_as_last_message=True)],
        handoffs=["payer"],
        max_tool_iterations=5,
        model_client_stream=True,
    )
    payer = AssistantAgent(
        "payer",
        model(
            "payer",
            [
                [("pay", {"invoice": "{}"})],
                [("transfer_to_boss", {})],
                [("archive", {"invoice": "{}"})],
                [("transfer_to_clerk", {})],
            ],
        ),
        tools=[pay, archive],
        handoffs=["boss", "clerk"],
        max_tool_iterations=3,
    )
    closer = TextMentionTermination("Transferred to clerk")
    return Swarm([clerk, payer, UserProxyAgent("boss")], termination_condition=closer)


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


async def stream(team: ResumableTarget, task: str) -> TaskResult:
    async for event in team.run_stream(task=task):
        result = event
    return result


async def take_turns(store: str, directory: Path) -> list[TaskResult]:
    team = resumable(make_office(directory), session_id=SESSION, store=store, tools=declare_tools(directory))
    results: list[TaskResult] = []
    for take in (lambda task: team.run(task=task), lambda task: stream(team, task), lambda task: team.run(task=task)):
        while True:
            try:
                results.append(await take(f"pay the invoice {'abc'[len(results)]}"))
                break
            except ApprovalPendingError:
                async with Client.open(store) as client:
                    for asked in await client.approvals(SESSION):
                        await client.decide(asked.approval_id, "approve", by="ann", note="archive it")
    writer = AssistantAgent("writer", OfficeModel(directory, "writer", [["three paid,"]]))
    results.append(await resumable(writer, session_id="summary", store=store).run(task="sum up invoice z"))
    return results


def main(store: str, directory: Path) -> None:
    told = [
        {
            "stopped": result.stop_reason,
            "messages": [
                message.model_dump(mode="json", exclude={"id", "created_at", "request_id"})
                for message in result.messages
            ],
        }
        for result in asyncio.run(take_turns(store, directory))
    ]
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
