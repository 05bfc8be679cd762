"""An office of smolagents that pays four invoices.

    python smolagents_agent.py STORE DIRECTORY

Two turns are runs of a clerk, a `ToolCallingAgent` with plans: it reads balance and rating in one step, asks the agent
that it manages, a `CodeAgent` with a tool, then pays (a call in the text of an answer) and archives. The second one is
streamed, and goes on with the memory of the first. The other two are runs of a bookkeeper, a `CodeAgent` in a session
of its own: its code pays in a loop, after a person has approved each payment, and the next turn needs its variables.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from call_log import log_call, read_calls
from rich.console import Console
from smolagents import AgentLogger, CodeAgent, LogLevel, Tool, ToolCallingAgent, tool
from smolagents_model import FunctionModel, StreamingModel, answer_in_steps, code, final, since_task, text_of

from holdfast import NOT_DONE, Done, Effect, SyncClient
from holdfast.errors import ApprovalPendingError
from holdfast.smolagents import resumable
from holdfast.transcript import to_transcript

API_KEY = "sk-smolagents-0123456789"


class Pay(Tool):
    """A tool that is a class."""

    name = "pay"
    description = "Pays an invoice."
    inputs = {"invoice": {"type": "string", "description": "Its letter."}}  # noqa: RUF012 - as smolagents wants it
    output_type = "string"

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def forward(self, invoice: str) -> str:
        log_call(self._directory, "pay", invoice)  # which is the payment
        return f"receipt {invoice}"


class Office:
    """The agents, and the outside world that their tools change."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.options = {"logger": AgentLogger(LogLevel.OFF, Console(quiet=True))}

    def make_model(self, agent: str, *steps: Any, kind: type[FunctionModel] = FunctionModel) -> FunctionModel:
        """Return a model whose answer depends on the request only: on the invoice, and how much is done."""
        plan = answer_in_steps(*steps)

        def answer(messages: Any) -> Any:
            run = since_task(messages)
            invoice = next(
                (text.partition("invoice ")[2][:1] for text in map(text_of, messages[::-1]) if "invoice " in text), ""
            )
            is_plan = not any("New task" in text_of(one) for one in messages) or "<end_plan>" in str(messages[-1])
            log_call(self.directory, "model", agent, invoice, len(run), is_plan, len(messages))
            return f"the plan for {invoice}" if is_plan else _fill(plan(messages), invoice)

        return kind(answer, api_key=API_KEY)

    def make_clerk(self) -> ToolCallingAgent:
        directory = self.directory

        @tool
        def balance() -> int:
            """Reads the balance."""
            log_call(directory, "balance")
            return 100

        @tool
        def rating(creditor: str) -> dict:
            """Reads the rating of a creditor.

            Args:
                creditor: Who it is.
            """
            log_call(directory, "rating", creditor)
            return {"creditor": creditor, "rating": 5}

        @tool
        def archive(invoice: str) -> str:
            """Archives an invoice.

            Args:
                invoice: Its letter.
            """
            log_call(directory, "archive", invoice)
            return f"archived {invoice}"

        researcher = CodeAgent(
            tools=[rating],
            model=self.make_model("researcher", code("found = rating('sender of {}')"), code("final_answer(found)")),
            name="researcher",
            description="Finds creditors.",
            **self.options,
        )
        steps = (
            [("balance", {}), ("rating", {"creditor": "owner of {}"})],
            [("researcher", {"task": "who sent invoice {}"})],
            'Action: {"name": "pay", "arguments": {"invoice": "{}"}}',
            [("archive", {"invoice": "{}"})],
            final("paid {}"),
        )
        return ToolCallingAgent(
            tools=[balance, rating, Pay(directory), archive],
            model=self.make_model("clerk", *steps, kind=StreamingModel),
            managed_agents=[researcher],
            planning_interval=3,
            stream_outputs=True,
            name="clerk",
            **self.options,
        )

    def make_bookkeeper(self) -> CodeAgent:
        directory = self.directory

        @tool
        def balance() -> int:
            """Reads the balance."""
            log_call(directory, "balance")
            return 100

        work = answer_in_steps(
            code("total = balance()", "print(total)"),
            code("receipts = []", "for one in ['c', 'd']:", "    receipts.append(pay(one))", "    total -= 10"),
            code("final_answer([receipts, total])"),
        )
        look = answer_in_steps(code("final_answer(f'{total} left after {len(receipts)} payments')"))

        def answer(messages: Any) -> Any:
            log_call(self.directory, "model", "bookkeeper", len(messages))
            return (look if "left" in text_of(since_task(messages)[0]) else work)(messages)

        return CodeAgent(
            tools=[balance, Pay(directory)], model=FunctionModel(answer), name="bookkeeper", **self.options
        )

    def declare_pay(self, **options: Any) -> Effect:
        def find_payment(invoice: str) -> Any:
            paid = json.dumps([invoice]) in read_calls(self.directory).get("pay", [])
            return Done(f"receipt {invoice}") if paid else NOT_DONE

        return Effect("irreversible", key="invoice", probe=find_payment, **options)


def _fill(answer: Any, invoice: str) -> Any:
    """Return an answer with the invoice in it."""
    if isinstance(answer, str):
        return answer.replace("{}", invoice)
    filled = []
    for name, arguments in answer:
        filled.append((name, {one: value.replace("{}", invoice) for one, value in arguments.items()}))
    return filled


def decide(store: str) -> None:
    """Answer as a person does, from anywhere."""
    with SyncClient.open(store) as client:
        for asked in client.approvals():
            client.decide(asked.approval_id, "approve", by="ann")


def insist(store: str, call: Any) -> Any:
    while True:
        try:
            return call()
        except ApprovalPendingError:
            decide(store)


def main(store: str, directory: Path) -> None:
    office = Office(directory)
    tools = {"balance": "read", "rating": "read", "pay": office.declare_pay(), "archive": "idempotent"}
    clerk = resumable(office.make_clerk(), session_id="invoices", store=store, tools=tools)
    first = clerk.run("pay invoice a", return_full_result=True)
    events = list(clerk.run("pay invoice b", stream=True, reset=False))
    tools = {"balance": "read", "pay": office.declare_pay(approve="finance")}
    books = resumable(office.make_bookkeeper(), session_id="books", store=store, tools=tools)
    kept = insist(store, lambda: books.run("keep the books"))
    left = books.run("what is left?", reset=False)
    with SyncClient.open(store) as client:
        spoken = [
            [one.role, one.text, [part.name for part in one.tool_calls]]
            for one in to_transcript(client.latest("invoices"))
        ]
    told = {
        "answers": [first.output, events[-1].output, kept, left],
        "state": first.state,
        "tokens": first.token_usage.input_tokens,
        "steps": len(first.steps),
        "memory": [[type(one).__name__, str(getattr(one, "observations", None))] for one in clerk.agent.memory.steps],
        "spoken": spoken,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
