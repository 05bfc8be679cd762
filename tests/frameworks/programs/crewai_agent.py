"""An office of CrewAI that pays four invoices, one a turn.

    python crewai_agent.py STORE DIRECTORY

Turns one and two are kickoffs of a crew, by `kickoff` and `kickoff_async`: a clerk reads the balance and asks a
co-worker about the creditor (a delegation), then a payer pays, archives the invoice, and a person reviews the result.
The third one is a kickoff of the payer alone, in a session of its own. The fourth one is a kickoff of a flow, whose
methods run a crew and the payer; a person reviews what a method returned.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from call_log import log_call, read_calls
from crewai import Agent, Crew, Task
from crewai.flow.flow import Flow, listen, start
from crewai.flow.human_feedback import human_feedback
from crewai.llms.base_llm import BaseLLM
from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai.tools import BaseTool, tool
from pydantic import BaseModel, PrivateAttr

from holdfast import NOT_DONE, Done, Effect, SyncClient
from holdfast.crewai import resumable
from holdfast.errors import ApprovalPendingError

API_KEY = "sk-crewai-0123456789"
os.environ["OPENAI_API_KEY"] = "sk-environment-0123456789"
Step = list[tuple[str, dict[str, Any]]] | str


class OfficeModel(BaseLLM):
    """A model whose answer depends on the request only: on its plan, and how much of it is done."""

    _directory: Path = PrivateAttr()
    _agent: str = PrivateAttr()
    _plan: list[Step] = PrivateAttr()

    @classmethod
    def make(cls, directory: Path, agent: str, plan: list[Step]) -> OfficeModel:
        made = cls(model="gpt-4o-mini", **({} if issubclass(cls, OpenAICompletion) else {"api_key": API_KEY}))
        made._directory, made._agent, made._plan = directory, agent, plan
        return made

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        said = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        request = next(str(one["content"]) for one in reversed(said) if "Current Task" in str(one.get("content")))
        invoice = request.partition("invoice ")[2][:1]
        begins = max(number for number, one in enumerate(said) if one.get("content") == request)
        step = sum(one["role"] == "assistant" for one in said[begins:])
        reviewed = any("shorter" in str(one.get("content")) for one in said)
        log_call(self._directory, "model", self._agent, invoice, step)
        self._track_token_usage_internal({"prompt_tokens": 10 * len(said), "completion_tokens": 5})
        wanted = self._plan[min(step, len(self._plan) - 1)]
        if isinstance(wanted, str):
            return f"{wanted} {invoice}" + (" reviewed" if reviewed else "")
        return [
            {
                "id": f"{self._agent}-{invoice}-{step}-{number}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": json.dumps({one: value.format(invoice) for one, value in arguments.items()}),
                },
            }
            for number, (name, arguments) in enumerate(wanted)
        ]

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    def supports_function_calling(self) -> bool:
        return True

    def get_input_tokens_count(self, *_: Any, **__: Any) -> int:
        return 1


class ProviderModel(OfficeModel, OpenAICompletion):
    """A model of a provider, which takes its key from the environment."""


class Pay(BaseTool):
    """A tool that is a class."""

    name: str = "pay"
    description: str = "Pays an invoice."
    _directory: Path = PrivateAttr()

    def _run(self, invoice: str) -> str:
        log_call(self._directory, "pay", invoice)  # which is the payment
        return f"receipt {invoice}"


def make_office(directory: Path) -> tuple[Crew, Agent]:
    """Return the crew, and the payer."""

    @tool
    def balance() -> int:
        """Reads the balance."""
        log_call(directory, "balance")
        return 100

    @tool
    def lookup(creditor: str) -> dict[str, Any]:
        """Looks a creditor up."""
        log_call(directory, "lookup", creditor)
        return {"creditor": creditor, "rating": 5}

    @tool
    async def archive(invoice: str) -> str:
        """Archives an invoice."""
        log_call(directory, "archive", invoice)
        return f"archived {invoice}"

    pay = Pay()
    pay._directory = directory
    about = {"goal": "invoices are paid", "backstory": "an office"}
    asked = {"question": "who sent invoice {}?", "context": "it is due", "coworker": "researcher"}
    clerk = Agent(
        role="clerk",
        llm=OfficeModel.make(directory, "clerk", [[("balance", {})], [("ask_question_to_coworker", asked)], "checked"]),
        tools=[balance],
        allow_delegation=True,
        **about,
    )
    researcher = Agent(
        role="researcher",
        llm=ProviderModel.make(directory, "researcher", [[("lookup", {"creditor": "sender of {}"})], "trust"]),
        tools=[lookup],
        **about,
    )
    payer = Agent(
        role="payer",
        llm=OfficeModel.make(
            directory, "payer", [[("pay", {"invoice": "{}"})], [("archive", {"invoice": "{}"})], "paid"]
        ),
        tools=[pay, archive],
        **about,
    )
    tasks = [
        Task(name="check", description="check invoice {invoice}", expected_output="a check", agent=clerk),
        Task(
            name="pay", description="pay invoice {invoice}", expected_output="a receipt", agent=payer, human_input=True
        ),
    ]
    return Crew(name="office", agents=[clerk, researcher, payer], tasks=tasks), payer


class OfficeState(BaseModel):
    id: str = ""
    done: list[str] = []


class OfficeFlow(Flow[OfficeState]):
    """The same work as methods of a flow."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(suppress_flow_events=True, **options)
        self.directory = directory

    @start()
    def check(self) -> Any:
        log_call(self.directory, "method", "check", self.state.done)
        crew, _ = make_office(self.directory)
        checked = Crew(agents=crew.agents[:2], tasks=crew.tasks[:1]).kickoff(inputs={"invoice": "d"})
        self.state.done.append(checked.raw)
        return checked

    @listen(check)
    @human_feedback(message="Is that reviewed?")
    async def pay(self, checked: Any) -> str:
        log_call(self.directory, "method", "pay", checked.raw, self.state.done)
        _, payer = make_office(self.directory)
        paid = await payer.kickoff_async("pay invoice d")
        self.state.done.append(paid.raw)
        return paid.raw

    @listen(pay)
    def tell(self, paid: Any) -> list[str]:
        log_call(self.directory, "method", "tell", paid.output, paid.feedback)
        self.state.done.append(paid.feedback)
        return list(self.state.done)


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


def decide(store: str) -> None:
    """Answer as a person does, from anywhere: the first review wants a change, the second one approves."""
    with SyncClient.open(store) as client:
        for asked in client.approvals():
            first = "reviewed" not in json.dumps(asked.arguments)
            client.decide(
                asked.approval_id, "reject" if first else "approve", by="ann", note="shorter" if first else None
            )


def insist(store: str, call: Any) -> Any:
    while True:
        try:
            return call()
        except ApprovalPendingError:
            decide(store)


def main(store: str, directory: Path) -> None:
    options = {"store": store, "tools": declare_tools(directory)}
    crew, payer = make_office(directory)
    office = resumable(crew, session_id="invoices", **options)
    results = [
        insist(store, lambda: office.kickoff({"invoice": "a"})),
        insist(store, lambda: asyncio.run(office.kickoff_async({"invoice": "b"}))),
    ]
    own = {name: declare_tools(directory)[name] for name in ("pay", "archive")}
    alone = resumable(payer, session_id="payer", store=store, tools=own).kickoff("pay invoice c")
    told = [
        {
            "answer": result.raw,
            "tokens": result.token_usage.total_tokens,
            "tasks": [[task.name, task.agent, task.raw, task.messages] for task in result.tasks_output],
        }
        for result in results
    ]
    flow = OfficeFlow(directory)
    done = insist(store, lambda: resumable(flow, session_id="flow", **options).kickoff())
    told.append({"answer": done, "state": flow.state.done})
    told.append({"answer": alone.raw, "agent": alone.agent_role, "tokens": alone.token_usage.total_tokens})
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
