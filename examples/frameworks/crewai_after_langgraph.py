"""A session that LangGraph begins and CrewAI ends. No network, no key.

The graph pays, and is killed before it can say so. The session moves to CrewAI: `convert` says what that loses. The
agent of CrewAI reads the receipt, and does not pay again.

    $ python examples/frameworks/crewai_after_langgraph.py --langgraph
    LangGraph: the model is asked
    paying the invoice 7
    LangGraph: the model is asked
    [killed]
    $ holdfast convert lg/invoice-7 --to crewai --save --session invoice-7 --agent clerk
    ...to CrewAI: 3 messages
    severity...
    content   state...
    cosmetic  message_data...
    session invoice-7
    $ python examples/frameworks/crewai_after_langgraph.py
    ...
    CrewAI: the model is asked
    ...
    clerk: paid, with receipt 7
"""

from __future__ import annotations

import os
import signal
import sys

from holdfast import Effect

QUESTION = "Pay the invoice 7, then tell me."


def pay(invoice_id: int) -> str:
    """Pay an invoice."""
    print(f"paying the invoice {invoice_id}", flush=True)
    return f"receipt {invoice_id}"


def run_graph() -> None:
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    from holdfast.langgraph import HoldfastSaver

    class Office(MessagesState):
        budget: int

    def model(state):
        print("LangGraph: the model is asked", flush=True)
        if state["messages"][-1].type == "tool":
            os.kill(os.getpid(), signal.SIGKILL)  # before it can tell the result
        return {"messages": [AIMessage("", tool_calls=[{"name": "pay", "args": {"invoice_id": 7}, "id": "call-1"}])]}

    builder = StateGraph(Office)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([pay]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    with HoldfastSaver.from_sqlite() as saver:
        graph = builder.compile(checkpointer=saver)
        thread = {"configurable": {"thread_id": "invoice-7"}}
        graph.invoke({"messages": [("user", QUESTION)], "budget": 100}, thread, durability="sync")


def run_agent() -> None:
    from crewai import Agent
    from crewai.llms.base_llm import BaseLLM
    from crewai.tools import tool

    from holdfast.crewai import resumable

    class ScriptedModel(BaseLLM):
        """A model that tells what a tool has returned, whoever called it."""

        def call(self, messages, *_, **__):
            print("CrewAI: the model is asked", flush=True)
            results = [message["content"] for message in messages if message["role"] == "tool"]
            return f"paid, with {results[0]}" if results else "nothing was paid"

        def supports_function_calling(self) -> bool:
            return True

    clerk = Agent(
        role="clerk", goal="Pay.", backstory="An office.", llm=ScriptedModel(model="scripted"), tools=[tool(pay)]
    )
    clerk = resumable(clerk, session_id="invoice-7", tools={"pay": Effect("irreversible", key="invoice_id")})
    print(f"clerk: {clerk.kickoff('Go on.').raw}")


if __name__ == "__main__":
    run_graph() if "--langgraph" in sys.argv else run_agent()
