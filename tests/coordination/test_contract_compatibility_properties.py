"""Compatibility of contracts: a yes holds for every value, a no has a witness."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from examples import examples
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from holdfast.coordination.contract import accepts
from holdfast.coordination.contract_validator import is_readable, sender_check
from holdfast.errors import UsageError
from holdfast.model.contract_schema import check_schema

NAMES = st.sampled_from("abc")
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([-1.5, 0.5, 2.5]))
SIZES = st.integers(0, 3)


def some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


LEAVES = st.one_of(
    st.just({}),
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    some(minimum=NUMBERS, maximum=NUMBERS, exclusiveMinimum=NUMBERS).map(lambda one: {"type": "integer", **one}),
    some(minimum=NUMBERS, exclusiveMaximum=NUMBERS, multipleOf=st.sampled_from([1, 2, 0.5])).map(
        lambda one: {"type": "number", **one}
    ),
    some(minLength=SIZES, maxLength=SIZES).map(lambda one: {"type": "string", **one}),
    st.lists(st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "x", "xx"])), min_size=1).map(
        lambda values: {"enum": values}
    ),
    st.sampled_from([["string", "null"], ["integer", "string"], ["number", "boolean"]]).map(lambda one: {"type": one}),
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = some(items=inner, minItems=SIZES, maxItems=SIZES, prefixItems=st.lists(inner, min_size=1, max_size=2))
    objects = some(
        properties=st.dictionaries(NAMES, inner, max_size=3), additionalProperties=st.one_of(st.booleans(), inner)
    )
    return st.one_of(
        arrays.map(lambda one: {"type": "array", **one}),
        st.tuples(objects, st.lists(NAMES, unique=True, max_size=2)).map(
            lambda both: {"type": "object", **both[0], "required": both[1]}
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
        st.lists(inner, min_size=1, max_size=2).map(lambda branches: {"oneOf": branches}),
    )


SCHEMAS = st.recursive(LEAVES, larger, max_leaves=6)
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-4, 4), st.sampled_from([0.5, -1.5, 2.5]), st.text("x", max_size=4)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)


@given(SCHEMAS, SCHEMAS, st.lists(VALUES, max_size=30))
@settings(max_examples=examples(300))
def test_a_yes_holds_for_every_value_and_a_no_has_a_witness(reader, writer, values):
    found = accepts(reader, writer)
    if found is None:
        assert not broken_by(reader, writer, values)
    elif found.is_proven:
        assert broken_by(reader, writer, [found.witness])


def broken_by(reader: Any, writer: Any, values: list[Any]) -> list[Any]:
    """The values that the writer may send and the reader can't read."""
    return [value for value in values if sender_check(writer)(value) and not is_readable(reader, value)]


def test_control_a_wrong_yes_is_found_out():
    """The same schemas and values find what a decision that always says yes overlooks."""
    drawn = st.tuples(SCHEMAS, SCHEMAS, st.lists(VALUES, max_size=30))
    quickly = settings(max_examples=5000, deadline=None, phases=[Phase.generate])
    assert find(drawn, lambda found: bool(broken_by(*found)), settings=quickly)


@pytest.mark.parametrize("additional", [None, True, False, {}, {"type": "integer"}])
@pytest.mark.parametrize("properties", [{}, {"a": {}}, {"a": {"type": "integer"}, "c": {}}])
@pytest.mark.parametrize("required", [["a"], ["b"], ["a", "b"], ["a", "b", "c"]])
def test_a_required_field_is_missed_whatever_else_the_schema_says(additional, properties, required):
    schema = {"type": "object", "properties": properties, "required": required}
    if additional is not None:
        schema["additionalProperties"] = additional
    for count in range(4):
        for names in itertools.combinations("abc", count):
            value = dict.fromkeys(names, 1)
            has_all = set(required) <= set(names)
            has_unknown = not set(names) <= set(properties)
            assert is_readable(schema, value) == has_all
            assert sender_check(schema)(value) == (has_all and not (has_unknown and additional in (None, False)))


# With oneOf it may not: fields that a reader ignores can make a value match a second alternative.
@given(SCHEMAS.filter(lambda schema: "oneOf" not in str(schema)))
def test_a_lenient_reader_accepts_its_own_strict_writer_or_can_t_tell(schema):
    found = accepts(schema, schema)
    assert found is None or not found.is_proven


OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}
WIDER = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
REQUIRED = {**OBJECT, "required": ["a"]}
MORE = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
MORE_REQUIRED = {**MORE, "required": ["b"]}
DEFAULT = {
    "type": "object",
    "properties": {**OBJECT["properties"], "b": {"type": "integer", "default": 1}},
    "required": ["b"],
}
RENAMED = {"type": "object", "properties": {"z": {"type": "string"}}, "required": ["z"]}


@pytest.mark.parametrize(
    ("old", "new", "is_backward", "is_forward"),
    [
        (OBJECT, MORE, True, True),
        (OBJECT, DEFAULT, True, True),
        (OBJECT, MORE_REQUIRED, False, True),
        (MORE, OBJECT, True, True),
        (MORE_REQUIRED, OBJECT, True, False),
        (OBJECT, WIDER, True, False),
        (WIDER, OBJECT, False, True),
        ({"enum": ["low", "high"]}, {"enum": ["low", "high", "info"]}, True, False),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 0}, True, False),
        (REQUIRED, RENAMED, False, False),
        ({"type": "integer"}, {"type": "number"}, True, False),
        ({"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, True, False),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, {"type": "object"}, True, False),
    ],
)
def test_the_changes_of_a_schema_and_what_they_break(old, new, is_backward, is_forward):
    backward, forward = accepts(new, old), accepts(old, new)
    assert (backward is None, forward is None) == (is_backward, is_forward)
    assert all(one is None or one.is_proven for one in (backward, forward))


def test_patterns_that_differ_can_t_be_told():
    texts = [{"type": "string", "pattern": pattern} for pattern in ("^a", "^b")]
    found = accepts(*texts)
    assert found is not None
    assert not found.is_proven
    assert accepts(texts[0], texts[0]) is None


def test_alternatives_that_a_constant_tells_apart():
    cat = {
        "type": "object",
        "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
        "required": ["kind"],
    }
    dog = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}
    assert accepts({"oneOf": [cat, dog]}, cat) is None
    found = accepts({"oneOf": [cat]}, {"oneOf": [cat, dog]})
    assert found is not None
    assert found.witness == {"kind": "dog"}


def test_a_schema_that_contains_itself():
    def tree(value: str) -> dict[str, Any]:
        node = {"value": {"type": value}, "children": {"type": "array", "items": {"$ref": "#/$defs/T"}}}
        return {"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "properties": node, "required": ["value"]}}}

    assert accepts(tree("number"), tree("integer")) is None
    found = accepts(tree("integer"), tree("string"))
    assert found is not None
    assert found.is_proven


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://schemas.example/draft.json"},
        {"$ref": "file:///etc/passwd"},
        {"$dynamicRef": "#x"},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"not": {}},
        {"type": "text"},
        {"enum": list(range(20_000))},
        {"items": 1},
        {"properties": []},
        {"minimum": "1"},
        {"anyOf": [{}], "minimum": 1},
        nested(70),
        pytest.param(nested(10_000), id="nested very deeply"),
        [],
        {"const": float("nan")},
        {"const": {1}},
        {"enum": ["\ud800"]},
        {"type": ["string", "string"]},
        {"required": ["a", "a"]},
        {"minLength": -1},
        {"minItems": 1.5},
        {"minLength": 2**31 + 1},
        {"minimum": 10**400},
        {"multipleOf": -2},
        {"uniqueItems": "yes"},
        {"pattern": 3},
        {"format": []},
        {"$ref": "#/$defs/A~1B", "$defs": {"A~1B": {}}},
        {"$ref": "#/$defs/A/properties/x", "$defs": {"A/properties/x": {}, "A": {"properties": {"x": {}}}}},
        {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/B"}, {}]}, "B": {"oneOf": [{"$ref": "#/$defs/A"}]}}},
    ],
    ids=str,
)
def test_a_schema_that_is_hostile_or_can_t_be_compared_is_refused(schema):
    with pytest.raises(UsageError, match="schema of contract 'x'"):
        check_schema(schema, "x")


def tower(levels: int) -> dict[str, Any]:
    """A value of it has 2 ** levels parts."""
    parts: dict[str, Any] = {"0": {"type": "string"}}
    for level in range(1, levels):
        below = {"$ref": f"#/$defs/{level - 1}"}
        parts[str(level)] = {"type": "object", "properties": {"a": below, "b": below}, "required": ["a", "b"]}
    return {"$ref": f"#/$defs/{levels - 1}", "$defs": parts}


def ladder(levels: int) -> dict[str, Any]:
    parts: dict[str, Any] = {"0": {"type": "string"}}
    for level in range(1, levels):
        parts[str(level)] = {"type": "array", "items": {"$ref": f"#/$defs/{level - 1}"}}
    return {"$ref": f"#/$defs/{levels - 1}", "$defs": parts}


LONG_TEXT = {"type": "string", "minLength": 2**31}
LONG_LIST = {"type": "array", "minItems": 10_000, "items": {"type": "array", "minItems": 10_000, "items": {}}}
WORDS = [f"name-{number}" for number in range(4_000)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (LONG_TEXT, {"type": "integer"}),
        ({"type": "integer"}, LONG_TEXT),
        ({"type": "integer"}, {"type": "array", "minItems": 1, "items": LONG_TEXT}),
        ({"type": "integer"}, LONG_LIST),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, LONG_LIST),
        ({"type": "integer"}, tower(40)),
        (ladder(900), ladder(900)),
        ({"enum": WORDS}, {"type": "string", "minLength": 9_999}),
        ({"anyOf": [{"const": name} for name in WORDS[:2_000]]}, {"enum": WORDS}),
        ({"type": "number", "multipleOf": 1e-300}, {"type": "number", "multipleOf": 1e300}),
        ({"type": "number", "minimum": 10**299}, {"type": "number"}),
        ({"type": "string"}, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.3}),
        ({"enum": ["x"]}, {"type": "array", "minItems": 10_001}),
    ],
    ids=range(13),
)
@pytest.mark.timeout(60)  # each takes less than two seconds; without its limit, days or all of the memory
def test_a_comparison_with_a_hostile_schema_ends_and_says_no(reader, writer):
    found = accepts(reader, writer)
    assert found is not None
    assert not found.is_proven or broken_by(reader, writer, [found.witness])


def test_a_reader_of_a_field_that_may_be_anything_can_require_it():
    schema = {"type": "object", "properties": {"a": True}, "required": ["a"]}
    assert is_readable(schema, {"a": 1})
    assert not is_readable(schema, {})


@pytest.mark.slow
def test_a_comparison_with_too_many_alternatives_is_given_up():
    def deep(levels: int, leaf: str) -> dict[str, Any]:
        parts: dict[str, Any] = {"0": {"type": leaf}}
        for level in range(1, levels):
            below = {"$ref": f"#/$defs/{level - 1}"}
            parts[str(level)] = {"type": "array", "items": {"anyOf": [below, {"type": "null"}, below]}}
        return {"$ref": f"#/$defs/{levels - 1}", "$defs": parts}

    assert accepts(deep(20, "integer"), deep(20, "string")) is not None  # 3 ** 20 pairs would take days
