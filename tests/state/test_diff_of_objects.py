"""client.diff looks into dataclasses, pydantic models, attrs classes and named tuples, and applies edits in them."""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

import attrs
import pydantic
import pytest
from stores import Store

from holdfast import Client, SyncClient, UnknownTypeError, UnsupportedValueError, register
from holdfast.codec.codec import Codec
from holdfast.codec.registry import TypeRegistry
from holdfast.model.diff import At, Field, Put, Splice

pytestmark = pytest.mark.every_store


class Mood(Enum):
    CALM = "calm"
    CROSS = "cross"


class Point(NamedTuple):
    x: int
    y: int


ORIGIN = Point(0, 0)


@dataclass
class Address:
    city: str
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    address: Address
    mood: Mood = Mood.CALM
    at: Point = ORIGIN


@attrs.frozen
class Order:
    number: int
    by: Person


class Cart(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    owner: str = "ada"
    items: list[dict[str, Any]] = []


class Graph:
    """Stored by functions of its own."""

    def __init__(self, edges: dict[str, int]) -> None:
        self.edges = edges

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and other.edges == self.edges

    __hash__ = None


for cls in (Mood, Point, Address, Person, Order, Cart):
    register(cls, f"diff-test-{cls.__name__}")
register(Graph, "diff-test-Graph", encode=lambda graph: graph.edges, decode=Graph)

ADA = Person("Ada", Address("London", ["a", "b"]))
S = "execution_state"


def same(a: Any, b: Any) -> bool:
    """Whether both are stored alike, in every type and in the order of keys."""
    return a == b and Codec().encode(a) == Codec().encode(b)


def two(client: SyncClient, a: Any, b: Any) -> tuple[str, str]:
    return client.save("a", execution_state=a, session_id="s"), client.save("a", execution_state=b, session_id="s")


CASES: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
    "a dataclass in a dataclass": (
        {"user": ADA},
        {"user": replace(ADA, address=Address("Paris", ["a", "b"]))},
        (Put((S, "user", Field("address"), Field("city")), "Paris", "London", replaces=True),),
    ),
    "a list in a dataclass": (
        {"user": ADA},
        {"user": replace(ADA, address=Address("London", ["a", "b", "c"]))},
        (Splice((S, "user", Field("address"), Field("tags")), 2, (), ("c",)),),
    ),
    "an Enum in a dataclass": (
        {"user": ADA},
        {"user": replace(ADA, mood=Mood.CROSS)},
        (Put((S, "user", Field("mood")), Mood.CROSS, Mood.CALM, replaces=True),),
    ),
    "a named tuple": (
        {"user": ADA},
        {"user": replace(ADA, at=Point(0, 7))},
        (Put((S, "user", Field("at"), Field("y")), 7, 0, replaces=True),),
    ),
    "an attrs class": (
        {"orders": [Order(1, ADA), Order(2, ADA)]},
        {"orders": [Order(1, ADA), Order(2, replace(ADA, name="Bob"))]},
        (Put((S, "orders", At(1), Field("by"), Field("name")), "Bob", "Ada", replaces=True),),
    ),
    "another class": (
        {"user": ADA},
        {"user": Order(1, ADA)},
        (Put((S, "user"), Order(1, ADA), ADA, replaces=True),),
    ),
    "a class with functions of its own": (
        {"graph": Graph({"a": 1})},
        {"graph": Graph({"a": 2})},
        (Put((S, "graph", Field("a")), 2, 1, replaces=True),),
    ),
    "a class of Python's own": (
        {"counted": Counter(a=1)},
        {"counted": Counter(a=2)},
        (Put((S, "counted"), Counter(a=2), Counter(a=1), replaces=True),),
    ),
    "what came is an object": (
        {},
        {"users": [ADA]},
        (Put((S, "users"), [ADA]),),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_says_which_field_changed(client: SyncClient, case: str) -> None:
    a, b, expected = CASES[case]
    one, other = two(client, a, b)
    found = client.diff(one, other)
    assert found.edits == expected
    assert [type(key) for edit in found.edits for key in edit.path] == [
        type(key) for edit in expected for key in edit.path
    ]
    restored = client.restore(one)
    assert same(found.apply(restored).execution_state, b)
    assert same(restored.execution_state, a)  # nothing that was given is changed
    assert not client.diff(other, other)


def test_awaited(store: Store) -> None:
    async def main() -> str:
        async with Client(store.backend()) as client:
            one = await client.save("a", execution_state={"user": ADA}, session_id="s")
            other = await client.save("a", execution_state={"user": replace(ADA, name="Bob")}, session_id="s")
            return (await client.diff(one, other)).text()

    assert asyncio.run(main()) == "~ execution_state.user.name: 'Ada' → 'Bob'"


def test_a_pydantic_model_is_compared_by_its_fields(client: SyncClient) -> None:
    cart = Cart(owner="ada", items=[{"id": 1, "count": 1}], note="x")
    other = cart.model_copy(deep=True)
    other.items[0]["count"] = 2
    other.note = "y"  # type: ignore[attr-defined]  # an extra one
    one, two_ = two(client, {"cart": Cart(items=[])}, {"cart": cart})
    three = client.save("a", execution_state={"cart": other}, session_id="s")
    assert client.diff(two_, three).text().split("\n") == [
        "~ execution_state.cart.items[0].count: 1 → 2",
        "~ execution_state.cart.note: 'x' → 'y'",
    ]
    for a, b in ((one, two_), (two_, three), (three, one)):
        made = client.diff(a, b).apply(client.restore(a)).execution_state["cart"]
        wanted = client.restore(b).execution_state["cart"]
        assert same(made, wanted)
        assert made.model_fields_set == wanted.model_fields_set


def test_which_fields_were_set_is_shown_if_nothing_else_differs(client: SyncClient) -> None:
    found = client.diff(*two(client, {"cart": Cart()}, {"cart": Cart(owner="ada")}))
    assert found
    assert found.text() == "~ execution_state.cart: other fields were set"
    found = client.diff(*two(client, {"cart": Cart()}, {"cart": Cart(owner="bob")}))
    assert found.text() == "~ execution_state.cart.owner: 'ada' → 'bob'"


def test_a_state_that_is_an_object(client: SyncClient) -> None:
    one, other = two(client, ADA, replace(ADA, name="Bob"))
    found = client.diff(one, other)
    assert found.text() == "~ execution_state.name: 'Ada' → 'Bob'"
    assert found.apply(client.restore(one)).execution_state == replace(ADA, name="Bob")


def test_a_long_list_in_an_object_is_read_only_where_it_differs(client: SyncClient) -> None:
    """It is stored as a log: the rest of it is never decoded."""
    items = [{"id": number, "text": "words " * 100} for number in range(200)]
    cart, longer = Cart(items=items), Cart(items=[{"id": -1}, *items, {"id": 200}])
    one, other = two(client, {"cart": cart}, {"cart": longer})
    found = client.diff(one, other)
    assert found.edits == (
        Splice((S, "cart", Field("items")), 200, (), ({"id": 200},)),
        Splice((S, "cart", Field("items")), 0, (), ({"id": -1},)),
    )
    assert same(found.apply(client.restore(one)).execution_state["cart"], longer)


def test_objects_whose_class_is_unknown_are_compared(store: Store) -> None:
    """Only a value that is such an object needs its class."""
    saver = SyncClient(store.backend())
    one, other = two(saver, {"user": ADA}, {"user": replace(ADA, name="Bob")})
    third = saver.save("a", execution_state={"user": 1}, session_id="s")
    reader = SyncClient(store.backend(), types=TypeRegistry())
    assert reader.diff(one, other).text() == "~ execution_state.user.name: 'Ada' → 'Bob'"
    with pytest.raises(UnknownTypeError, match="diff-test-"):
        reader.diff(other, third)
    plain = SyncClient(store.backend(), types=TypeRegistry(), on_unknown_type="plain")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        [edit] = plain.diff(other, third).edits
        assert edit.was["name"] == "Bob"
        made = plain.diff(one, other).apply(plain.restore(one))
        assert made.execution_state["user"]["name"] == "Bob"
        assert made.execution_state["user"].type_name == "diff-test-Person"


def test_json_has_no_word_for_a_field(client: SyncClient) -> None:
    with pytest.raises(UnsupportedValueError, match="the field 'name' of an object"):
        client.diff(*two(client, {"user": ADA}, {"user": replace(ADA, name="Bob")})).json_patch()
