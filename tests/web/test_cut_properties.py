"""Cut values: nothing is invented, nothing above the limits, and every part is found by its path."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.json_form.values import to_json
from holdfast.web.cut import CUT, CutLimits, cut, find

KEYS = st.one_of(st.text(max_size=4), st.just("$type"), st.integers(-2, 2), st.booleans())
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=40), st.binary(max_size=9))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(KEYS, inner, max_size=6), st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=30,
)
LARGE = CutLimits(depth=100, items=1000, text=100_000, values=100_000)


def _count(shown) -> int:
    if isinstance(shown, dict):
        return 1 + sum(_count(item) for item in shown.values())
    return 1 + sum(map(_count, shown)) if isinstance(shown, list) else 1


def _is_cut(shown) -> bool:
    return isinstance(shown, dict) and shown.get("$type") == CUT and "of" in shown


def _has_bytes(value) -> bool:
    if isinstance(value, dict):
        return any(_has_bytes(key) or _has_bytes(item) for key, item in value.items())
    return any(map(_has_bytes, value)) if isinstance(value, list | tuple) else isinstance(value, bytes)


@given(VALUES)
def test_a_value_within_the_limits_is_shown_as_the_command_line_shows_it(value):
    if not _has_bytes(value):
        assert cut(value, LARGE) == to_json(value)


@given(VALUES, st.integers(1, 4), st.integers(1, 4), st.integers(1, 20))
def test_a_cut_value_is_json_and_keeps_to_its_limits(value, depth, items, text):
    shown = cut(value, CutLimits(depth=depth, items=items, text=text, values=200, characters=10_000))
    json.dumps(shown, allow_nan=False).encode("ascii")

    def check(shown, level):
        if isinstance(shown, str):
            assert len(shown) <= max(text, 40)
        elif isinstance(shown, list):
            assert len(shown) <= max(items, 2)
            for item in shown:
                check(item, level + 1)
        elif isinstance(shown, dict) and "$type" in shown:
            check(shown["value"], level)
        elif isinstance(shown, dict):
            assert len(shown) <= items
            for item in shown.values():
                check(item, level + 1)

    check(shown, 0)


def _walk(value, path=()):
    yield path, value
    if isinstance(value, dict):
        is_text = all(type(key) is str for key in value)
        for number, (key, item) in enumerate(value.items()):
            yield from _walk(item, (*path, key if is_text or type(key) is str else number))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _walk(item, (*path, number))


@given(VALUES)
def test_every_part_is_found_by_its_path(value):
    for path, part in _walk(value):
        found = find(value, path)
        assert found is part or found == part or found != found  # noqa: PLR0124 - NaN


@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 12))
def test_windows_put_together_are_the_whole(size, items, start):
    whole = list(range(size))
    limits = CutLimits(items=items)
    found = []
    offset = 0
    while offset < size:
        shown = cut(whole, limits, offset)
        part = shown["value"] if _is_cut(shown) else shown
        found += part
        offset += len(part)
    assert found == whole
    beyond = cut(whole, limits, size + start)
    assert beyond["value"] == []
    assert cut("x" * size, CutLimits(text=items), size + start)["value"] == ""


def test_a_wide_and_deep_value_stays_small():
    deep = wide = [{"text": "x" * 5000} for _ in range(300)]
    for _ in range(4):
        deep = [deep] * 300
    for value in (deep, wide):
        assert len(json.dumps(cut(value, CutLimits()))) < 3_000_000
        assert _count(cut(value, CutLimits())) < 6 * 20_000 + 100  # a marker has five fields
