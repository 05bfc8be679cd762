"""A loop of one's own that pays, and an agent of the OpenAI Agents SDK that goes on. No network, no key.

The loop is killed right after the payment: its conversation ends with a call without a result. The ledger knows the
result, so the agent reads it, and cannot pay a second time even if it tries.

    $ python examples/frameworks/openai_agents_after_a_loop.py --loop
    paying the invoice 7
    [killed]
    $ python examples/frameworks/openai_agents_after_a_loop.py
    instructions: the target's instructions win; these are kept as metadata
    the agent is asked
    the agent tries to pay again
    the agent is asked
    clerk: paid, with receipt 7
    paid once: ['pay']
"""

from __future__ import annotations

import os
import signal
import sys

from holdfast import Effect, SyncClient

CALL = {"id": "call-1", "type": "function", "function": {"name": "pay", "arguments": '{"invoice_id": 7}'}}
ASKED = [
    {"role": "system", "content": "You pay invoices."},
    {"role": "user", "content": "Pay the invoice 7, then tell me."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
]


@Effect("irreversible", key="invoice_id")
def pay(invoice_id: int) -> str:
    """Pay an invoice."""
    print(f"paying the invoice {invoice_id}", flush=True)
    return f"receipt {invoice_id}"


def run_loop() -> None:
    with SyncClient.sqlite() as client, client.run("loop", agent_id="loop") as run:
        run.state = {"messages": ASKED}
        run.save("asked")
        run.effect("pay", pay, invoice_id=7, key="7")
        os.kill(os.getpid(), signal.SIGKILL)  # before the result is in the conversation


def run_agent() -> None:
    from agents import Agent, Model, ModelResponse, Usage, function_tool
    from agents.testing import assistant_message, function_call

    from holdfast.openai_agents import resumable

    class ForgetfulModel(Model):
        """A model that pays, whatever it reads, and then says what the first call returned."""

        async def get_response(self, system_instructions, input, *_, **__):
            print("the agent is asked")
            results = [item["output"] for item in input if item.get("type") == "function_call_output"]
            if len(results) == 1:
                print("the agent tries to pay again")
                output = function_call("pay", {"invoice_id": 7}, call_id="call-2")
            else:
                output = assistant_message(f"paid, with {results[0]}")
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *_, **__):
            raise NotImplementedError  # this example streams nothing

    with SyncClient.sqlite() as client:
        plan = client.resume_as("loop", "openai_agents")
        for loss in plan.losses:
            print(f"{loss.kind}: {loss.what.rpartition('.: ')[2]}")
        session = plan.save("clerk", session_id="office")

    clerk = Agent(name="clerk", instructions="You pay.", model=ForgetfulModel(), tools=[function_tool(pay)])
    clerk = resumable(clerk, session_id=session, tools={"pay": Effect("irreversible", key="invoice_id")})
    print(f"clerk: {clerk.run_sync('Go on.').final_output}")
    with SyncClient.sqlite() as client:
        print(f"paid once: {[effect.tool for effect in client.effects(session)]}")


if __name__ == "__main__":
    run_loop() if "--loop" in sys.argv else run_agent()
