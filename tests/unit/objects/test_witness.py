"""Witnesses of list elements: every change is noticed, whatever it is, and what can't be watched has no witness."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec.codec import Codec
from holdfast.objects import dictwatch
from holdfast.objects.witness import MAX_LEVELS, MAX_REFERENCES, Witness, witness

PLAIN = frozenset((SimpleNamespace,))


@pytest.fixture(
    params=[True, False], ids=["dicts by their numbers", "dicts by what they hold"], autouse=True, scope="module"
)
def are_numbered(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Both ways to watch dicts. An interpreter without numbers has only the second one."""
    if request.param and not dictwatch.ARE_NUMBERED:
        pytest.skip("dicts have no numbers here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dictwatch, "ARE_NUMBERED", request.param)
        yield request.param


class Text(str):
    __slots__ = ()


def elements() -> list[Any]:
    return [
        {"role": "user", "count": 1, "parts": [{"text": "a"}, {"text": "b"}], "more": {}},
        SimpleNamespace(content="hi", calls=[{"args": {"x": [1.0]}}], seen={"a", "b"}, pair=([0], "k"), none=None),
        "text",
        [],
        [["moves"], []],
        [[], ["moves back", "stays"]],
        [{"a": 1, "moves": 2}, {"stays": 3}],
    ]


def moved_to_the_front(source: dict[str, Any], target: dict[str, Any]) -> None:
    """All names and values stay where they are, one after the other; only the border between the two is another."""
    name, value = source.popitem()
    held = {name: value, **target}
    target.clear()
    target.update(held)


CHANGES = {
    "an item is appended": lambda e: e[0]["parts"].append(1),
    "an item is appended to what was empty": lambda e: e[3].append(1),
    "a text is replaced": lambda e: e[0].update(role="other"),
    "an item deep inside": lambda e: e[1].calls[0]["args"]["x"].append(2.0),
    "an attribute": lambda e: setattr(e[1], "content", "ho"),
    "an attribute more": lambda e: setattr(e[1], "extra", 1),
    "an attribute less": lambda e: delattr(e[1], "none"),
    "an attribute of another name": lambda e: (e[1].__dict__.pop("none"), e[1].__dict__.update(other=None)),
    "a value of the last key, under another name": lambda e: e[6][1].update(moved=e[6][1].pop("stays")),
    "a dict that is emptied": lambda e: e[6][0].clear(),
    "a member of a set by another": lambda e: (e[1].seen.discard("a"), e[1].seen.add("z")),
    "an empty dict that is filled": lambda e: e[0]["more"].update(a=1),
    "all attributes": lambda e: e[1].__dict__.clear(),
    "an attribute whose value is equal, of another type": lambda e: setattr(e[1], "content", Text("hi")),
    "a key of another name for the same value": lambda e: e[0].update({"extra": e[0].pop("more")}),
    "a key that is equal, of another type": lambda e: e[0].update({Text("more"): e[0].pop("more")}),
    "equal numbers of another type": lambda e: e[0].update(count=True),
    "the order of keys": lambda e: e[0].update(role=e[0].pop("role")),
    "a member of a set": lambda e: e[1].seen.add("c"),
    "a list inside of a tuple": lambda e: e[1].pair[0].append(1),
    "an item that moves to the next list": lambda e: e[4][1].append(e[4][0].pop()),
    "an item that moves to the list before it": lambda e: e[5][0].append(e[5][1].pop(0)),
    "an item that moves from one dict to the next": lambda e: moved_to_the_front(e[6][0], e[6][1]),
    "an element": lambda e: e.__setitem__(2, "other"),
    "the order of elements": lambda e: e.reverse(),
    "an element less": lambda e: e.pop(),
}


def of_parts(watched: list[Any], border: int) -> Witness:
    first, second = witness(watched[:border], PLAIN), witness(watched[border:], PLAIN)
    assert first is not None
    assert second is not None
    both = first.followed_by(second)
    assert both is not None
    return both


@pytest.mark.parametrize("border", [None, 0, 1, 5])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_noticed(change: Any, border: int | None) -> None:
    watched = elements()
    found = witness(list(watched), PLAIN) if border is None else of_parts(watched, border)
    assert found is not None
    assert found.testifies(watched)
    change(watched)
    assert not found.testifies(watched)


def test_equal_elements_that_are_others_are_not_taken_for_the_same() -> None:
    watched = elements()
    found = witness(list(watched), PLAIN)
    assert found is not None
    assert not found.testifies(copy.deepcopy(watched))


def test_what_is_too_much_for_one_is_not_put_together() -> None:
    half = ["text"] * (MAX_REFERENCES // 2)
    one, other = witness([half], PLAIN), witness([half], PLAIN)
    assert one is not None
    assert other is not None
    assert one.followed_by(other) is None


def nested(levels: int) -> list[Any]:
    inside: list[Any] = []
    for _ in range(levels):
        inside = [inside]
    return inside


@pytest.mark.parametrize(
    "element",
    [
        object(),
        bytearray(b"x"),
        {1: "a number as a key"},
        {Text("a"): 1},
        [Text("a text of another class")],
        type("Other", (), {})(),
        nested(MAX_LEVELS + 1),
    ],
    ids=lambda element: type(element).__name__,
)
def test_what_can_not_be_watched_has_no_witness(element: Any) -> None:
    assert witness([element], PLAIN) is None


def test_what_refers_to_itself_has_no_witness() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert witness([loop], PLAIN) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from([0.0, 1.0, "", "a", "b"]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from("abc"), inside, max_size=3),
    max_leaves=8,
)


def containers_in(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(found for one in inside for found in containers_in(one))] if isinstance(value, list | dict) else []


@given(st.lists(values, min_size=1, max_size=4), st.data())
def test_who_testifies_is_right(watched: list[Any], data: st.DataObject) -> None:
    codec = Codec()
    found = witness(list(watched), PLAIN)
    assert found is not None
    before = codec.encode_each(watched)
    for _ in range(data.draw(st.integers(1, 3))):
        target = data.draw(st.sampled_from([watched, *containers_in(watched)]))
        fresh = data.draw(values)
        if isinstance(target, dict):
            key = data.draw(st.sampled_from("abc"))
            target.pop(key, None) if data.draw(st.booleans()) else target.update({key: fresh})
        elif target and data.draw(st.booleans()):
            target.pop(data.draw(st.integers(0, len(target) - 1)))
        else:
            target.insert(data.draw(st.integers(0, len(target))), fresh)
    if found.testifies(watched):
        assert codec.encode_each(watched) == before
