"""A LangGraph agent whose process dies in the middle of a tool, and goes on where it was.

Run it twice: the first run is killed while the second tool works, the second finishes. No finished tool runs again.

    python examples/langgraph/crash_in_a_tool.py
    python examples/langgraph/crash_in_a_tool.py
"""

import os
import signal
from pathlib import Path
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from holdfast.langgraph import HoldfastSaver

PLAN = ["search", "book", "confirm"]
CRASHED = Path("crashed")


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def think(state: State):
    """In the place of a language model: calls the tools of the plan, one after the other."""
    done = sum(isinstance(message, ToolMessage) for message in state["messages"])
    if done == len(PLAN):
        return {"messages": [AIMessage("All is booked.")]}
    return {"messages": [AIMessage("", tool_calls=[{"name": PLAN[done], "args": {}, "id": f"call-{done}"}])]}


def use_tool(state: State):
    [call] = state["messages"][-1].tool_calls
    print(f"running {call['name']}", flush=True)
    if call["name"] == "book" and not CRASHED.exists():
        CRASHED.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"messages": [ToolMessage(f"{call['name']} done", tool_call_id=call["id"])]}


builder = StateGraph(State)
builder.add_node("think", think)
builder.add_node("use_tool", use_tool)
builder.add_edge(START, "think")
builder.add_conditional_edges("think", lambda state: "use_tool" if state["messages"][-1].tool_calls else END)
builder.add_edge("use_tool", "think")

graph = builder.compile(checkpointer=HoldfastSaver.from_sqlite("trip.db"))
config = {"configurable": {"thread_id": "trip"}}

interrupted_at = graph.get_state(config).next
print(f"going on at {interrupted_at[0]}" if interrupted_at else "beginning", flush=True)
given = None if interrupted_at else {"messages": [HumanMessage("Book me a trip.")]}
result = graph.invoke(given, config, durability="sync")
print(result["messages"][-1].content)
