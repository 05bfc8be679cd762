"""The graph that is measured: one node that answers, and a conversation that grows by 1 KB of
question and of answer."""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

from benchmarks.conversation import Conversation

MESSAGE_BYTES = 1000
CONFIG: Any = {"configurable": {"thread_id": "conversation"}}


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


@cache
def texts(count: int) -> tuple[str, ...]:
    """What is said, by turns: prose of a kilobyte, the same in every run."""
    conversation = Conversation(seed=5)
    return tuple(conversation._prose(MESSAGE_BYTES) for _ in range(count))


def compiled(saver: BaseCheckpointSaver[Any], turns: int, *, delta: bool) -> Any:
    said = texts(2 * turns)

    def answer(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage(said[len(state["messages"])])]}

    builder = StateGraph(Delta if delta else Plain)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def take_turn(graph: Any, turn: int, turns: int) -> None:
    question = HumanMessage(texts(2 * turns)[2 * turn])
    graph.invoke({"messages": [question]}, CONFIG, durability="sync")


def contents(state: Any) -> list[tuple[str, str]]:
    """What two savers must agree upon: ids of messages are random."""
    return [(message.type, message.content) for message in state.values["messages"]]


def timed(method: Callable[..., Any], clock: Callable[[], Any]) -> Callable[..., Any]:
    """The method, with `clock()` around each call: it gives what to call at the end."""

    def call(*arguments: Any, **options: Any) -> Any:
        done = clock()
        try:
            return method(*arguments, **options)
        finally:
            done()

    return call
