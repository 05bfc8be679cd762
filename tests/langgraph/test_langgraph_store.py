"""`HoldfastStore`, LangGraph's long-term memory: on every store, and beside LangGraph's own as the reference."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from stores import SERVED, Clock, Store, python

from holdfast import SyncClient, UsageError
from holdfast.adapters.langgraph.vectors import _product_of, pack, similarities
from holdfast.langgraph import HoldfastSaver, HoldfastStore

pytestmark = pytest.mark.every_store

WORDS = ("cat", "dog", "sea", "ship")


def count_words(texts: list[str]) -> list[list[float]]:
    """A vector of each text: how often it has which word."""
    return [[float(text.count(word)) for word in WORDS] for text in texts]


INDEX: Any = {"dims": len(WORDS), "embed": count_words}


class Blocking:
    """The methods without `await`, to be called as those with it are."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self._store, name)


class Awaited:
    def __init__(self, store: BaseStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **options: asyncio.run(getattr(self._store, f"a{name}")(*args, **options))


def opened(store: Store, **options: Any) -> HoldfastStore:
    return HoldfastStore(store.async_client(), **options)


@pytest.fixture(params=[Blocking, Awaited], ids=["sync", "async"])
def memories(request: pytest.FixtureRequest, store: Store) -> Callable[..., Any]:
    return lambda **options: request.param(opened(store, **options))


def found(items: list[Any]) -> list[tuple[Any, ...]]:
    return [(item.namespace, item.key, item.value) for item in items]


# -- single calls
# --------------------------------------------------------------------------------------------------------


def test_put_get_and_delete(memories: Callable[..., Any], store: Store) -> None:
    memory = memories()
    at_most = 60 if store.kind in SERVED else 0  # seconds: a slow answer makes a server's clock inexact
    before = datetime.now(UTC)
    memory.put(("users", "1"), "prefs", {"theme": "dark", "said": HumanMessage("hi", id="1")})
    item = memory.get(("users", "1"), "prefs")
    assert (item.namespace, item.key) == (("users", "1"), "prefs")
    assert item.value == {"theme": "dark", "said": HumanMessage("hi", id="1")}
    assert before.timestamp() - at_most <= item.created_at.timestamp() <= item.updated_at.timestamp()
    memory.put(("users", "1"), "prefs", {"theme": "light"})
    again = memory.get(("users", "1"), "prefs")
    assert again.value == {"theme": "light"}
    assert again.created_at == item.created_at
    assert again.updated_at > item.updated_at
    assert memory.get(("users",), "prefs") is None
    assert memory.get(("users", "1"), "other") is None
    memory.delete(("users", "1"), "prefs")
    memory.delete(("users", "1"), "never there")
    assert memory.get(("users", "1"), "prefs") is None
    assert memory.search(("users",)) == []


def test_what_is_given_back_is_the_callers_own(memories: Callable[..., Any]) -> None:
    memory = memories()
    value = {"list": [1]}
    memory.put(("a",), "k", value)
    value["list"].append(2)
    memory.get(("a",), "k").value["list"].append(3)
    assert memory.get(("a",), "k").value == {"list": [1]}


def test_names_are_data(memories: Callable[..., Any]) -> None:
    memory = memories()
    names = ["%", "_", "' OR 1=1", "a/b", "é", "\udc80", "*", "x" * 3000]
    for name in names:
        memory.put(("ns", name), name, {"name": name})
        memory.put(("ns",), name, {"name": name})
    for name in names:
        assert memory.get(("ns", name), name).value == {"name": name}
        assert found(memory.search(("ns", name))) == [(("ns", name), name, {"name": name})]
    assert len(memory.search(("ns",), limit=100)) == 2 * len(names)
    assert memory.search(("n",)) == []
    for wrong in ((), ("a", ""), ("a.b",), ("langgraph", "x"), ("a", 7)):
        with pytest.raises(InvalidNamespaceError):
            memory.put(wrong, "k", {})
    for op in (GetOp(("a.b",), "k"), PutOp(("a", ""), "k", {}), SearchOp(("a", 7))):
        with pytest.raises(InvalidNamespaceError):
            memory.batch([op])


def test_filters_and_pages(memories: Callable[..., Any]) -> None:
    memory = memories()
    for number in range(12):
        value = {"n": number, "even": number % 2 == 0, "in": {"deep": number, "list": [number]}}
        memory.put(("docs", str(number % 2)), f"d{number}", value)

    def numbers(**options: Any) -> list[int]:
        return [item.value["n"] for item in memory.search(("docs",), **options)]

    assert numbers(limit=100) == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]
    assert numbers() == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7]
    assert numbers(limit=3, offset=5) == [10, 1, 3]
    assert numbers(limit=3, offset=50) == []
    assert numbers(filter={"even": False}, limit=2) == [1, 3]
    assert numbers(filter={"n": {"$gte": 4, "$lt": 8}}) == [4, 6, 5, 7]
    assert numbers(filter={"n": {"$ne": 4}, "even": True}) == [0, 2, 6, 8, 10]
    assert numbers(filter={"in": {"deep": 3}}) == [3]
    assert numbers(filter={"in": {"list": [3]}}) == [3]
    assert numbers(filter={"n": {"$eq": 5}}) == [5]
    assert numbers(filter={"missing": {"$gt": 1}}) == []
    assert numbers(filter={"missing": None}, limit=1) == [0]
    with pytest.raises(ValueError, match=r"\$like"):
        numbers(filter={"n": {"$like": "x"}})


def test_namespaces(memories: Callable[..., Any]) -> None:
    memory = memories()
    paths = [("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"), ("a", "c", "f"), ("a",)]
    for path in paths:
        for number in range(20):
            memory.put(path, f"k{number}", {})
    assert memory.list_namespaces() == sorted(paths)
    assert memory.list_namespaces(prefix=("a", "b"), max_depth=3) == [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")]
    assert memory.list_namespaces(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
    assert memory.list_namespaces(suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f")]
    assert memory.list_namespaces(suffix=("d", "*")) == [("a", "b", "d", "e"), ("a", "b", "d", "i")]
    assert memory.list_namespaces(limit=2, offset=1) == sorted(paths)[1:3]
    for number in range(20):
        memory.delete(("a",), f"k{number}")
    assert memory.list_namespaces(max_depth=2) == [("a", "b"), ("a", "c")]


def test_a_batch_reads_before_it_writes(memories: Callable[..., Any]) -> None:
    memory = memories()
    memory.put(("a",), "k", {"n": 1})
    condition = MatchCondition("prefix", ("a",))
    results = memory.batch(
        [
            PutOp(("a",), "k", {"n": 2}),
            GetOp(("a",), "k"),
            PutOp(("a",), "k", {"n": 3}),
            PutOp(("b",), "k", {"n": 4}),
            SearchOp(("a",)),
            ListNamespacesOp(match_conditions=(condition,)),
            PutOp(("a",), "gone", None),
        ]
    )
    assert (results[0], results[1].value, results[4][0].value) == (None, {"n": 1}, {"n": 1})
    assert (results[5], results[6]) == ([("a",)], None)
    assert (memory.get(("a",), "k").value, memory.get(("b",), "k").value) == ({"n": 3}, {"n": 4})
    with pytest.raises(ValueError, match="unknown operation"):
        memory.batch(["nonsense"])


# -- time to live
# --------------------------------------------------------------------------------------------------------


def turned(store: Store, clock: Clock, **options: Any) -> HoldfastStore:
    """A store that goes by a clock of the test's."""
    memory = opened(store, **options)
    for items in (memory._items, memory._awaited_items):
        items.ctx.now_us = lambda: clock.us
    return memory


@pytest.mark.parametrize("face", [Blocking, Awaited])
def test_items_end_with_their_time_to_live(store: Store, clock: Clock, face: Any) -> None:
    plain = turned(store, clock, ttl={"default_ttl": 10, "refresh_on_read": False}, index=INDEX)
    memory = face(plain)
    memory.put(("a",), "default", {"t": "cat"})
    memory.put(("a",), "short", {"t": "cat"}, ttl=0.5)
    memory.put(("a",), "for good", {"t": "cat"}, ttl=None)
    memory.put(("b",), "short", {"t": "cat"}, ttl=1)
    clock.forward(31)
    assert memory.get(("a",), "short") is None
    assert memory.get(("a",), "default").value == {"t": "cat"}
    clock.forward(600)
    assert [item.key for item in memory.search(("a",))] == ["for good"]
    assert [item.key for item in memory.search(("a",), query="cat")] == ["for good"]
    assert memory.list_namespaces() == [("a",)]
    memory.put(("a",), "short", {"t": "cat again"})  # begins as a new one
    created = memory.get(("a",), "short").created_at
    assert created.timestamp() == pytest.approx(clock.us / 1e6, abs=1)
    assert plain.sweep_ttl() == 2
    assert plain.sweep_ttl() == 0
    assert {item.key for item in memory.search(("a",))} == {"for good", "short"}
    with pytest.raises(UsageError, match="positive"):
        memory.put(("a",), "k", {}, ttl=0)


@pytest.mark.parametrize("face", [Blocking, Awaited])
def test_reading_begins_the_time_to_live_again(store: Store, clock: Clock, face: Any) -> None:
    memory = face(turned(store, clock, ttl={"default_ttl": 1}))
    for key in ("got", "found", "left", "looked at"):
        memory.put(("a", key), "k", {})
    for _ in range(3):
        clock.forward(40)
        memory.get(("a", "got"), "k")
        memory.search(("a", "found"))
        memory.get(("a", "looked at"), "k", refresh_ttl=False)
    assert memory.list_namespaces() == [("a", "found"), ("a", "got")]


def test_gc_removes_what_is_over(store: Store) -> None:
    memory = opened(store, index=INDEX)
    memory.put(("a",), "short", {"t": "cat"}, ttl=0.0005)
    memory.put(("a",), "long", {"t": "cat"}, ttl=60)
    threading.Event().wait(0.5)  # longer than two clients may differ about a server's clock
    before = store.backend().usage().rows
    store.client().gc(dry_run=True)
    assert store.backend().usage().rows == before
    store.client().gc()
    assert store.backend().usage().rows == before - 2  # the item, and its vectors
    assert [item.key for item in memory.search(("a",), query="cat")] == ["long"]
    assert store.client().verify().ok


def test_the_sweeper_has_nothing_to_do() -> None:
    async def scenario() -> None:
        async with HoldfastStore.from_conn_string(":memory:") as memory:
            await memory.setup()
            await memory.start_ttl_sweeper()
            assert await memory.asweep_ttl() == 0
            assert await memory.stop_ttl_sweeper()

    asyncio.run(scenario())
    with HoldfastStore.memory() as memory:
        memory.setup()
        memory.start_ttl_sweeper()
        assert memory.stop_ttl_sweeper()


# -- vectors
# -------------------------------------------------------------------------------------------------------------


def test_a_query_ranks_by_likeness(memories: Callable[..., Any]) -> None:
    memory = memories(index=INDEX)
    texts = {"cats": "cat cat", "dogs": "dog cat", "sea": "sea ship", "nothing": "word"}
    for key, text in texts.items():
        memory.put(("docs",), key, {"text": text, "kind": len(text)})
    memory.put(("docs",), "not indexed", {"text": "cat"}, index=False)
    ranked = memory.search(("docs",), query="cat")
    assert [item.key for item in ranked] == ["cats", "dogs", "sea", "nothing", "not indexed"]
    assert [item.score for item in ranked][:3] == [pytest.approx(1), pytest.approx(0.5**0.5), pytest.approx(0)]
    assert ranked[-1].score is None
    assert [item.key for item in memory.search(("docs",), query="ship", limit=1)] == ["sea"]
    assert [item.key for item in memory.search(("docs",), query="cat", limit=1, offset=1)] == ["dogs"]
    assert [item.key for item in memory.search(("docs",), query="cat", filter={"kind": 7})] == ["cats", "dogs"]
    memory.put(("docs",), "cats", {"text": "ship"})  # its old vector must not be found
    assert memory.search(("docs",), query="cat")[0].key == "dogs"
    memory.delete(("docs",), "dogs")
    assert "dogs" not in [item.key for item in memory.search(("docs",), query="cat")]


@pytest.mark.parametrize("fields", ["fields", "text_fields"])
def test_fields_are_embedded_each_for_itself(memories: Callable[..., Any], fields: str) -> None:
    memory = memories(index={**INDEX, fields: ["title", "parts[*].text"]})
    memory.put(("d",), "one", {"title": "sea", "parts": [{"text": "dog"}, {"text": "cat"}], "other": "ship"})
    memory.put(("d",), "two", {"title": "ship"})
    memory.put(("d",), "own", {"title": "ship", "own": "cat dog"}, index=["own"])
    assert [(item.key, item.score) for item in memory.search(("d",), query="cat")] == [
        ("one", pytest.approx(1)),
        ("own", pytest.approx(0.5**0.5)),
        ("two", pytest.approx(0)),
    ]


def test_vectors_of_another_embedder_are_refused_in_words(memory_store: Store) -> None:
    opened(memory_store, index=INDEX).put(("d",), "k", {"t": "cat"})
    other = opened(memory_store, index={"dims": 2, "embed": lambda texts: [[1.0, 2.0] for _ in texts]})
    with pytest.raises(UsageError, match="not the one"):
        other.search(("d",), query="cat")
    assert opened(memory_store).search(("d",), query="cat")[0].score is None  # without an embedder a query is ignored
    broken = opened(memory_store, index={"dims": 2, "embed": lambda _texts: []})
    with pytest.raises(UsageError, match="0 vectors for 1"):
        broken.put(("d",), "k", {"t": "cat"})


def test_an_embedder_that_is_awaited(sqlite_store: Store) -> None:
    async def embed(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return count_words(texts)

    async def scenario() -> list[str]:
        memory = opened(sqlite_store, index={"dims": 4, "embed": embed})
        await asyncio.gather(*[memory.aput(("d",), word, {"t": word}) for word in WORDS])
        return [item.key for item in await memory.asearch(("d",), query="sea", limit=1)]

    assert asyncio.run(scenario()) == ["sea"]


def test_likeness_of_vectors_without_length() -> None:
    assert similarities([0.0, 0.0], [pack([1.0, 1.0])]) == [0.0]
    assert similarities([1.0, 0.0], [pack([0.0, 0.0]), pack([2.0, 0.0])]) == [0.0, 1.0]
    assert similarities([1.0], []) == []
    assert _product_of([1.0, 2.0], [3.0, 4.0]) == 11.0


# -- as LangGraph's own
# --------------------------------------------------------------------------------------------------

LABELS = st.sampled_from(["a", "b", "*x"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k1", "k2", "k3"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["cat", "dog sea", ""])
VALUES = st.dictionaries(
    st.sampled_from(["x", "y", "text"]),
    SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from(["x", "z"]), SCALARS, max_size=2),
    max_size=3,
)
FILTERS = st.none() | VALUES | st.fixed_dictionaries({"x": st.fixed_dictionaries({"$ne": SCALARS})})
CALLS = st.one_of(
    st.tuples(st.just("put"), NAMESPACES, KEYS, VALUES),
    st.tuples(st.just("put"), NAMESPACES, KEYS, VALUES),
    st.tuples(st.just("delete"), NAMESPACES, KEYS),
    st.tuples(st.just("get"), NAMESPACES, KEYS),
    st.tuples(st.just("search"), st.lists(LABELS, max_size=3).map(tuple), FILTERS),
    st.tuples(st.just("page"), NAMESPACES, st.integers(0, 3), st.integers(0, 3)),
    st.tuples(
        st.just("namespaces"),
        st.none() | st.lists(LABELS | st.just("*"), min_size=1, max_size=2).map(tuple),
        st.none() | st.lists(LABELS | st.just("*"), min_size=1, max_size=2).map(tuple),
        st.none() | st.integers(1, 3),
    ),
)


def asked(memory: Any, call: tuple[Any, ...], live: set[tuple[str, ...]]) -> Any:
    """What a store answers, without what LangGraph's own leave open: times, the order of namespaces in a search, and
    whether a namespace without items is one."""
    match call:
        case ("put", namespace, key, value):
            return memory.put(namespace, key, value)
        case ("delete", namespace, key):
            return memory.delete(namespace, key)
        case ("get", namespace, key):
            item = memory.get(namespace, key)
            return None if item is None else (item.namespace, item.key, item.value)
        case ("search", prefix, wanted):
            items = found(memory.search(prefix, filter=wanted, limit=1000))
            return sorted(items, key=lambda item: item[0])  # stable: the order in each namespace is compared
        case ("page", namespace, limit, offset):
            inner = [one for one in live if one[: len(namespace)] == namespace]
            if inner not in ([namespace], []):
                return None
            return found(memory.search(namespace, limit=limit, offset=offset))
        case ("namespaces", prefix, suffix, depth):
            listed = memory.list_namespaces(prefix=prefix, suffix=suffix, limit=1000)
            alive = [one for one in listed if one in live]
            if alive != listed and isinstance(memory, Blocking | Awaited):
                raise AssertionError(f"{listed} has namespaces without items")
            return sorted({one[:depth] for one in alive})
    raise AssertionError(call)


@pytest.mark.parametrize("face", [Blocking, Awaited])
@given(calls=st.lists(CALLS, max_size=25))
def test_it_answers_as_langgraphs_own_store(face: Any, calls: list[tuple[Any, ...]]) -> None:
    reference = InMemoryStore()
    with HoldfastStore.memory() as memory:
        ours = face(memory)
        kept: dict[tuple[str, ...], set[str]] = {}
        for call in calls:
            if call[0] == "put":
                kept.setdefault(call[1], set()).add(call[2])
            elif call[0] == "delete":
                kept.get(call[1], set()).discard(call[2])
            live = {namespace for namespace, keys in kept.items() if keys}
            assert asked(ours, call, live) == asked(reference, call, live), call


@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join), min_size=1, unique=True),
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join),
    limit=st.integers(1, 5),
    offset=st.integers(0, 3),
)
def test_it_ranks_as_langgraphs_own_store(texts: list[str], query: str, limit: int, offset: int) -> None:
    reference = InMemoryStore(index=INDEX)
    with HoldfastStore.memory(index=INDEX) as ours:
        scores = []
        for memory in (ours, reference):
            for number, text in enumerate(texts):
                memory.put(("d",), str(number), {"text": text})
            ranked = memory.search(("d",), query=query, limit=limit, offset=offset)
            scores.append([item.score for item in ranked])
        assert scores[0] == pytest.approx(scores[1])


# -- in a graph, in several processes
# ------------------------------------------------------------------------------------


class Said(TypedDict):
    said: str


def graph_with(saver: HoldfastSaver, memory: BaseStore) -> Any:
    def remember(state: Said, *, store: BaseStore) -> dict[str, Any]:
        earlier = [item.value["said"] for item in store.search(("said",))]
        store.put(("said",), state["said"], {"said": state["said"]})
        return {"said": f"{state['said']} after {earlier}"}

    builder = StateGraph(Said)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    return builder.compile(checkpointer=saver, store=memory)


def test_a_graph_remembers_across_threads(shared_store: Store) -> None:
    client = shared_store.async_client()
    graph = graph_with(HoldfastSaver(client), HoldfastStore(client))
    assert graph.invoke({"said": "one"}, {"configurable": {"thread_id": "1"}})["said"] == "one after []"
    other = shared_store.async_client()
    graph = graph_with(HoldfastSaver(other), HoldfastStore(other))

    async def scenario() -> Any:
        return await graph.ainvoke({"said": "two"}, {"configurable": {"thread_id": "2"}})

    assert asyncio.run(scenario())["said"] == "two after ['one']"
    assert shared_store.client().verify().ok


def test_a_sync_call_on_the_loops_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.adapters.langgraph.handle._warned_of_blocking", False)
    memory = opened(store)

    async def scenario() -> None:
        if store.kind in SERVED:
            with pytest.raises(UsageError, match="network"):
                memory.put(("a",), "k", {})
        else:
            with pytest.warns(RuntimeWarning, match="HoldfastStore"):
                memory.put(("a",), "k", {})
            memory.get(("a",), "k")

    asyncio.run(scenario())


def test_many_writers_of_one_item(shared_store: Store) -> None:
    memories = [opened(shared_store) for _ in range(3)]

    def write(number: int) -> None:
        for turn in range(10):
            memories[number].put(("a",), "hot", {"by": number, "turn": turn})
            memories[number].put(("a",), f"{number}.{turn}", {})

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert memories[0].get(("a",), "hot").value["turn"] == 9
    assert len(memories[0].search(("a",), limit=100)) == 31


KILLED = """
import os, signal, sys
from holdfast.langgraph import HoldfastStore
memory = HoldfastStore.from_url(sys.argv[1])
memory.put(("a",), "k", {"n": 1})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_what_was_put_survives_kill(shared_store: Store) -> None:
    shared_store.client().sessions()  # makes the store
    done = python(KILLED, shared_store.url, check=False)
    assert done.returncode == -9, done.stderr
    assert opened(shared_store).get(("a",), "k").value == {"n": 1}


def test_a_damaged_item_is_found(sqlite_store: Store) -> None:
    import sqlite3

    memory = opened(sqlite_store)
    memory.put(("a",), "k", {"n": 1})
    with sqlite3.connect(sqlite_store.where / "store.db") as connection:
        connection.execute("UPDATE row SET value = zeroblob(length(value)) WHERE space = 'lgitem'")
    with pytest.raises(Exception, match="damaged"):
        memory.get(("a",), "k")
    with SyncClient.sqlite(sqlite_store.where / "store.db") as client:
        assert not client.verify().ok
