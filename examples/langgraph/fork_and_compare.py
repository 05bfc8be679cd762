"""Goes back to before a decision, changes what it was based on, and compares the two lines that come of it.

Both stay in the store, in one tree: `holdfast --store offers.db timeline lg/offer --graph` draws it.

    python examples/langgraph/fork_and_compare.py
"""

import operator
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph

from holdfast import SyncClient
from holdfast.langgraph import HoldfastSaver


class State(TypedDict):
    budget: int
    steps: Annotated[list[str], operator.add]
    choice: str


def search(_: State):
    print("searching, which is slow and costs money")
    return {"steps": ["found: train 120, plane 240"]}


def decide(state: State):
    choice = "plane" if state["budget"] >= 240 else "train"
    return {"choice": choice, "steps": [f"with {state['budget']} I take the {choice}"]}


builder = StateGraph(State)
builder.add_node("search", search)
builder.add_node("decide", decide)
builder.add_edge(START, "search")
builder.add_edge("search", "decide")
builder.add_edge("decide", END)

with SyncClient.sqlite("offers.db") as client:
    graph = builder.compile(checkpointer=HoldfastSaver(client))
    config = {"configurable": {"thread_id": "offer"}}
    first = graph.invoke({"budget": 150, "steps": [], "choice": ""}, config)

    before = next(state for state in graph.get_state_history(config) if state.next == ("decide",))
    other = graph.update_state(before.config, {"budget": 300})  # a branch: what came after stays
    second = graph.invoke(None, other)

    for name in first:
        mark = " " if first[name] == second[name] else "≠"
        print(f"{mark} {name}: {first[name]} | {second[name]}")

    tree = client.tree("lg/offer")
    parents = [entry.parent_id for entry in tree.entries]
    forks = {parent for parent in parents if parents.count(parent) > 1}
    print(f"{len(tree.entries)} checkpoints in one tree, {len(forks)} fork; it verifies: {client.verify().ok}")
