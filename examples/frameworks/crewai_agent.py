"""A crew of CrewAI that is killed in the middle of a task, and goes on. No network, no key.

The first run is killed after the payment. The second one does not pay again, and asks a person.

    $ python examples/frameworks/crewai_agent.py --crash
    the model is asked for step 1
    paying the invoice 7
    the model is asked for step 2
    [killed]
    $ python examples/frameworks/crewai_agent.py
    the model is asked for step 2
    ...
    'human_input' of session 'invoice-7' waits for approval...
    [exit 6]
    $ holdfast approvals
    id...
    ...invoice-7  human_input(...pending
    $ holdfast approve ID --by ann --yes
    ...
    $ python examples/frameworks/crewai_agent.py
    payer: paid, with receipt 7
"""

from __future__ import annotations

import os
import signal
import sys

from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool

from holdfast import Effect
from holdfast.crewai import resumable
from holdfast.errors import ApprovalPendingError


class ScriptedModel(BaseLLM):
    """A model that pays, and then says so. Its answer depends on the conversation only."""

    def call(self, messages, *_, **__):
        results = [message["content"] for message in messages if message["role"] == "tool"]
        print(f"the model is asked for step {1 + len(results)}", flush=True)
        if results and "--crash" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        if results:
            return f"paid, with {results[0]}"
        function = {"name": "pay", "arguments": '{"invoice_id": 7}'}
        return [{"id": "call-1", "type": "function", "function": function}]

    def supports_function_calling(self) -> bool:
        return True

    def get_input_tokens_count(self, *_, **__) -> int:
        return 1


@tool
def pay(invoice_id: int) -> str:
    """Pay an invoice."""
    print(f"paying the invoice {invoice_id}", flush=True)
    return f"receipt {invoice_id}"


def main() -> None:
    payer = Agent(
        role="payer", goal="Invoices are paid.", backstory="An office.", llm=ScriptedModel(model="script"), tools=[pay]
    )
    task = Task(description="Pay the invoice {number}.", expected_output="A receipt.", agent=payer, human_input=True)
    crew = Crew(agents=[payer], tasks=[task])
    crew = resumable(crew, session_id="invoice-7", tools={"pay": Effect("irreversible", key="invoice_id")})
    try:
        output = crew.kickoff({"number": 7})
    except ApprovalPendingError as pending:
        print(pending)
        sys.exit(6)
    print(f"{output.tasks_output[0].agent}: {output.raw}")


if __name__ == "__main__":
    main()
