"""A LangGraph agent that asks before it acts, and gets its answer in another process.

The first run stops with a question; the process ends. The second one answers it: nothing before it runs again.

    python examples/langgraph/approve_after_restart.py
    python examples/langgraph/approve_after_restart.py yes
"""

import sys
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from holdfast.langgraph import HoldfastSaver


class State(TypedDict):
    draft: str
    outcome: str


def write(_: State):
    print("writing the mail")
    return {"draft": "Dear customer, ..."}


def send(state: State):
    answer = interrupt({"question": "send this?", "draft": state["draft"]})
    return {"outcome": "sent" if answer == "yes" else "thrown away"}


builder = StateGraph(State)
builder.add_node("write", write)
builder.add_node("send", send)
builder.add_edge(START, "write")
builder.add_edge("write", "send")
builder.add_edge("send", END)

with HoldfastSaver.from_sqlite("mails.db") as saver:
    graph = builder.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "mail-1"}}
    if len(sys.argv) == 1:
        graph.invoke({"draft": "", "outcome": ""}, config)
    for waiting in graph.get_state(config).interrupts:
        print(f"waiting for an answer: {waiting.value['question']}")
    if len(sys.argv) > 1:
        print(graph.invoke(Command(resume=sys.argv[1]), config)["outcome"])
