"""A class, a field or a member of an Enum that is gone locks nothing: its objects come back as
plain data, and stay what they were."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langgraph.graph import START, StateGraph
from langgraph_savers import config, put, saver_on, values_of
from pydantic import BaseModel
from stores import Store

import holdfast
from holdfast import HoldfastWarning, UnknownTypeError, UsageError

MODULE = "their_program"


@pytest.fixture
def program() -> Iterator[types.ModuleType]:
    """A module of the user's program, as it was when the state was saved."""

    @dataclass(frozen=True)
    class Note:
        text: str
        more: tuple[int, ...] = ()

    class Plan(BaseModel):
        goal: str
        mood: Any = None

    class Mood(Enum):
        GLAD = "glad"
        SAD = "sad"

    class Point(NamedTuple):
        x: int
        y: int

    module = types.ModuleType(MODULE)
    _define(module, Note, Plan, Mood, Point)
    sys.modules[MODULE] = module
    yield module
    del sys.modules[MODULE]


def _define(module: types.ModuleType, *classes: type) -> None:
    for cls in classes:
        cls.__module__, cls.__qualname__ = module.__name__, cls.__name__
        setattr(module, cls.__name__, cls)


def remove_classes(module: types.ModuleType) -> None:
    for name in ("Note", "Plan", "Mood", "Point"):
        delattr(module, name)


def remove_fields(module: types.ModuleType) -> None:
    @dataclass(frozen=True)
    class Note:
        other: str

    class Plan(BaseModel):
        other: str

    class Mood(Enum):
        OTHER = "other"

    class Point(NamedTuple):
        other: int

    _define(module, Note, Plan, Mood, Point)


CHANGES = [remove_classes, remove_fields]
Change = Callable[[types.ModuleType], None]


def state_of(program: types.ModuleType) -> dict[str, Any]:
    note = program.Note("n", (1, 2))
    return {
        "note": note,
        "plan": program.Plan(goal="g", mood=program.Mood.SAD),
        "mood": program.Mood.GLAD,
        "points": [program.Point(1, 2), program.Point(3, 4)],
        "keys": {note: {note, program.Note("m")}},
        "log": [HumanMessage("x" * 600, id=str(number), note=note) for number in range(30)],
    }


PLAIN = {
    "note": {"text": "n", "more": (1, 2)},
    "plan": {"goal": "g", "mood": "SAD"},
    "mood": "GLAD",
    "points": [{"x": 1, "y": 2}, {"x": 3, "y": 4}],
}


class State(TypedDict, total=False):
    note: Any
    plan: Any
    mood: Any
    points: Any
    keys: Any
    log: Any
    done: int


def graph_on(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("count", lambda state: {"done": state.get("done", 0) + 1})
    builder.add_edge(START, "count")
    return builder.compile(checkpointer=saver)


def told_paths(caught: Any) -> set[str]:
    """Of the channels that warnings speak of."""
    told = [str(one.message).partition(" came back as plain data")[0] for one in caught]
    return {path.removeprefix("execution_state.channel_values.") for path in told}


def plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in PLAIN}


@pytest.mark.parametrize("change", CHANGES)
def test_every_call_on_a_thread_works_and_its_objects_stay_what_they_were(
    store: Store, program: types.ModuleType, change: Change
) -> None:
    before = state_of(program)
    known = vars(program).copy()
    graph_on(saver_on(store)).invoke(before, config())
    change(program)
    with pytest.warns(HoldfastWarning) as caught:
        assert plain(graph_on(saver_on(store)).get_state(config()).values) == PLAIN
    assert {"note", "plan", "plan.mood", "points[0]", "log[0].note"} <= told_paths(caught)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        saver = saver_on(store)
        graph = graph_on(saver)
        assert [plain(state.values) for state in graph.get_state_history(config()) if state.values] == [PLAIN] * 2
        assert len(list(saver.list(None))) == 3
        saver.copy_thread("t", "copy")
        graph.update_state(config(), {"done": 10})
        assert graph.invoke({"done": 20}, config())["done"] == 21
        assert plain(values_of(saver, config("copy"))) == PLAIN
    vars(program).update(known)  # the old program again: it finds all of it
    for thread in ("t", "copy"):
        found = values_of(saver_on(store), config(thread))
        assert {name: found[name] for name in before} == before
        assert type(found["plan"]) is type(before["plan"])
        assert found["log"][0].note == before["note"]


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_holds_for_async_calls(store: Store, program: types.ModuleType, change: Change) -> None:
    async def run() -> None:
        await graph_on(saver_on(store)).ainvoke(state_of(program), config())
        change(program)
        graph = graph_on(saver_on(store))
        with pytest.warns(HoldfastWarning) as caught:
            assert plain((await graph.aget_state(config())).values) == PLAIN
        assert {"note", "plan", "plan.mood"} <= told_paths(caught)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HoldfastWarning)
            assert len([state async for state in graph.aget_state_history(config())]) == 3
            assert (await graph.ainvoke({"done": 1}, config()))["done"] == 2

    asyncio.run(run())


def test_warnings_name_paths_in_lists_messages_and_writes(store: Store, program: types.ModuleType) -> None:
    saver = saver_on(store)
    note = program.Note("n")
    messages = [HumanMessage("x" * 600, id=str(number)) for number in range(30)]
    messages[7].additional_kwargs["note"] = note
    where = put(saver, config(), messages=messages)
    saver.put_writes(where, [("channel", [note])], "task")
    remove_classes(program)
    for read in (lambda: saver_on(store).get_tuple(where), lambda: [*saver_on(store).list(config())]):
        with pytest.warns(HoldfastWarning) as caught:
            read()
        told = "\n".join(str(one.message) for one in caught)
        assert "execution_state.channel_values.messages[7].additional_kwargs.note came back" in told
        assert "writes (channel)[0] came back" in told
        assert "'their_program:Note'" in told


def test_on_request_the_saver_raises(memory_store: Store, program: types.ModuleType) -> None:
    put(saver_on(memory_store), config(), note=program.Note("n"))
    remove_classes(program)
    with pytest.raises(UnknownTypeError, match="their_program:Note"):
        values_of(saver_on(memory_store, on_unknown_type="raise"), config())
    with pytest.raises(UsageError, match="'raise' or 'plain'"):
        saver_on(memory_store, on_unknown_type="skip")


def test_a_clone_of_a_saver_does_the_same(memory_store: Store, program: types.ModuleType) -> None:
    put(saver_on(memory_store), config(), note=program.Note("n"))
    remove_classes(program)
    with pytest.raises(UnknownTypeError):
        values_of(saver_on(memory_store, on_unknown_type="raise").with_allowlist([]), config())
    with pytest.warns(HoldfastWarning):
        values_of(saver_on(memory_store).with_allowlist([]), config())


def test_what_stands_for_an_object_can_be_copied_compared_and_pickled(
    memory_store: Store, program: types.ModuleType
) -> None:
    put(saver_on(memory_store), config(), **state_of(program))
    remove_classes(program)
    with pytest.warns(HoldfastWarning):
        found = values_of(saver_on(memory_store), config())
    for name in ("note", "plan", "mood", "points"):
        for again in (copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
            put(saver_on(memory_store), config("again"), v=again(found[name]))
            with pytest.warns(HoldfastWarning):
                back = values_of(saver_on(memory_store), config("again"))["v"]
            assert back == found[name]
            assert isinstance(back, holdfast.UnknownValue) or name == "points"
    assert found["note"].type_name == "their_program:Note"
    assert found["mood"] != found["note"]
    assert {found["mood"]: 1}["GLAD"] == 1
