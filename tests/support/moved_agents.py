"""Agents of each framework that continue a session of another framework.

Each function takes a store's URL, a session and the office, and returns what the agent said at the end. The model of
an `Office` is a function of what it reads: it pays invoice 7 if it sees no receipt, and then reports.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from call_log import log_call, read_calls
from framework_environments import is_installed

from holdfast import NOT_DONE, Done, Effect, SyncClient

QUESTION = "Pay invoice 7, then tell me."
GO_ON = "Go on."
RECEIPT = "receipt 7"


class Office:
    """The world outside, and what a model says in it; `is_forgetful`: it pays again whatever it reads."""

    def __init__(self, directory: Path, *, is_forgetful: bool = False) -> None:
        self.directory = directory
        self.is_forgetful = is_forgetful

    def pay(self, invoice: str) -> str:
        """Pay an invoice."""
        log_call(self.directory, "pay", invoice)
        return f"receipt {invoice}"

    def find_payment(self, invoice: str) -> Any:
        paid = json.dumps([invoice]) in read_calls(self.directory).get("pay", [])
        return Done(f"receipt {invoice}") if paid else NOT_DONE

    @property
    def effect(self) -> Effect:
        return Effect("irreversible", key="invoice", probe=self.find_payment)

    def answer(self, read: str) -> str | None:
        """Return what the model says to what it reads; None: it pays."""
        log_call(self.directory, "model", len(read_calls(self.directory).get("model", [])))
        paid = RECEIPT in read or "not carried out" in read
        if self.is_forgetful and "not carried out" not in read and "call-again" not in read:
            return None
        return f"paid: {RECEIPT}" if paid else None


class ReadingOffice(Office):
    """Keeps what the model reads. The model pays nothing."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.read: list[str] = []

    def answer(self, read: str) -> str:
        self.read.append(read)
        return "seen"


def make_source(client: SyncClient, office: Office, session: str = "source") -> None:
    """Make a loop of one's own that paid, and was cut off before it could say so."""
    with client.run(session, "loop") as run:
        call = {"id": "call-1", "type": "function", "function": {"name": "pay", "arguments": '{"invoice": "7"}'}}
        messages: list[Any] = [
            {"role": "system", "content": "You pay."},
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
        effect = office.effect
        paid = run.effect("pay", office.pay, invoice="7", key="7", **effect.effect_options())
        run.state = {"messages": [*messages, {"role": "tool", "tool_call_id": "call-1", "content": paid}]}
        run.save("paid")


def continue_pydantic_ai(store: str, session: str, office: Office) -> str:
    from pydantic_ai import Agent, ModelResponse
    from pydantic_ai.messages import ModelMessagesTypeAdapter, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from holdfast.pydantic_ai import resumable

    def model(messages: Any, info: Any) -> ModelResponse:
        said = office.answer(ModelMessagesTypeAdapter.dump_json(messages).decode())
        call = ToolCallPart("pay", {"invoice": "7"}, tool_call_id="call-again")
        return ModelResponse([call if said is None else TextPart(said)])

    agent = Agent(FunctionModel(model), name="clerk", tools=[office.pay])
    return str(resumable(agent, session_id=session, store=store, tools={"pay": office.effect}).run_sync(GO_ON).output)


def continue_openai_agents(store: str, session: str, office: Office) -> str:
    from agents import Agent, Model, ModelResponse, Usage, function_tool
    from agents.testing import assistant_message, function_call

    from holdfast.openai_agents import resumable

    class OfficeModel(Model):
        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            said = office.answer(json.dumps([args, kwargs.get("input")], default=str))
            call = function_call("pay", {"invoice": "7"}, call_id="call-again")
            output = [call if said is None else assistant_message(said)]
            return ModelResponse(output=output, usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError  # nothing streams here

    agent = Agent(name="clerk", model=OfficeModel(), tools=[function_tool(office.pay, name_override="pay")])
    agent = resumable(agent, session_id=session, store=store, tools={"pay": office.effect})
    return str(agent.run_sync(GO_ON).final_output)


def continue_google_adk(store: str, session: str, office: Office) -> str:
    from google.adk.agents import LlmAgent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types

    from holdfast.google_adk import resumable

    class OfficeModel(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            said = office.answer(json.dumps([one.model_dump(mode="json") for one in llm_request.contents]))
            call = types.FunctionCall(id="call-again", name="pay", args={"invoice": "7"})
            part = types.Part(function_call=call) if said is None else types.Part(text=said)
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    def pay(invoice: str) -> str:
        """Pay an invoice."""
        return office.pay(invoice)

    agent = LlmAgent(name="clerk", model=OfficeModel(model="office"), tools=[pay])
    app = resumable(agent, session_id=session, store=store, tools={"pay": office.effect})
    contents = [event.content for event in app.run(user_id="ann", new_message=GO_ON)]
    last = contents[-1] if contents else None
    return str(last.parts[0].text) if last is not None and last.parts else ""


def continue_agent_framework(store: str, session: str, office: Office) -> str:
    from agent_framework import Agent, tool
    from agent_framework_model import FunctionClient, call

    from holdfast.agent_framework import resumable

    def model(messages: Any) -> Any:
        said = office.answer(json.dumps([one.to_dict() for one in messages], default=str))
        return [call("pay", "call-again", invoice="7")] if said is None else said

    @tool(name="pay")
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        return office.pay(invoice)

    agent = Agent(FunctionClient(model), name="clerk", tools=[pay])
    agent = resumable(agent, session_id=session, store=store, tools={"pay": office.effect})
    return str(asyncio.run(agent.run(GO_ON)).text)


def continue_strands(store: str, session: str, office: Office) -> str:
    from strands import Agent, tool
    from strands_model import FunctionModel, call

    from holdfast.strands import resumable

    def model(messages: Any) -> Any:
        said = office.answer(json.dumps(messages, default=str))
        return [call("pay", "call-again", invoice="7")] if said is None else said

    @tool(name="pay")
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        return office.pay(invoice)

    agent = Agent(model=FunctionModel(model), name="clerk", tools=[pay], callback_handler=None)
    agent = resumable(agent, session_id=session, store=store, tools={"pay": office.effect})
    return str(agent(GO_ON)).strip()


def continue_haystack(store: str, session: str, office: Office) -> str:
    from haystack_model import FunctionModel, call  # isort: skip  # first: it turns telemetry off

    from haystack.components.agents import Agent
    from haystack.dataclasses import ChatMessage
    from haystack.tools import tool

    from holdfast.haystack import resumable

    def model(messages: Any) -> Any:
        said = office.answer(json.dumps([one.to_dict() for one in messages], default=str))
        again = call("pay", "call-again", invoice="7")
        return ChatMessage.from_assistant(tool_calls=[again]) if said is None else said

    @tool(name="pay")
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        return office.pay(invoice)

    agent = Agent(chat_generator=FunctionModel(model), tools=[pay])
    agent = resumable(agent, session_id=session, store=store, tools={"pay": office.effect})
    return str(agent.run([ChatMessage.from_user(GO_ON)])["last_message"].text)


def make_autogen_agent(office: Office) -> Any:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_model import FunctionModel, call

    def model(messages: Any) -> Any:
        said = office.answer(json.dumps([one.model_dump() for one in messages], default=str))
        return [call("pay", "call-again", invoice="7")] if said is None else said

    async def pay(invoice: str) -> str:
        """Pay an invoice."""
        return office.pay(invoice)

    return AssistantAgent("clerk", FunctionModel(model), tools=[pay], reflect_on_tool_use=True)


def continue_team(store: str, session: str, office: Office) -> str:
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat

    from holdfast.autogen import resumable

    team = RoundRobinGroupChat([make_autogen_agent(office)], termination_condition=MaxMessageTermination(2))
    target = resumable(team, session_id=session, store=store, tools={"pay": office.effect})
    return str(asyncio.run(target.run(task=GO_ON)).messages[-1].content)


def continue_autogen(store: str, session: str, office: Office) -> str:
    from holdfast.autogen import resumable

    agent = make_autogen_agent(office)
    target = resumable(agent, session_id=session, store=store, tools={"pay": office.effect})
    return str(asyncio.run(target.run(task=GO_ON)).messages[-1].content)


def make_graph(office: Office, saver: Any, *, dies_after_paying: bool = False) -> Any:
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    class OfficeState(MessagesState):
        plan: list[str]

    def model(state: Any) -> Any:
        if dies_after_paying and state["messages"][-1].type == "tool":
            raise RuntimeError("power cut")
        said = office.answer(json.dumps([one.model_dump() for one in state["messages"]], default=str))
        call = {"name": "pay", "args": {"invoice": "7"}, "id": "call-again"}
        return {"messages": [AIMessage("", tool_calls=[call]) if said is None else AIMessage(said)]}

    builder = StateGraph(OfficeState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([office.pay]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def continue_langgraph(store: str, session: str, office: Office) -> str:
    from langchain_core.messages import HumanMessage

    from holdfast.langgraph import HoldfastSaver

    with HoldfastSaver.from_conn_string(store) as saver:
        graph = make_graph(office, saver)
        thread: Any = {"configurable": {"thread_id": session.removeprefix("lg/")}}
        return str(graph.invoke({"messages": [HumanMessage(GO_ON)]}, thread)["messages"][-1].content)


def make_crew_agent(office: Office) -> Any:
    from crewai import Agent
    from crewai.tools import tool
    from crewai_model import FunctionModel, call

    def model(messages: Any) -> Any:
        said = office.answer(json.dumps(messages, default=str))
        return [call("pay", "call-again", invoice="7")] if said is None else said

    @tool("pay")
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        return office.pay(invoice)

    return Agent(role="clerk", goal="Pay.", backstory="An office.", llm=FunctionModel.make(model), tools=[pay])


def continue_crewai(store: str, session: str, office: Office) -> str:
    agent = make_crew_agent(office)
    from holdfast.crewai import resumable

    return str(resumable(agent, session_id=session, store=store, tools={"pay": office.effect}).kickoff(GO_ON).raw)


def continue_crew(store: str, session: str, office: Office) -> str:
    agent = make_crew_agent(office)
    from crewai import Crew, Task

    from holdfast.crewai import resumable

    task = Task(description=GO_ON, expected_output="A report.", agent=agent)
    crew = resumable(Crew(agents=[agent], tasks=[task]), session_id=session, store=store, tools={"pay": office.effect})
    return str(crew.kickoff().raw)


def continue_ag2(store: str, session: str, office: Office) -> str:
    from ag2 import Agent, tool
    from ag2.config.openai.mappers import convert_messages
    from ag2_model import FunctionConfig, call
    from fast_depends.pydantic import PydanticSerializer

    from holdfast.ag2 import resumable

    def model(events: Any) -> Any:
        sent = convert_messages([], events, PydanticSerializer())  # as a provider gets them
        said = office.answer(json.dumps(sent, default=str))
        return [call("pay", "call-again", invoice="7")] if said is None else said

    @tool
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        return office.pay(invoice)

    agent = Agent("clerk", config=FunctionConfig(model), tools=[pay])
    target = resumable(agent, session_id=session, store=store, tools={"pay": office.effect})
    return str(asyncio.run(target.ask(GO_ON)).body)


def make_smolagent(office: Office, *, writes_code: bool = False) -> Any:
    from rich.console import Console
    from smolagents import AgentLogger, CodeAgent, LogLevel, ToolCallingAgent, tool
    from smolagents_model import FunctionModel, code, final, text_of

    def model(messages: Any) -> Any:
        said = office.answer("\n".join(map(text_of, messages)))
        if writes_code:
            return code("pay('7')" if said is None else f"final_answer({said!r})")
        return [("pay", {"invoice": "7"})] if said is None else final(said)

    @tool
    def pay(invoice: str) -> str:
        """Pay an invoice.

        Args:
            invoice: Its number.
        """
        return office.pay(invoice)

    kind = CodeAgent if writes_code else ToolCallingAgent
    logger = AgentLogger(LogLevel.OFF, Console(quiet=True))
    return kind(tools=[pay], model=FunctionModel(model), name="clerk", logger=logger)


def continue_smolagents(store: str, session: str, office: Office, *, writes_code: bool = False) -> str:
    from holdfast.smolagents import resumable

    agent = make_smolagent(office, writes_code=writes_code)
    target = resumable(agent, session_id=session, store=store, tools={"pay": office.effect})
    return str(target.run(GO_ON, reset=False))


CONTINUE: dict[str, Callable[[str, str, Office], str]] = {
    "pydantic_ai": continue_pydantic_ai,
    "openai_agents": continue_openai_agents,
    "google_adk": continue_google_adk,
    "agent_framework": continue_agent_framework,
    "strands": continue_strands,
    "haystack": continue_haystack,
    "autogen": continue_autogen,
    "langgraph": continue_langgraph,
    "crewai": continue_crewai,
    "ag2": continue_ag2,
    "smolagents": continue_smolagents,
}


def is_here(framework: str) -> bool:
    return find_spec("langgraph.prebuilt") is not None if framework == "langgraph" else is_installed(framework)


if __name__ == "__main__":
    framework, store, session, directory = sys.argv[1:]
    print(CONTINUE[framework](store, session, Office(Path(directory))))
