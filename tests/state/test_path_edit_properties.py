"""Edits by path: whatever a value holds, a path that names a part of it replaces that part, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import json_values, same, states

from holdfast import SyncClient
from holdfast.errors import UsageError
from holdfast.model.path_edit import edit, parse

plain_keys = st.text(min_size=1, max_size=6)
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(plain_keys | st.integers(-3, 30), inner, max_size=4)
    ),
    max_leaves=12,
)


def paths_of(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return [path for key, item in items for path in ((*above, key), *paths_of(item, (*above, key)))]


def value_at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def without(value: Any, path: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], Any]]:
    """All leaves that are not below the path."""
    return [
        (one, value_at(value, one)) for one in paths_of(value) if one[: len(path)] != path and one != path[: len(one)]
    ]


def pointer(path: tuple[Any, ...]) -> str:
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


@given(trees, json_values(), st.data())
def test_a_tuple_of_keys_replaces_that_part_alone(tree: Any, new: Any, data: st.DataObject) -> None:
    state = {"root": tree}
    untouched = copy.deepcopy(state)
    path = data.draw(st.sampled_from(paths_of(state)))
    made, _ = edit(state, {}, {path: new})
    assert same(value_at(made, path), new)
    assert same(without(made, path), without(state, path))
    assert same(state, untouched)
    assert [list(one) for one in (made, made["root"]) if isinstance(one, dict)] == [
        list(one) for one in (state, state["root"] if path != ("root",) else new) if isinstance(one, dict)
    ]


@given(trees, st.data())
def test_a_pointer_means_the_same_where_keys_are_text(tree: Any, data: st.DataObject) -> None:
    state = {"root": tree}
    path = data.draw(st.sampled_from(paths_of(state)))
    by_keys, _ = edit(state, {}, {path: "new"})
    above: Any = state
    for key in path:  # a number as a key is meant by its digits only where no text of the same digits is a key
        if isinstance(above, dict) and isinstance(key, int) and str(key) in above:
            return
        above = above[key]
    assert same(edit(state, {}, {pointer(path): "new"})[0], by_keys)


@given(trees, st.text(max_size=12))
def test_any_text_is_a_path_or_is_refused(tree: Any, text: str) -> None:
    state = {"root": tree}
    try:
        made, _ = edit(state, {}, {text: 1})
    except UsageError as error:
        assert str(error)
        return
    assert not same(made, state) or value_at(state, ("root",)) == 1


def messages(count: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"{number} " + "text " * 120} for number in range(count)]


@pytest.mark.slow
@given(states(), st.integers(0, 40), json_values(), st.data())
@settings(suppress_health_check=list(HealthCheck), max_examples=examples(30))
def test_forks_have_their_edits_and_nothing_else(state: Any, count: int, new: Any, data: st.DataObject) -> None:
    state = {**state, "messages": messages(count), "text": "x" * 5000}
    with SyncClient.memory() as client:
        source = client.save("a", session_id="s", execution_state=state, context={"k": 1})
        known = [path for path in paths_of(state) if all(type(key) in (str, int) for key in path)]
        ways = [
            dict.fromkeys(data.draw(st.lists(st.sampled_from(known), max_size=2, unique=True)), new) for _ in range(3)
        ]
        expected = []
        for way in ways:
            try:
                expected.append(edit(state, {"k": 1}, way)[0])
            except UsageError:  # the second path led through what the first one replaced
                return
        reports = client.fork(source, set=ways)
        for report, value in zip(reports, expected, strict=True):
            assert same(client.restore(report.checkpoint_id).execution_state, value)
        assert same(client.restore(source).execution_state, state)
        assert client.verify().ok


@given(st.text() | st.integers(-(10**17), 10**17))
def test_any_key_can_stand_in_brackets(key: Any) -> None:
    assert edit({"x": {key: 1}}, {}, {f"x[{key!r}]": 2})[0] == {"x": {key: 2}}


def test_brackets_are_as_differences_print_them() -> None:
    state = {"a.b": [{"c'd": 1, 3: 2}], "m": [[0]]}
    assert parse("m[0][-1]").parts == ("m", 0, -1)
    assert edit(state, {}, {"m[0][-1]": 5, "/a.b/0/c'd": 6})[0] == {"a.b": [{"c'd": 6, 3: 2}], "m": [[5]]}
    assert edit({"x": state}, {}, {"x['a.b'][0][3]": 7})[0]["x"]["a.b"][0][3] == 7
