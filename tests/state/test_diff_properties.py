"""diff: whatever two states are, its edits lead from the one to the other, exactly."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import json_values, same, states, values

from holdfast import SyncClient
from holdfast.backends.port import Span
from holdfast.codec.codec import Codec
from holdfast.codec.registry import TypeRegistry
from holdfast.format.state.diff import Differ
from holdfast.format.state.list_alignment import find_changed
from holdfast.format.state.span_match import cut, find_gaps
from holdfast.model.diff import patch

slow_data = settings(suppress_health_check=list(HealthCheck), max_examples=examples(30))
tokens = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"]), max_size=14)


def messages(numbers: list[int]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"{number} " + "text " * 150} for number in numbers]


@st.composite
def long_lists(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """A list that is stored as a log, and what became of it."""
    old = messages(list(range(draw(st.integers(8, 30)))))
    new = copy.deepcopy(old)
    for edit in draw(st.lists(st.sampled_from(["append", "insert", "delete", "edit", "move", "nothing"]), max_size=4)):
        place = draw(st.integers(0, max(len(new) - 1, 0)))
        if edit == "append":
            new += messages([draw(st.integers(100, 200))])
        elif edit == "insert":
            new[place:place] = messages([draw(st.integers(100, 200))])
        elif edit == "delete":
            del new[place : place + draw(st.integers(1, 6))]
        elif edit == "edit" and new:
            new[place]["content"] = draw(json_values())
        elif edit == "move" and new:
            new.append(new.pop(place))
    return old, new


@st.composite
def two_states(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two states that share something, or nothing."""
    a = draw(states())
    b = draw(st.one_of(states(), st.just(copy.deepcopy(a))))
    if draw(st.booleans()):
        a["messages"], b["messages"] = draw(long_lists())
    if draw(st.booleans()):
        a["deep"], b["deep"] = {"in": {"here": messages(list(range(20)))}}, draw(json_values())
    if draw(st.booleans()):
        a["text"], b["text"] = "x" * 5000, draw(st.sampled_from(["x" * 5000, "x" * 5001, b"x" * 5000, "short"]))
    if draw(st.booleans()):
        a["few"], b["few"] = [messages(list(range(9))), 1], [0, messages(list(range(9))), 1.0]
    return a, b


@pytest.mark.slow
@given(two_states(), json_values(), json_values())
@slow_data
def test_applied_to_the_one_it_gives_the_other(
    pair: tuple[dict[str, Any], dict[str, Any]], context: Any, other: Any
) -> None:
    a, b = pair
    with SyncClient.memory() as client:
        first = client.save("a", execution_state=a, context=context, session_id="s", kind="x")
        second = client.save("a", execution_state=b, context=other, session_id="s", tasks=[1])
        apart = client.save("a", execution_state=b, context=other, session_id="elsewhere", tasks=[1])
        for one, another in ((first, second), (second, first), (first, apart), (apart, second)):
            before, after = client.restore(one), client.restore(another)
            untouched = Codec().encode(before.execution_state)
            found = client.diff(one, another)
            made = found.apply(before)
            for name in ("execution_state", "agent_context", "tasks"):
                assert same(getattr(made, name), getattr(after, name))
            assert same(dict(made.metadata), dict(after.metadata))
            assert Codec().encode(before.execution_state) == untouched
            assert not client.diff(another, another)
            assert isinstance(found.text(), str)


@given(values(), values())
@slow_data
def test_values_of_any_type(a: Any, b: Any) -> None:
    edits = list(Differ(Codec()).edits(a, b, ("value",)))
    assert same(patch({"value": a}, edits), {"value": b})
    assert bool(edits) == (not same(a, b))


@dataclass(frozen=True)
class Thing:
    name: Any = None
    parts: Any = None


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: Any = None
    parts: Any = None


TYPES = TypeRegistry()
TYPES.register(Thing)
TYPES.register(Model)
CODEC = Codec(TYPES)
keys = st.sampled_from("abc")
hashable = st.one_of(st.integers(0, 3), keys)
objects = st.recursive(
    st.one_of(
        hashable, st.builds(Thing, hashable, hashable), st.frozensets(st.builds(Thing, hashable, hashable), max_size=2)
    ),
    lambda inner: st.one_of(
        st.builds(Thing, inner, inner),
        st.builds(lambda given: Model(**given), st.dictionaries(st.sampled_from(["name", "parts", "more"]), inner)),
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.one_of(keys, st.builds(Thing, hashable)), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(objects, objects)
def test_objects_anywhere(a: Any, b: Any) -> None:
    with SyncClient.memory(types=TYPES) as client:
        one = client.save("a", execution_state={"v": a}, session_id="s")
        other = client.save("a", execution_state={"v": b}, session_id="s")
        found = client.diff(one, other)
        made = found.apply(client.restore(one)).execution_state
        assert CODEC.encode(made) == CODEC.encode(client.restore(other).execution_state)
        assert bool(found) == (CODEC.encode(a) != CODEC.encode(b))
        assert bool(found.text()) == bool(found)


@given(json_values(), json_values())
@slow_data
def test_a_json_patch_says_the_same(a: Any, b: Any) -> None:
    with SyncClient.memory() as client:
        one = client.save("a", execution_state={"v": a}, session_id="s")
        other = client.save("a", execution_state={"v": b}, session_id="s")
        patch = json.loads(json.dumps(client.diff(one, other).json_patch()))
    assert as_patched({"v": a}, patch) == {"v": b}


def as_patched(document: Any, patch: list[dict[str, Any]]) -> Any:
    """RFC 6902, as far as `add`, `remove` and `replace` go."""
    whole = {"": copy.deepcopy(document)}
    for operation in patch:
        *above, last = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")]
        target: Any = whole
        for key in above:
            target = target[int(key) if isinstance(target, list) else key]
        key = int(last) if isinstance(target, list) else last
        if operation["op"] == "remove":
            del target[key]
        elif operation["op"] == "add" and isinstance(target, list):
            target.insert(key, operation["value"])
        else:
            assert (operation["op"] == "replace") == (isinstance(target, list) or key in target)
            target[key] = operation["value"]
    return whole[""]


@given(tokens, tokens)
def test_what_is_not_in_a_changed_stretch_is_equal(old: list[bytes], new: list[bytes]) -> None:
    stretches = find_changed(old, new)
    rebuilt, place = [], 0
    for stretch in stretches:
        rebuilt += old[place : stretch.old_first]
        assert len(rebuilt) == stretch.new_first
        rebuilt += new[stretch.new_first : stretch.new_end]
        place = stretch.old_end
    assert rebuilt + old[place:] == new


@given(st.lists(st.integers(), unique=True, max_size=20), st.data())
def test_what_was_inserted_is_one_stretch(numbers: list[int], data: st.DataObject) -> None:
    old = [b"%d" % number for number in numbers]
    place = data.draw(st.integers(0, len(old)))
    new = [*old[:place], b"new", b"new", *old[place:]]
    assert find_changed(old, new) == [(place, place, place, place + 2)]


spans = st.lists(
    st.builds(
        lambda log, first, count: Span(log, first, first + count),
        st.integers(1, 2),
        st.integers(0, 9),
        st.integers(1, 6),
    ),
    max_size=6,
)


def places(listed: list[Span]) -> list[tuple[int, int]]:
    return [(span.log, number) for span in listed for number in range(span.first, span.end)]


@given(spans, spans)
def test_what_is_not_in_a_gap_is_shared(old: list[Span], new: list[Span]) -> None:
    a, b = places(old), places(new)
    rebuilt, place = [], 0
    for gap in find_gaps(old, new):
        rebuilt += a[place : gap.old_first]
        assert len(rebuilt) == gap.new_first
        assert places(cut(old, gap.old_first, gap.old_end)) == a[gap.old_first : gap.old_end]
        rebuilt += places(cut(new, gap.new_first, gap.new_end))
        place = gap.old_end
    assert rebuilt + a[place:] == b
    assert bool(find_gaps(old, new)) == (a != b)


@given(spans, st.data())
def test_what_was_put_between_stored_elements_is_the_gap(old: list[Span], data: st.DataObject) -> None:
    unique = [span._replace(log=number) for number, span in enumerate(old)]
    length = len(places(unique))
    at = data.draw(st.integers(0, length))
    new = [Span(99, 0, 1), *cut(unique, 0, at), Span(99, 1, 3), *cut(unique, at, length), Span(99, 3, 4)]
    assert sum(gap.new_end - gap.new_first for gap in find_gaps(unique, new)) == 4
    assert sum(gap.old_end - gap.old_first for gap in find_gaps(unique, new)) == 0
