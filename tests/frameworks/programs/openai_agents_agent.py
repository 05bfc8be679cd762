"""An office of agents of the OpenAI Agents SDK that pays three invoices, one a turn.

    python openai_agents_agent.py STORE DIRECTORY

The first turn is taken by `run`: a clerk reads the balance, has a researcher look the creditor up (an agent as a
tool), and hands off to the payer, who pays, and archives the invoice after a person has approved that. The second
one is streamed, and the third one is taken by `run_sync`; both begin at the payer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Usage, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from call_log import log_call, read_calls

from holdfast import NOT_DONE, Client, Done, Effect, SyncClient
from holdfast.errors import ApprovalPendingError
from holdfast.openai_agents import ResumableOpenAIAgent, resumable

SESSION = "invoices"
API_KEY = "sk-openai-agents-0123456789"


class OfficeModel(Model):
    """A model whose answer depends on the request only: on its plan, and how much of it this turn has done."""

    def __init__(self, directory: Path, agent: str, plan: list[list[tuple[str, dict[str, Any]] | str]]) -> None:
        self.directory = directory
        self.agent = agent
        self.plan = plan
        self.api_key = API_KEY

    def _script(self, input: Any) -> ScriptedModel:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        begins = max(number for number, item in enumerate(items) if item.get("role") == "user")
        turn = sum(item.get("role") == "user" for item in items)
        done = {item["call_id"] for item in items[begins:] if item.get("type") == "function_call_output"}
        mine = [one for one in done if one.startswith(f"{self.agent}-")]
        step, counted = 0, 0
        while counted < len(mine):
            counted += len(self.plan[step])
            step += 1
        log_call(self.directory, "model", self.agent, turn, step)
        invoice = "abc"[turn - 1]
        output: list[Any] = []
        for number, wanted in enumerate(self.plan[step]):
            if isinstance(wanted, str):
                output.append(assistant_message(f"{wanted} {invoice}"))
            else:
                arguments = {name: value.format(invoice) for name, value in wanted[1].items()}
                call_id = f"{self.agent}-{turn}-{step}-{number}"
                output.append(function_call(wanted[0], arguments, call_id=call_id))
        usage = Usage(requests=1, input_tokens=10 * len(items), output_tokens=5, total_tokens=10 * len(items) + 5)
        return ScriptedModel([ModelStep(output=output, usage=usage, response_id=f"{self.agent}-{turn}-{step}")])

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> ModelResponse:
        return await self._script(input).get_response(system_instructions, input, *rest, **options)

    async def stream_response(
        self, system_instructions: Any, input: Any, *rest: Any, **options: Any
    ) -> AsyncIterator[Any]:
        async for event in self._script(input).stream_response(system_instructions, input, *rest, **options):
            yield event


def make_office(directory: Path) -> Agent[Any]:
    """Return the clerk, who knows all others."""

    @function_tool
    def balance() -> int:
        log_call(directory, "balance")
        return 100

    @function_tool
    def lookup(creditor: str) -> dict[str, Any]:
        log_call(directory, "lookup", creditor)
        return {"creditor": creditor, "rating": 5}

    @function_tool
    def pay(invoice: str) -> str:
        log_call(directory, "pay", invoice)  # which is the payment
        return f"receipt {invoice}"

    @function_tool(needs_approval=True)
    def archive(invoice: str) -> str:
        log_call(directory, "archive", invoice)
        return f"archived {invoice}"

    researcher = Agent(
        "researcher",
        model=OfficeModel(directory, "researcher", [[("lookup", {"creditor": "creditor of {}"})], ["trust"]]),
        tools=[lookup],
    )
    payer = Agent(
        "payer",
        model=OfficeModel(
            directory, "payer", [[("pay", {"invoice": "{}"})], [("archive", {"invoice": "{}"})], ["paid"]]
        ),
        tools=[pay, archive],
    )
    plan: list[list[tuple[str, dict[str, Any]] | str]] = [
        [("balance", {}), ("research", {"input": "who is the creditor of {}?"})],
        [("transfer_to_payer", {})],
    ]
    clerk = Agent(
        "clerk",
        model=OfficeModel(directory, "clerk", plan),
        tools=[balance, researcher.as_tool("research", "asks a researcher")],
        handoffs=[payer],
    )
    payer.handoffs.append(clerk)
    return clerk


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


async def stream(agent: ResumableOpenAIAgent, given: str) -> Any:
    streamed = agent.run_streamed(given)
    async for _ in streamed.stream_events():
        pass
    return streamed


async def take_two_turns(store: str, agent: ResumableOpenAIAgent) -> list[Any]:
    results = []
    for take in (agent.run, lambda given: stream(agent, given)):
        given = f"pay the invoice {'ab'[len(results)]}"
        while len(results) < 2:
            try:
                results.append(await take(given))
                break
            except ApprovalPendingError:
                async with Client.open(store) as client:
                    for asked in await client.approvals(SESSION):
                        await client.decide(asked.approval_id, "approve", by="ann")
    return results


def main(store: str, directory: Path) -> None:
    agent = resumable(make_office(directory), session_id=SESSION, store=store, tools=declare_tools(directory))
    results = asyncio.run(take_two_turns(store, agent))
    while len(results) < 3:
        try:
            results.append(agent.run_sync("pay the invoice c"))
        except ApprovalPendingError:
            with SyncClient.open(store) as client:
                for asked in client.approvals(SESSION):
                    client.decide(asked.approval_id, "approve", by="ann")
    told = [
        {
            "answer": result.final_output,
            "agent": result.last_agent.name,
            # A recorded result has no items that ask for approval.
            "items": [[one.type, one.agent.name] for one in result.new_items if one.type != "tool_approval_item"],
            "tokens": sum(response.usage.total_tokens for response in result.raw_responses),
            "conversation": result.to_input_list(),
        }
        for result in results
    ]
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
