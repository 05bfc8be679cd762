"""A team of AutoGen that is killed in the middle of its work, and goes on. No network, no key.

The first run is killed after the payment. The second one does not pay again, and asks a person.

    $ python examples/frameworks/autogen_agent.py --crash
    the model is asked for step 1
    paying the invoice 7
    the model is asked for step 2
    [killed]
    $ python examples/frameworks/autogen_agent.py
    the model is asked for step 2
    'boss' of session 'invoice-7' waits for approval...
    [exit 6]
    $ holdfast approvals
    id...
    ...invoice-7  boss(...pending
    $ python examples/frameworks/autogen_agent.py --approve
    the model is asked for step 3
    payer: paid, and archived
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import Swarm
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from holdfast import Client, Effect
from holdfast.autogen import resumable
from holdfast.errors import ApprovalPendingError

SESSION = "invoice-7"
INFO = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False)


class ScriptedModel(ReplayChatCompletionClient):
    """A model that pays, hands off to the boss, and ends. Its answer depends on the conversation only."""

    def __init__(self) -> None:
        super().__init__(["unused"], model_info=INFO)

    async def create(self, messages, **_):
        step = 1 + sum(isinstance(message, FunctionExecutionResultMessage) for message in messages)
        print(f"the model is asked for step {step}", flush=True)
        if step == 2 and "--crash" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        calls = {
            1: FunctionCall(id="call-1", name="pay", arguments='{"invoice_id": 7}'),
            2: FunctionCall(id="call-2", name="transfer_to_boss", arguments="{}"),
        }
        content = [calls[step]] if step in calls else "paid, and archived"
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        return CreateResult(finish_reason="stop", content=content, usage=usage, cached=False)


def pay(invoice_id: int) -> str:
    """Pay an invoice."""
    print(f"paying the invoice {invoice_id}", flush=True)
    return f"receipt {invoice_id}"


async def main() -> None:
    payer = AssistantAgent("payer", ScriptedModel(), tools=[pay], handoffs=["boss"], max_tool_iterations=5)
    team = Swarm([payer, UserProxyAgent("boss")], termination_condition=TextMentionTermination("archived"))
    team = resumable(team, session_id=SESSION, tools={"pay": Effect("irreversible", key="invoice_id")})
    if "--approve" in sys.argv:  # as a colleague would, from another process
        async with Client.sqlite() as client:
            for asked in await client.approvals(SESSION):
                await client.decide(asked.approval_id, "approve", by="ann", note="go ahead")
    try:
        result = await team.run(task="pay the invoice 7")
    except ApprovalPendingError as pending:
        print(pending)
        sys.exit(6)
    print(f"{result.messages[-1].source}: {result.messages[-1].content}")


if __name__ == "__main__":
    asyncio.run(main())
