"""An office of agents of Google ADK that pays three invoices, one a turn.

    python google_adk_agent.py STORE DIRECTORY

The first turn is taken by `run_async`: a clerk reads the balance, has a researcher look the creditor up (an agent as
a tool), and transfers to the payer, who pays, and archives the invoice after a person has confirmed that. The second
one is streamed, and the third one is taken by `run`; both begin at the payer.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore", module="google")

from call_log import log_call, read_calls
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from holdfast import NOT_DONE, Client, Done, Effect, SyncClient
from holdfast.errors import ApprovalPendingError
from holdfast.google_adk import ResumableApp, resumable

SESSION = "invoices"
API_KEY = "AIza-google-adk-0123456789"
BEGINS = ("pay the invoice", "who is the creditor of")


class OfficeModel(BaseLlm):
    """A model whose answer depends on the request only: on its plan, and how much of it this turn has done."""

    model: str = "office"
    directory: Path
    agent: str
    plan: list[list[Any]]
    api_key: str = API_KEY

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        begins = [
            (number, part.text)
            for number, content in enumerate(llm_request.contents)
            for part in content.parts or ()
            if content.role == "user" and part.text and part.text.startswith(BEGINS)
        ]
        start, text = begins[-1]
        names = {wanted[0] for answer in self.plan for wanted in answer if not isinstance(wanted, str)}
        done = sum(
            bool(part.function_response and part.function_response.name in names)
            for content in llm_request.contents[start:]
            for part in content.parts or ()
        )
        step, counted = 0, 0
        while counted < done:
            counted += len(self.plan[step])
            step += 1
        invoice = text.rstrip("?")[-1]
        log_call(self.directory, "model", self.agent, invoice, step)
        parts = []
        for wanted in self.plan[step]:
            if isinstance(wanted, str):
                parts.append(types.Part(text=f"{wanted} {invoice}"))
            else:
                arguments = {name: value.format(invoice) for name, value in wanted[1].items()}
                parts.append(types.Part(function_call=types.FunctionCall(name=wanted[0], args=arguments)))
        if stream:
            for part in parts:
                yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)
        usage = types.GenerateContentResponseUsageMetadata(total_token_count=10 * len(llm_request.contents))
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=usage)


def make_office(directory: Path) -> App:
    def balance(tool_context: Any) -> int:
        """Return the balance."""
        log_call(directory, "balance")
        tool_context.state["seen"] = 100
        return 100

    def lookup(creditor: str) -> dict[str, Any]:
        """Look a creditor up."""
        log_call(directory, "lookup", creditor)
        return {"creditor": creditor, "rating": 5}

    def pay(invoice: str) -> str:
        """Pay an invoice."""
        log_call(directory, "pay", invoice)  # which is the payment
        return f"receipt {invoice}"

    def archive(invoice: str) -> str:
        """Archive an invoice."""
        log_call(directory, "archive", invoice)
        return f"archived {invoice}"

    def model(agent: str, *plan: list[Any]) -> OfficeModel:
        return OfficeModel(directory=directory, agent=agent, plan=list(plan))

    researcher = LlmAgent(
        name="researcher",
        model=model("researcher", [("lookup", {"creditor": "creditor of {}"})], ["trust"]),
        tools=[lookup],
    )
    payer = LlmAgent(
        name="payer",
        description="pays",
        model=model("payer", [("pay", {"invoice": "{}"})], [("archive", {"invoice": "{}"})], ["paid"]),
        tools=[pay, FunctionTool(archive, require_confirmation=True)],
    )
    clerk = LlmAgent(
        name="clerk",
        model=model(
            "clerk",
            [("balance", {}), ("researcher", {"request": "who is the creditor of {}?"})],
            [("transfer_to_agent", {"agent_name": "payer"})],
        ),
        tools=[balance, AgentTool(researcher)],
        sub_agents=[payer],
    )
    return App(name="office", root_agent=clerk)


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


async def take(agent: ResumableApp, invoice: str, config: RunConfig | None = None) -> list[Any]:
    events = agent.run_async(user_id="ann", new_message=f"pay the invoice {invoice}", run_config=config)
    return [event async for event in events if not event.partial]


async def take_two_turns(store: str, agent: ResumableApp) -> list[Any]:
    results = []
    for invoice, config in (("a", None), ("b", RunConfig(streaming_mode=StreamingMode.SSE))):
        while len(results) < "ab".index(invoice) + 1:
            try:
                results.append(await take(agent, invoice, config))
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
            results.append(list(agent.run(user_id="ann", new_message="pay the invoice c")))
        except ApprovalPendingError:
            with SyncClient.open(store) as client:
                for asked in client.approvals(SESSION):
                    client.decide(asked.approval_id, "approve", by="ann")
    with SyncClient.open(store) as client:
        state = client.latest(SESSION).execution_state["state"]
    told = [
        [[event.author, [tell(part) for part in event.content.parts] if event.content else None] for event in events]
        for events in results
    ]
    print(json.dumps([told, state]))


def tell(part: types.Part) -> Any:
    call, response = part.function_call, part.function_response
    return part.text or (call and [call.name, call.args]) or (response and [response.name, response.response])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
