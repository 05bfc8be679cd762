"""Objects that are kept without their class, as LangGraph's own savers keep them: the plain value, or the fields."""

from __future__ import annotations

import asyncio
import enum
import gc
import warnings
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from langgraph_models import Own, OwnBytes, OwnDict, OwnFloat, OwnInt, OwnList, OwnTuple, Slotted
from langgraph_savers import config, put, saver_on, values_of
from pydantic import BaseModel, ConfigDict
from stores import Store

import holdfast
from holdfast import UnsupportedValueError
from holdfast.langgraph import HoldfastSaver

TEXT = AIMessage("hello").text
PLAIN = [
    (TEXT, "hello"),
    (Own("\ud800"), "\ud800"),
    (Own("x" * 100_000), "x" * 100_000),
    (OwnInt(7), 7),
    (OwnInt(1 << 80), 1 << 80),
    (OwnFloat(0.5), 0.5),
    (OwnBytes(b"x"), b"x"),
    (OwnDict(a=TEXT), {"a": "hello"}),
    (OwnList([TEXT, OwnList([1])]), ["hello", [1]]),
    (OwnList(range(100)), [*range(100)]),
    (OwnTuple((1, TEXT)), (1, "hello")),
    ({TEXT: 1, "b": 2}, {"hello": 1, "b": 2}),
    ({OwnInt(1): TEXT}, {1: "hello"}),
    ({TEXT, "b"}, {"hello", "b"}),
]


def all_types(value: Any) -> list[type]:
    inside = (
        [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    )
    return [type(value), *(kind for one in inside for kind in all_types(one))]


@pytest.mark.parametrize(("value", "plain"), PLAIN, ids=[f"{n}-{type(v).__name__}" for n, (v, _) in enumerate(PLAIN)])
def test_a_subclass_with_nothing_of_its_own_is_kept_as_its_plain_value(
    memory_store: Store, value: Any, plain: Any
) -> None:
    saver = saver_on(memory_store)
    where = put(saver, config(), top=value, inside=[{"deep": (value,)}])
    saver.put_writes(where, [("x", value)], "task")
    found = saver_on(memory_store).get_tuple(config())
    assert found is not None
    [(_, _, written)] = found.pending_writes or []
    values = found.checkpoint["channel_values"]
    for one in (values["top"], values["inside"][0]["deep"][0], written):
        assert one == plain
        assert not {*all_types(one)} - {str, int, float, bytes, dict, list, tuple, set}


@settings(deadline=None)
@given(st.text(), st.integers(), st.floats(allow_nan=False), st.binary())
def test_the_bytes_are_those_of_the_plain_value(text: str, number: int, real: float, data: bytes) -> None:
    codec = HoldfastSaver.memory()._threads.ctx.codec
    value = OwnDict(a=OwnList([Own(text), OwnInt(number)]), b=OwnTuple((OwnFloat(real), OwnBytes(data))))
    plain = {"a": [text, number], "b": (real, data)}
    assert codec.encode(value) == codec.encode(plain)
    assert codec.encode([Own(text), OwnInt(number), OwnFloat(real)]) == codec.encode([text, number, real])
    assert codec.encode_each([Own(text), value]) == codec.encode_each([text, plain])


def test_a_long_list_of_its_own_class_is_kept_apart_and_read_back(store: Store) -> None:
    saver = saver_on(store)
    elements = OwnList(Own(f"{number} " + "x" * 500) for number in range(200))
    where = put(saver, config(), log=elements)
    elements.append("one more")
    put(saver, where, log=elements)
    found = values_of(saver_on(store), config())["log"]
    assert found == [*map(str, elements)]
    assert all_types(found) == [list] + [str] * 201


class Answer(TypedDict):
    question: str
    answer: str


def ask(state: Answer) -> Any:
    told = interrupt(AIMessage(state["question"]).text)
    return {"answer": AIMessage(told).text}


def graph_on(saver: Any) -> Any:
    builder = StateGraph(Answer)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    return builder.compile(checkpointer=saver)


def test_the_text_of_a_message_is_input_interrupt_and_result(store: Store) -> None:
    """As with LangGraph's own saver: the same results."""

    def run(saver: Any) -> Any:
        graph = graph_on(saver)
        graph.invoke({"question": TEXT}, config())
        [waiting] = graph.get_state(config()).interrupts
        return (
            waiting.value,
            graph.invoke(Command(resume=AIMessage("fine").text), config()),
            graph.get_state(config()).values,
        )

    assert run(saver_on(store)) == run(InMemorySaver())


def test_the_text_of_a_message_is_kept_by_ainvoke(store: Store) -> None:
    async def run() -> Any:
        graph = graph_on(saver_on(store))
        await graph.ainvoke({"question": TEXT}, config())
        await graph.ainvoke(Command(resume=AIMessage("fine").text), config())
        return (await graph.aget_state(config())).values

    assert asyncio.run(run()) == {"question": "hello", "answer": "fine"}


def test_a_subclass_that_has_something_of_its_own_is_refused(memory_store: Store) -> None:
    attributed = OwnDict(a=1)
    attributed.note = "kept nowhere else"
    slotted = Slotted("x")
    slotted.note = "kept nowhere else"
    for value, remedy in ((attributed, r"dict\(x\)"), (slotted, r"str\(x\)")):
        with pytest.raises(UnsupportedValueError, match=remedy):
            put(saver_on(memory_store), config(), v=[value])
    put(saver_on(memory_store), config(), v=Slotted("x"))


def test_keys_that_become_one_are_refused(memory_store: Store) -> None:
    class Lonely(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            return self is other

    with pytest.raises(UnsupportedValueError, match="keys are the same"):
        put(saver_on(memory_store), config(), v={Lonely("a"): 1, Lonely("a"): 2})
    with pytest.raises(UnsupportedValueError, match="members are the same"):
        put(saver_on(memory_store), config(), v={Lonely("a"), Lonely("a")})


def test_the_core_goes_on_refusing_them_and_says_how_to_make_them_plain() -> None:
    client = holdfast.SyncClient.memory()
    for value, remedy in ((TEXT, r"Store str\(x\)"), (OwnInt(1), r"int\(x\)"), (OwnDict(), r"dict\(x\)")):
        with pytest.raises(UnsupportedValueError, match=remedy):
            client.save(agent_id="a", execution_state={"v": value})


def local_values() -> list[tuple[Any, Any]]:
    @dataclass
    class Local:
        x: int

    class LocalModel(BaseModel):
        model_config = ConfigDict(extra="allow")
        x: int = 1

    @attrs.define
    class LocalAttrs:
        x: int

    class LocalPoint(NamedTuple):
        x: int

    class LocalMood(enum.Enum):
        GLAD = "glad"

    return [
        (Local(1), {"x": 1}),
        (LocalModel(x=1, more=2), {"x": 1, "more": 2}),
        (LocalAttrs(1), {"x": 1}),
        (LocalPoint(1), {"x": 1}),
        (LocalMood.GLAD, "glad"),
    ]


@pytest.mark.parametrize("number", range(5))
def test_objects_of_a_class_made_in_a_function_are_kept_as_plain_data_with_one_warning(
    store: Store, number: int
) -> None:
    value, plain = local_values()[number]
    saver = saver_on(store)
    with pytest.warns(holdfast.HoldfastWarning, match=rf"allow=\[{type(value).__name__}\]") as caught:
        where = put(saver, config(), v=[value, {"deep": value}])
        saver.put_writes(where, [("x", value)], "task")
        put(saver, where, v=[local_values()[number][0]])
    assert len(caught) == 1
    found = saver_on(store).get_tuple(where)
    assert found is not None
    assert found.checkpoint["channel_values"]["v"] == [plain, {"deep": plain}]
    assert found.pending_writes == [("task", "x", plain)]
    assert values_of(saver_on(store), config()) == {"v": [plain]}


def test_a_set_of_objects_of_such_a_class_is_kept_as_a_list(store: Store) -> None:
    @dataclass(frozen=True)
    class Spot:
        x: int

    class Pair(NamedTuple):
        left: int
        right: int

    saver = saver_on(store)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        put(saver, config(), spots={Spot(2), Spot(1)}, pairs=[frozenset({Pair(1, 2)})], mixed={Spot(1), "a"})
    values = values_of(saver_on(store), config())
    assert values["spots"] == [{"x": 1}, {"x": 2}]
    assert values["pairs"] == [[{"left": 1, "right": 2}]]
    assert sorted(values["mixed"], key=str) == ["a", {"x": 1}]


def test_a_key_of_such_a_class_is_refused_before_it_makes_the_thread_unreadable(memory_store: Store) -> None:
    class Pair(NamedTuple):
        left: int
        right: int

    saver = saver_on(memory_store)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        put(saver, config(), v=[{frozenset({Pair(1, 2)})}, {(Pair(1, 2), 3)}])
        assert values_of(saver, config())["v"] == [[[{"left": 1, "right": 2}]], [({"left": 1, "right": 2}, 3)]]
        for value in ({Pair(1, 2): 1}, {(Pair(1, 2), 3): 1}, {frozenset({Pair(1, 2)}): 1}):
            with pytest.raises(UnsupportedValueError, match=r"Pair is stored as plain data.*key.*list of pairs"):
                put(saver, config(), v=value)


def test_a_warning_that_is_an_error_stops_the_put(memory_store: Store) -> None:
    value, _ = local_values()[0]
    saver = saver_on(memory_store)
    for _ in range(2):
        with warnings.catch_warnings(), pytest.raises(holdfast.HoldfastWarning):
            warnings.simplefilter("error")
            put(saver, config(), v=value)
    assert list(saver.list(None)) == []


def test_classes_of_functions_are_not_held(memory_store: Store) -> None:
    saver = saver_on(memory_store)
    with pytest.warns(holdfast.HoldfastWarning):
        held = [weakref.ref(type(_put_local(saver))) for _ in range(3)]
    gc.collect()
    assert [ref() for ref in held][:2] == [None, None]


def _put_local(saver: Any) -> Any:
    value, _ = local_values()[0]
    put(saver, config(), v=value)
    return value
