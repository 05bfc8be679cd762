"""What a contract can be declared by: a value of each kind is handed over, and comes back as the same class."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import msgspec
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict

from holdfast import SyncClient, UsageError
from holdfast.coordination.contract import Contract, Contracts
from holdfast.errors import ContractError

NOW = datetime(2026, 11, 19, 6, tzinfo=UTC)


class Color(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Point(NamedTuple):
    x: int
    y: int = 0


class Everything(BaseModel):
    text: str
    amount: Decimal
    id: uuid.UUID
    at: datetime
    on: date
    lasts: timedelta
    raw: Annotated[bytes, Field(max_length=4)]
    names: set[str]
    pair: tuple[int, str]
    numbers: tuple[int, ...]
    by_number: dict[int, str]
    color: Color
    size: Size
    point: Point
    anything: Any = None
    lang: Literal["en", "de"] = "en"


EVERYTHING = Everything(
    text="\ud800 kelp", amount=Decimal("1.10"), id=uuid.UUID(int=7), at=NOW, on=NOW.date(), lasts=timedelta(hours=1),
    raw=b"\x00\xff\xfe\xfd", names={"a"}, pair=(1, "b"), numbers=(1, 2**70), by_number={3: "c"}, color=Color.RED,
    size=Size.SMALL, point=Point(1), anything=[None, {"deep": (1, 2)}],
)  # fmt: skip


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Aliased(BaseModel):
    title: str = Field(alias="Title")
    text: str = Field(validation_alias=AliasChoices("body", "Body"))
    shown: str = Field("x", serialization_alias="Shown")


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    number: int


class Numbers(RootModel[list[int]]):
    pass


class Holder(BaseModel):
    numbers: Numbers


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Pet(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


@dataclasses.dataclass(frozen=True)
class Report:
    findings: tuple[Point, ...]
    color: Color = Color.RED
    notes: list[str] = dataclasses.field(default_factory=list)


class Draft(TypedDict):
    title: str
    text: NotRequired[str]


class Plain(msgspec.Struct):
    raw: Annotated[bytes, msgspec.Meta(max_length=4)]
    amount: Decimal
    color: Color
    at: datetime
    names: set[str] = msgspec.field(default_factory=set)


class Renamed(msgspec.Struct, rename="camel"):
    own_title: str


class Sent(msgspec.Struct, tag=True):
    number: int


class Received(msgspec.Struct, tag="got"):
    number: int


class Either(msgspec.Struct):
    one: Sent | Received


class Row(msgspec.Struct, array_like=True):
    number: int
    text: str = "x"


SOURCES = [
    (Everything, EVERYTHING),
    (Tree, Tree(value=1, children=[Tree(value=2)])),
    (Aliased, Aliased(Title="a", body="b", shown="c")),
    (Open, Open(number=1, other=[2])),
    (Numbers, Numbers([1, 2])),
    (Holder, Holder(numbers=Numbers([1]))),
    (Pet, Pet(pet=Dog(name="Rex"))),
    (Report, Report((Point(1, 2),), notes=["n"])),
    (Draft, {"title": "a"}),
    (Plain, Plain(b"\x00\xff\xfe\xfd", Decimal("1.10"), Color.RED, NOW, {"a"})),
    (Renamed, Renamed("a")),
    (Sent, Sent(1)),
    (Either, Either(Received(2))),
    (Row, Row(1)),
    ({"type": "object", "properties": {"title": {"type": "string"}}}, {"title": "a"}),
]


def declare(source: Any, version: int = 1) -> Contract[Any]:
    """Declare a contract as a program of its own would."""
    return Contracts().declare("of a source", version, source)


@pytest.mark.parametrize(("source", "value"), SOURCES, ids=lambda one: getattr(one, "__name__", ""))
def test_a_value_comes_back_as_its_class(quick: SyncClient, source: Any, value: Any):
    quick.publish("t", value, contract=declare(source))
    [message] = quick.messages("t", contract=declare(source))
    assert message.value == value
    assert type(message.value) is type(value)


@pytest.mark.parametrize(("source", "value"), SOURCES, ids=lambda one: getattr(one, "__name__", ""))
def test_what_is_stored_needs_no_class(quick: SyncClient, source: Any, value: Any):
    """The reader without the contract gets plain data, in which no class has to be registered."""
    quick.publish("t", value, contract=declare(source))
    [message] = quick.messages("t")
    assert declare(source).encode(message.value) == message.value


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        (Everything, {**EVERYTHING.model_dump(), "raw": b"12345"}),
        (Aliased, {"title": "a", "body": "b"}),
        (Report, {"findings": "none"}),
        (Draft, {"text": "without a title"}),
        (Plain, Plain(b"12345", Decimal(1), Color.RED, NOW)),
        (Renamed, {"own_title": "a"}),
        (Either, {"one": {"type": "unknown", "number": 1}}),
        (Row, [1, 2]),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_wrong_value_is_refused(source: Any, wrong: Any):
    with pytest.raises(ContractError):
        declare(source).encode(wrong)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def containing_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [nested(300), nested(100_000), containing_itself(), 10**5000], ids=lambda _: "")
def test_a_value_that_no_validator_can_take_is_refused(value: Any):
    with pytest.raises(UsageError, match="handed over"):
        declare({}).encode(value)


# -- defaults ----------------------------------------------------------------------------------------------------------

WITH_DEFAULTS = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "default": []},
        "inner": {"$ref": "#/$defs/Inner"},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/Inner"}},
        "anything": True,
    },
    "required": ["tags", "anything"],
    "$defs": {"Inner": {"type": "object", "properties": {"size": {"default": {"n": 3}}}, "required": ["size"]}},
}


def test_a_reader_of_a_schema_gets_the_defaults_at_any_depth():
    value, extra = declare(WITH_DEFAULTS).decode({"inner": {}, "rows": [{}, {"size": 1}], "anything": 0, "other": 1})
    size = {"size": {"n": 3}}
    assert value == {"tags": [], "inner": size, "rows": [size, {"size": 1}], "anything": 0}
    assert extra == {"other": 1}


def test_a_default_is_not_shared_by_values():
    made = declare(WITH_DEFAULTS)
    first, _ = made.decode({"anything": 0, "inner": {}})
    first["tags"].append("mine")
    first["inner"]["size"]["n"] = 4
    assert made.decode({"anything": 0, "inner": {}})[0] == {"tags": [], "inner": {"size": {"n": 3}}, "anything": 0}


def test_a_required_field_without_a_default_is_missed():
    with pytest.raises(ContractError, match="anything"):
        declare(WITH_DEFAULTS).decode({"tags": []})
