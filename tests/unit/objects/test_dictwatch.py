"""Watching dicts: no change of names, order or objects goes unnoticed, whichever way they are watched."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.objects import dictwatch
from holdfast.objects.dictwatch import NOTHING, Compared, Numbered, Watch

ways = [
    pytest.param(
        Numbered,
        marks=pytest.mark.skipif(not dictwatch.ARE_NUMBERED, reason="dicts have no numbers in this interpreter"),
    ),
    Compared,
]
names = st.sampled_from("abcd")
values = st.sampled_from([None, 1, 1.0, True, "", "a", ()])


@pytest.mark.skipif(sys.implementation.name != "cpython" or sys.version_info >= (3, 13), reason="others have none")
def test_the_numbers_are_found_where_there_are_any() -> None:
    assert dictwatch.ARE_NUMBERED
    assert isinstance(dictwatch.watch([{"a": 1}]), Numbered)


def held(dicts: list[dict[str, Any]]) -> list[list[tuple[str, int]]]:
    return [[(name, id(value)) for name, value in one.items()] for one in dicts]


@pytest.mark.parametrize("way", ways)
@given(
    given_dicts=st.lists(st.dictionaries(names, values, min_size=1), min_size=1, max_size=4),
    border=st.integers(0, 3),
    data=st.data(),
)
def test_unchanged_dicts_hold_the_same(
    way: Callable[[list[dict[str, Any]]], Watch], given_dicts: list[dict[str, Any]], border: int, data: st.DataObject
) -> None:
    watch = NOTHING
    for part in (given_dicts[:border], given_dicts[border:]):
        if part:
            watch = watch.followed_by(way(part)).followed_by(NOTHING)
    before = held(given_dicts)
    assert watch.are_unchanged()
    for _ in range(data.draw(st.integers(0, 3))):
        one = data.draw(st.sampled_from(given_dicts))
        match data.draw(st.integers(0, 5)):
            case 0:
                one[data.draw(names)] = data.draw(values)
            case 1:
                one.pop(data.draw(names), None)
            case 2:
                one.update(data.draw(st.dictionaries(names, values)))
            case 3:
                one.setdefault(data.draw(names), data.draw(values))
            case 4 if one:
                _, value = one.popitem()
                one[data.draw(names)] = value
            case _:
                again = dict(one)
                one.clear()
                one |= again
    if watch.are_unchanged():
        assert held(given_dicts) == before


@pytest.mark.parametrize("way", ways)
def test_attributes_are_watched_through_their_dict(way: Callable[[list[dict[str, Any]]], Watch]) -> None:
    def changed(one: Any) -> None:
        one.content = "new"

    for _ in range(64):  # often: the interpreter finds a quicker way for what is done again and again
        one = SimpleNamespace(content="old", id=1)
        watch = way([vars(one)])
        assert watch.are_unchanged()
        changed(one)
        assert not watch.are_unchanged()


@pytest.mark.parametrize("way", ways)
def test_a_dict_is_kept_alive_by_its_watch(way: Callable[[list[dict[str, Any]]], Watch]) -> None:
    watch = way([{"a": number} for number in range(10)])
    others = [{"a": number} for number in range(100)]
    assert watch.are_unchanged()
    assert len(others) == 100
