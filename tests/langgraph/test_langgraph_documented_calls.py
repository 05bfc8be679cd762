"""The calls on LangGraph's pages about persistence: on its own SQLite classes as a control, and on ours."""

from __future__ import annotations

import asyncio
import operator
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import EmptyInputError
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from holdfast.langgraph import HoldfastSaver, HoldfastStore

pytestmark = pytest.mark.every_store

SERVER = (pytest.mark.servers, pytest.mark.slow)


@dataclass
class Face:
    """Makes a call with or without `await`, on a saver and a store of one kind."""

    kind: str
    awaits: bool
    conn_string: str

    def run(self, scenario: Callable[[], Any]) -> None:
        if self.awaits:
            asyncio.run(scenario())
            return
        with pytest.raises(StopIteration):  # no loop runs: nothing in it may wait for one
            scenario().send(None)

    @asynccontextmanager
    async def checkpointer(self) -> AsyncIterator[Any]:
        official = AsyncSqliteSaver if self.awaits else SqliteSaver
        made: Any = (official if self.kind == "official" else HoldfastSaver).from_conn_string(self.conn_string)
        async with self._entered(made) as opened:
            if self.awaits:
                await opened.setup()
            else:
                opened.setup()
            yield opened

    @asynccontextmanager
    async def store(self, **options: Any) -> AsyncIterator[Any]:
        if self.kind == "official":
            yield InMemoryStore(**options)
            return
        async with self._entered(HoldfastStore.from_conn_string(self.conn_string, **options)) as opened:
            yield opened

    @asynccontextmanager
    async def _entered(self, made: Any) -> AsyncIterator[Any]:
        if self.awaits:
            async with made as opened:
                yield opened
        else:
            with made as opened:
                yield opened

    async def call(self, target: Any, name: str, *args: Any, **options: Any) -> Any:
        if self.awaits:
            return await getattr(target, f"a{name}")(*args, **options)
        return getattr(target, name)(*args, **options)

    async def all(self, target: Any, name: str, *args: Any, **options: Any) -> list[Any]:
        if self.awaits:
            return [one async for one in getattr(target, f"a{name}")(*args, **options)]
        return [*getattr(target, name)(*args, **options)]


@pytest.fixture(
    params=["official", "sqlite", ":memory:", *(pytest.param(kind, marks=SERVER) for kind in ("postgres", "redis"))]
)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def face(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Face:
    fixtures = {"postgres": "postgres_dsn", "redis": "redis_url", ":memory:": None}
    if kind not in fixtures:
        return Face(kind, request.param, str(tmp_path / "checkpoints.db"))
    fixture = fixtures[kind]
    return Face(kind, request.param, request.getfixturevalue(fixture) if fixture else kind)


@pytest.fixture
def thread() -> Any:
    """Tests share a server's store. The pages show a UUID that is no text, too."""
    return {"configurable": {"thread_id": uuid.uuid4()}}


class Foo(TypedDict):
    foo: str
    bar: Annotated[list[str], operator.add]


def two_nodes(**options: Any) -> Any:
    def node_a(state: Foo) -> Any:
        return {"foo": "a", "bar": ["a"]}

    def node_b(state: Foo) -> Any:
        return {"foo": "b", "bar": ["b"]}

    workflow = StateGraph(Foo)
    workflow.add_node(node_a)
    workflow.add_node(node_b)
    workflow.add_edge(START, "node_a")
    workflow.add_edge("node_a", "node_b")
    workflow.add_edge("node_b", END)
    return workflow.compile(**options)


def chat(**options: Any) -> Any:
    def call_model(state: MessagesState) -> Any:
        return {"messages": AIMessage(f"reply {len(state['messages'])}")}

    builder = StateGraph(MessagesState)
    builder.add_node(call_model)
    builder.add_edge(START, "call_model")
    return builder.compile(**options)


def test_state_and_history_of_a_thread(face: Face, thread: Any) -> None:
    async def scenario() -> None:
        async with face.checkpointer() as checkpointer:
            graph = two_nodes(checkpointer=checkpointer)
            await face.call(graph, "invoke", {"foo": "", "bar": []}, thread)
            latest = await face.call(graph, "get_state", thread)
            history = await face.all(graph, "get_state_history", thread)
            assert [(state.values, state.next) for state in history] == [
                ({"foo": "b", "bar": ["a", "b"]}, ()),
                ({"foo": "a", "bar": ["a"]}, ("node_b",)),
                ({"foo": "", "bar": []}, ("node_a",)),
                ({"bar": []}, ("__start__",)),
            ]
            assert [(state.metadata["source"], state.metadata["step"]) for state in history] == [
                ("loop", 2),
                ("loop", 1),
                ("loop", 0),
                ("input", -1),
            ]
            assert [state.parent_config for state in history] == [*(state.config for state in history[1:]), None]
            assert history[0] == latest
            assert history[1].tasks[0].name == "node_b"
            assert set(latest.config["configurable"]) == {"thread_id", "checkpoint_ns", "checkpoint_id"}
            middle = {
                "configurable": {
                    **thread["configurable"],
                    "checkpoint_id": history[1].config["configurable"]["checkpoint_id"],
                }
            }
            assert (await face.call(graph, "get_state", middle)).values == {"foo": "a", "bar": ["a"]}
            assert await face.all(graph, "get_state_history", thread, limit=2, filter={"source": "loop"}) == history[:2]
            assert await face.all(graph, "get_state_history", thread, before=history[1].config) == history[2:]

    face.run(scenario)


def test_replay_and_fork(face: Face, thread: Any) -> None:
    async def scenario() -> None:
        async with face.checkpointer() as checkpointer:
            graph = two_nodes(checkpointer=checkpointer)
            await face.call(graph, "invoke", {"foo": "", "bar": []}, thread)
            before_b = next(s for s in await face.all(graph, "get_state_history", thread) if s.next == ("node_b",))
            assert (await face.call(graph, "invoke", None, before_b.config))["bar"] == ["a", "b"]
            fork = await face.call(graph, "update_state", before_b.config, values={"bar": ["x"]})
            assert (await face.call(graph, "invoke", None, fork))["bar"] == ["a", "x", "b"]
            skip = await face.call(graph, "update_state", before_b.config, {"foo": "c"}, as_node="node_b")
            assert (await face.call(graph, "get_state", skip)).next == ()
            history = await face.all(graph, "get_state_history", thread)
            assert len([s for s in history if s.metadata["source"] == "update"]) == 2
            assert (await face.call(graph, "get_state", thread)).values == {"foo": "c", "bar": ["a"]}

    face.run(scenario)


def test_an_interrupt_and_its_answer(face: Face, thread: Any) -> None:
    def approve(state: Foo) -> Any:
        return {"foo": interrupt({"question": "send?"})}

    workflow = StateGraph(Foo)
    workflow.add_node(approve)
    workflow.add_edge(START, "approve")

    async def scenario() -> None:
        async with face.checkpointer() as checkpointer:
            graph = workflow.compile(checkpointer=checkpointer)
            result = await face.call(graph, "invoke", {"foo": ""}, thread)
            assert result["__interrupt__"][0].value == {"question": "send?"}
            history = await face.all(graph, "get_state_history", thread)
            waiting = next(s for s in history if s.tasks and any(t.interrupts for t in s.tasks))
            assert waiting.interrupts == (await face.call(graph, "get_state", thread)).interrupts != ()
            assert (await face.call(graph, "invoke", Command(resume="yes"), thread))["foo"] == "yes"
            assert (await face.call(graph, "get_state", thread)).interrupts == ()

    face.run(scenario)


def test_a_conversation_is_streamed_looked_at_and_deleted(face: Face, thread: Any) -> None:
    async def scenario() -> None:
        async with face.checkpointer() as checkpointer:
            graph = chat(checkpointer=checkpointer)
            hello = {"messages": [{"role": "user", "content": "hi! I'm bob"}]}
            chunks = await face.all(graph, "stream", hello, thread, stream_mode="values")
            assert [chunk["messages"][-1].content for chunk in chunks] == ["hi! I'm bob", "reply 1"]
            again = await face.call(graph, "invoke", {"messages": "what's my name?"}, thread)
            assert [message.content for message in again["messages"]][2:] == ["what's my name?", "reply 3"]
            found = await face.call(checkpointer, "get_tuple", thread)
            assert found.checkpoint["channel_values"]["messages"] == again["messages"]
            assert found.metadata["step"] == 4
            assert (await face.call(checkpointer, "get", thread))["id"] == found.checkpoint["id"]
            listed = await face.all(checkpointer, "list", thread)
            assert [one.metadata["step"] for one in listed] == [4, 3, 2, 1, 0, -1]
            assert [len(one.pending_writes) for one in listed] == [0, 1, 2, 0, 1, 2]
            first = await face.call(
                graph, "update_state", thread, {"messages": [RemoveMessage(again["messages"][0].id)]}
            )
            assert len((await face.call(graph, "get_state", first)).values["messages"]) == 3
            await face.call(checkpointer, "delete_thread", thread["configurable"]["thread_id"])
            assert await face.call(checkpointer, "get_tuple", thread) is None
            assert (await face.call(graph, "get_state", thread)).values == {}

    if face.kind == "official":  # it deletes by text only
        thread["configurable"]["thread_id"] = str(thread["configurable"]["thread_id"])
    face.run(scenario)


@pytest.mark.parametrize("durability", ["exit", "async", "sync"])
def test_each_durability(face: Face, thread: Any, durability: str) -> None:
    async def scenario() -> None:
        async with face.checkpointer() as checkpointer:
            graph = two_nodes(checkpointer=checkpointer)
            assert await face.call(checkpointer, "get_tuple", thread) is None
            with pytest.raises(EmptyInputError):
                await face.call(graph, "invoke", None, thread)
            await face.all(graph, "stream", {"foo": "", "bar": []}, thread, durability=durability)
            assert (await face.call(graph, "get_state", thread)).values == {"foo": "b", "bar": ["a", "b"]}
            assert len(await face.all(checkpointer, "list", thread)) == (1 if durability == "exit" else 4)

    face.run(scenario)


def test_a_node_that_succeeded_does_not_run_again_beside_one_that_failed(face: Face, thread: Any) -> None:
    ran: list[str] = []

    def good(state: Foo) -> Any:
        ran.append("good")
        return {"bar": ["good"]}

    def bad(state: Foo) -> Any:
        ran.append("bad")
        if ran.count("bad") == 1:
            raise OSError("the network is down")
        return {"bar": ["bad"]}

    workflow = StateGraph(Foo)
    for node in (good, bad):
        workflow.add_node(node)
        workflow.add_edge(START, node.__name__)

    async def scenario() -> None:
        async with face.checkpointer() as checkpointer:
            graph = workflow.compile(checkpointer=checkpointer)
            with pytest.raises(OSError, match="the network is down"):
                await face.call(graph, "invoke", {"foo": "", "bar": []}, thread)
            assert "bad" in (await face.call(graph, "get_state", thread)).next
            result = await face.call(graph, "invoke", None, thread)
            assert sorted(result["bar"]) == ["bad", "good"]
            assert ran.count("bad") == 2

    face.run(scenario)


@pytest.mark.parametrize("own", [None, True], ids=["inherited", "own"])
def test_a_subgraph_is_checkpointed_by_its_parents_saver(face: Face, thread: Any, own: bool | None) -> None:
    namespaces: list[str] = []

    def within(state: Foo, config: RunnableConfig) -> Any:
        namespaces.append(config["configurable"]["checkpoint_ns"])
        return {"foo": state["foo"] + interrupt("which?"), "bar": ["within"]}

    inner = StateGraph(Foo)
    inner.add_node(within)
    inner.add_edge(START, "within")
    outer = StateGraph(Foo)
    outer.add_node("node_1", inner.compile(checkpointer=own))
    outer.add_edge(START, "node_1")

    async def scenario() -> None:
        async with face.checkpointer() as checkpointer:
            graph = outer.compile(checkpointer=checkpointer)
            await face.call(graph, "invoke", {"foo": "foo", "bar": []}, thread)
            state = await face.call(graph, "get_state", thread, subgraphs=True)
            assert state.tasks[0].state.values["foo"] == "foo"
            assert state.tasks[0].state.next == ("within",)
            assert (await face.call(graph, "invoke", Command(resume="bar"), thread))["foo"] == "foobar"
            assert namespaces[0].startswith("node_1")

    face.run(scenario)


@dataclass
class Context:
    user_id: str


def remembering(face: Face, **options: Any) -> Any:
    """A graph that looks up what its user said, in the manner of the page about memory."""

    def answer(state: MessagesState, found: list[Any]) -> Any:
        return {"messages": AIMessage(", ".join(item.value["data"] for item in found) or "nothing")}

    def call_model(state: MessagesState, runtime: Runtime[Context]) -> Any:
        namespace, last = ("memories", runtime.context.user_id), state["messages"][-1].content
        assert runtime.store is not None
        found = runtime.store.search(namespace, query=str(last))
        if "remember" in last.lower():
            runtime.store.put(namespace, str(uuid.uuid4()), {"data": "User name is Bob"})
        return answer(state, found)

    async def acall_model(state: MessagesState, runtime: Runtime[Context]) -> Any:
        namespace, last = ("memories", runtime.context.user_id), state["messages"][-1].content
        assert runtime.store is not None
        found = await runtime.store.asearch(namespace, query=str(last))
        if "remember" in last.lower():
            await runtime.store.aput(namespace, str(uuid.uuid4()), {"data": "User name is Bob"})
        return answer(state, found)

    builder = StateGraph(MessagesState, context_schema=Context)
    builder.add_node("call_model", acall_model if face.awaits else call_model)
    builder.add_edge(START, "call_model")
    return builder.compile(**options)


def test_a_store_shares_memories_between_threads(face: Face, thread: Any) -> None:
    user = str(uuid.uuid4())

    async def scenario() -> None:
        async with face.store() as store, face.checkpointer() as checkpointer:
            graph = remembering(face, checkpointer=checkpointer, store=store)
            told = {"messages": [{"role": "user", "content": "Hi! Remember: my name is Bob"}]}
            asked = {"messages": [{"role": "user", "content": "what is my name?"}]}
            await face.all(graph, "stream", told, thread, stream_mode="values", context=Context(user))
            other: Any = {"configurable": {"thread_id": str(uuid.uuid4())}}
            updates = await face.all(graph, "stream", asked, other, stream_mode="updates", context=Context(user))
            assert updates[0]["call_model"]["messages"].content == "User name is Bob"
            stranger = await face.call(graph, "invoke", asked, thread, context=Context("stranger" + user))
            assert stranger["messages"][-1].content == "nothing"

    face.run(scenario)


def test_the_calls_of_a_store(face: Face) -> None:
    user = str(uuid.uuid4())

    async def scenario() -> None:
        async with face.store() as store:
            namespace = (user, "memories")
            await face.call(store, "put", namespace, "1", {"food_preference": "I like pizza"})
            await face.call(store, "put", namespace, "2", {"system_info": "updated"}, index=False)
            await face.call(store, "put", (user, "preferences"), "3", {"theme": "dark"}, index=["theme"])
            memories = await face.call(store, "search", namespace)
            assert sorted(memories[-1].dict()) == ["created_at", "key", "namespace", "score", "updated_at", "value"]
            assert {item.key for item in await face.call(store, "search", (user,))} == {"1", "2", "3"}
            pages = [await face.call(store, "search", (user,), limit=2, offset=offset) for offset in (0, 2)]
            assert [len(page) for page in pages] == [2, 1]
            assert len(await face.call(store, "search", (user,), query="what to eat?", limit=3)) == 3
            assert len(await face.call(store, "search", (user,), filter={"theme": "dark"})) == 1
            listed = await face.call(store, "list_namespaces", prefix=(user,), max_depth=2)
            assert sorted(listed) == [(user, "memories"), (user, "preferences")]
            assert (await face.call(store, "get", namespace, "1")).value == {"food_preference": "I like pizza"}
            await face.call(store, "delete", namespace, "1")
            assert await face.call(store, "get", namespace, "1") is None

    face.run(scenario)


def test_a_search_by_meaning(face: Face) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[float("pizza" in text or "hungry" in text), float("plumber" in text), 0.1] for text in texts]

    namespace = (str(uuid.uuid4()), "memories")

    async def scenario() -> None:
        async with face.store(index={"embed": embed, "dims": 3, "fields": ["text"]}) as store:
            await face.call(store, "put", namespace, "1", {"text": "I love pizza"})
            await face.call(store, "put", namespace, "2", {"text": "I am a plumber"})
            items = await face.call(store, "search", namespace, query="I'm hungry", limit=1)
            assert [item.value["text"] for item in items] == ["I love pizza"]

    face.run(scenario)


def test_the_functional_api(face: Face, thread: Any) -> None:
    ran: list[int] = []

    @task
    def double(number: int) -> int:
        ran.append(number)
        return 2 * number

    @task
    async def adouble(number: int) -> int:
        ran.append(number)
        return 2 * number

    async def scenario() -> None:
        async with face.checkpointer() as checkpointer:

            @entrypoint(checkpointer=checkpointer)
            def workflow(number: int, *, previous: int | None = None) -> Any:
                doubled = double(number).result()
                return entrypoint.final(value=(previous or 0, interrupt("ok?")), save=doubled)

            @entrypoint(checkpointer=checkpointer)
            async def aworkflow(number: int, *, previous: int | None = None) -> Any:
                doubled = await adouble(number)
                return entrypoint.final(value=(previous or 0, interrupt("ok?")), save=doubled)

            graph = aworkflow if face.awaits else workflow
            answers = []
            for number in (3, 4):
                await face.call(graph, "invoke", number, thread)
                answers.append(tuple(await face.call(graph, "invoke", Command(resume="yes"), thread)))
            assert answers == [(0, "yes"), (6, "yes")]
            assert ran == [3, 4]

    face.run(scenario)


def test_without_a_with_block(tmp_path: Path, thread: Any) -> None:
    checkpointer = HoldfastSaver.from_conn_string(str(tmp_path / "checkpoints.db"))
    checkpointer.setup()
    graph = chat(checkpointer=checkpointer)
    graph.invoke({"messages": [HumanMessage("hi")]}, thread)
    assert len(graph.get_state(thread).values["messages"]) == 2
    checkpointer.close()
