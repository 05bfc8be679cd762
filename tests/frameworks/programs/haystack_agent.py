"""An office of Haystack that pays four invoices, one a turn.

    python haystack_agent.py STORE DIRECTORY

Turns one and two are runs of a clerk, by `run` and `run_async`: it reads the balance and has a researcher look the
creditor up (an agent that is a tool), pays, and archives the invoice after a person has confirmed that. Turns three
and four are runs of a pipeline, by `run` and `run_async`: a prompt, the clerk, a letter, and a component that sends it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

from call_log import log_call, read_calls
from haystack import Pipeline, component
from haystack.components.agents import Agent, State
from haystack.components.builders import ChatPromptBuilder
from haystack.dataclasses import ChatMessage, Document, ToolCall
from haystack.hooks.human_in_the_loop import (
    AlwaysAskPolicy,
    BlockingConfirmationStrategy,
    ConfirmationHook,
    SimpleConsoleUI,
)
from haystack.tools import AgentTool, Tool, create_tool_from_function, tool
from haystack.utils import Secret

from holdfast import NOT_DONE, Done, Effect, SyncClient
from holdfast.errors import ApprovalPendingError
from holdfast.haystack import resumable

API_KEY = "sk-haystack-0123456789"
SESSION = "invoices"
Step = list[tuple[str, dict[str, Any]]] | str


@component
class OfficeModel:
    """A model whose answer depends on the request only: on its plan, and how much of it this turn has done."""

    def __init__(self, directory: Path, agent: str, plan: list[Step]) -> None:
        self.directory = directory
        self.agent = agent
        self.plan = plan
        self.api_key = Secret.from_token(API_KEY)

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        tools: list[Tool] | None = None,
        streaming_callback: Any = None,
        generation_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        begins = max(number for number, one in enumerate(messages) if one.is_from("user"))
        invoice = str(messages[begins].text)[-1]
        step = sum(one.is_from("assistant") for one in messages[begins:])
        log_call(self.directory, "model", self.agent, invoice, step)
        wanted = self.plan[step]
        usage = {"usage": {"prompt_tokens": 10 * len(messages), "completion_tokens": 5}}
        if isinstance(wanted, str):
            return {"replies": [ChatMessage.from_assistant(f"{wanted} {invoice}", meta=usage)]}
        calls = [
            ToolCall(name, json.loads(json.dumps(arguments).replace("?", invoice)), id=f"{self.agent}-{step}-{number}")
            for number, (name, arguments) in enumerate(wanted)
        ]
        return {"replies": [ChatMessage.from_assistant(tool_calls=calls, meta=usage)]}


@component
class Letter:
    """A component without effects: it makes documents of what the clerk said."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @component.output_types(documents=list[Document])
    def run(self, message: ChatMessage) -> dict[str, Any]:
        log_call(self.directory, "letter", message.text)
        return {"documents": [Document(content=f"Dear creditor, {message.text}.", meta={"pages": 1})]}


@component
class Post:
    """A component that does something outside, once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @component.output_types(sent=str)
    def run(self, documents: list[Document]) -> dict[str, Any]:
        log_call(self.directory, "post", documents[0].content)
        return {"sent": documents[0].content}


def make_clerk(directory: Path) -> Agent:
    @tool
    def lookup(creditor: Annotated[str, "its name"]) -> dict[str, Any]:
        """Look a creditor up."""
        log_call(directory, "lookup", creditor)
        return {"creditor": creditor, "rating": 5}

    @tool
    def balance(invoice: str, state: State) -> int:
        """Read the balance."""
        log_call(directory, "balance", invoice)
        state.set("read", [invoice])
        return 100

    def pay(invoice: str) -> dict[str, Any]:
        """Pay an invoice."""
        log_call(directory, "pay", invoice)  # which is the payment
        return {"receipt": Document(content=f"receipt {invoice}")}

    async def archive(invoice: str) -> str:
        """Archive an invoice."""
        log_call(directory, "archive", invoice)
        return f"archived {invoice}"

    def archive_now(invoice: str) -> str:
        log_call(directory, "archive", invoice)
        return f"archived {invoice}"

    archiving = create_tool_from_function(archive_now, name="archive", description="Archive an invoice.")
    archiving.async_function = archive
    paying = create_tool_from_function(pay)
    paying.outputs_to_state = {"receipts": {"source": "receipt"}}
    plan: list[Step] = [[("lookup", {"creditor": "creditor of ?"})], "trust the creditor of"]
    researcher = Agent(chat_generator=OfficeModel(directory, "researcher", plan), tools=[lookup])
    research = AgentTool(researcher, name="research", description="Ask the researcher.")
    plan = [
        [
            ("balance", {"invoice": "?"}),
            ("research", {"messages": [{"role": "user", "content": "who is the creditor of ?"}]}),
        ],
        [("pay", {"invoice": "?"})],
        [("archive", {"invoice": "?"})],
        "paid",
    ]
    strategy = BlockingConfirmationStrategy(confirmation_policy=AlwaysAskPolicy(), confirmation_ui=SimpleConsoleUI())
    return Agent(
        chat_generator=OfficeModel(directory, "clerk", plan),
        tools=[balance, research, paying, archiving],
        system_prompt="You pay invoices.",
        state_schema={"read": {"type": list[str]}, "receipts": {"type": list[Document]}},
        hooks={"before_tool": [ConfirmationHook({"archive": strategy})]},
    )


def make_pipeline(directory: Path) -> Pipeline:
    pipeline = Pipeline()
    template = [ChatMessage.from_user("pay the invoice {{ invoice }}")]
    pipeline.add_component("prompt", ChatPromptBuilder(template=template, required_variables="*"))
    pipeline.add_component("clerk", make_clerk(directory))
    pipeline.add_component("letter", Letter(directory))
    pipeline.add_component("post", Post(directory))
    pipeline.connect("prompt.prompt", "clerk.messages")
    pipeline.connect("clerk.last_message", "letter.message")
    pipeline.connect("letter.documents", "post.documents")
    return pipeline


def declare_tools(directory: Path) -> dict[str, Effect | str]:
    def find_payment(invoice: str) -> Any:
        paid = json.dumps([invoice]) in read_calls(directory).get("pay", [])
        return Done({"receipt": Document(content=f"receipt {invoice}")}) if paid else NOT_DONE

    return {
        "balance": "read",
        "lookup": "read",
        "pay": Effect("irreversible", key="invoice", probe=find_payment),
        "archive": "idempotent",
    }


def declare_post(directory: Path) -> Effect:
    def find_letter(documents: list[Document]) -> Any:
        text = documents[0].content
        return Done({"sent": text}) if json.dumps([text]) in read_calls(directory).get("post", []) else NOT_DONE

    return Effect("irreversible", key=lambda documents: documents[0].id, probe=find_letter)


def insist(store: str, call: Any) -> Any:
    """Make a call until a person has answered all its questions."""
    while True:
        try:
            return call()
        except ApprovalPendingError:
            with SyncClient.open(store) as client:
                for asked in client.approvals():
                    client.decide(asked.approval_id, "approve", by="ann")


def tell(outputs: dict[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in outputs.items() if name not in ("messages", "last_message")}
    said = [message.to_dict() for message in outputs["messages"]]
    told["receipts"] = [one.content for one in outputs["receipts"]]
    return {**told, "answer": outputs["last_message"].text, "conversation": said}


def main(store: str, directory: Path) -> None:
    tools = declare_tools(directory)
    clerk = resumable(make_clerk(directory), session_id=SESSION, store=store, tools=tools)

    def prompt(invoice: str) -> list[ChatMessage]:
        return [ChatMessage.from_user(f"pay the invoice {invoice}")]

    told: list[Any] = [
        tell(insist(store, lambda: clerk.run(prompt("a")))),
        tell(insist(store, lambda: asyncio.run(clerk.run_async(prompt("b"))))),
    ]
    tools["post"] = declare_post(directory)
    pipeline = resumable(make_pipeline(directory), session_id="pipeline", store=store, tools=tools)
    more = {"include_outputs_from": {"clerk"}}
    for invoice, run in (
        ("c", lambda: pipeline.run({"prompt": {"invoice": "c"}}, **more)),
        ("d", lambda: asyncio.run(pipeline.run_async({"prompt": {"invoice": "d"}}, **more))),
    ):
        outputs = insist(store, run)
        told.append({"invoice": invoice, "clerk": tell(outputs["clerk"]), "post": outputs["post"]})
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
