"""`Send` starts a branch for each part of the work; the process dies in one of them. The others don't run again.

Run it twice: the first run is killed in the branch about the roots, after the other three are done.

    python examples/langgraph/crash_in_a_fan_out.py
    python examples/langgraph/crash_in_a_fan_out.py
"""

import operator
import os
import signal
import time
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from holdfast.langgraph import HoldfastSaver

PARTS = ["blade", "float", "roots", "stem"]
CRASHED = Path("crashed")

saver = HoldfastSaver.from_sqlite("kelp.db")
config = {"configurable": {"thread_id": "kelp"}}


class State(TypedDict):
    summaries: Annotated[list[str], operator.add]
    report: str


class Part(TypedDict):
    name: str


def fan_out(_: State):
    return [Send("summarise", {"name": name}) for name in PARTS]


def summarise(part: Part):
    if part["name"] == "roots" and not CRASHED.exists():
        while branches_done() < len(PARTS) - 1:  # so that everybody sees the same: this branch is the last one
            time.sleep(0.01)
        CRASHED.touch()
        print("dying in the branch about the roots\n", end="", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"summarising the {part['name']}\n", end="", flush=True)  # in one go: branches run in threads
    return {"summaries": [f"{part['name']}: holds"]}


def report(state: State):
    return {"report": ", ".join(state["summaries"])}


def branches_done() -> int:
    """How many branches have their result in the store."""
    kept = saver.get_tuple(config)
    return sum(channel == "summaries" for _, channel, _ in kept.pending_writes) if kept else 0


builder = StateGraph(State)
builder.add_node("summarise", summarise)
builder.add_node("report", report)
builder.add_conditional_edges(START, fan_out, ["summarise"])
builder.add_edge("summarise", "report")
builder.add_edge("report", END)
graph = builder.compile(checkpointer=saver)

print(f"{branches_done()} branches are done", flush=True)
given = {"summaries": []} if saver.get_tuple(config) is None else None
print(graph.invoke(given, config, durability="sync")["report"])
