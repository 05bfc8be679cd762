"""Registered classes of every kind: kept exactly, found by name only, and clear when they have changed."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import typing
from pathlib import PurePosixPath

import attrs
import pydantic
import pydantic.dataclasses
import pytest

from holdfast.codec import registry as codec_types
from holdfast.codec.codec import Codec, Ref, TypedObject
from holdfast.codec.registry import TypeRegistry
from holdfast.codec.unknown_types import UnknownStr
from holdfast.errors import CorruptError, UnknownTypeError, UnsupportedValueError, UsageError

T = typing.TypeVar("T")


@dataclasses.dataclass
class Plain:
    x: int
    tags: list = dataclasses.field(default_factory=list)
    made: str = dataclasses.field(init=False, default="no")

    def __post_init__(self):
        self.made = "by init"

    @functools.cached_property
    def double(self):
        return self.x * 2


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    x: int
    y: tuple = ()


@dataclasses.dataclass
class Generic(typing.Generic[T]):
    x: T


@attrs.define
class Attrs:
    x: int
    _private: str = "p"
    made: list = attrs.Factory(lambda self: [self.x], takes_self=True)


@attrs.frozen(slots=False, cache_hash=True)
class AttrsFrozen:
    x: int


@attrs.frozen(cache_hash=True)
class AttrsFrozenSlots:
    x: int


class Inner(pydantic.BaseModel):
    n: int = 1


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str
    inner: Inner = Inner()
    items: list[Inner] = []
    _secret: int = pydantic.PrivateAttr(default=3)
    _unset: int = pydantic.PrivateAttr()


class FrozenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    n: int = 1


class Root(pydantic.RootModel[list[int]]):
    pass


class RootWithPrivate(pydantic.RootModel[list[int]]):
    _seen: int = 5


@pydantic.dataclasses.dataclass
class PydanticData:
    x: int


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 - an alias
    GREEN = "g"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


class Perm(enum.Flag):
    R = 1
    W = 2
    RW = 3


class Conforming(enum.Flag, boundary=enum.CONFORM):
    R = 1


class Ejecting(enum.Flag, boundary=enum.EJECT):
    R = 1


class IntPerm(enum.IntFlag):
    R = 1
    W = 2


class Point(typing.NamedTuple):
    x: int
    y: int = 0


Old = collections.namedtuple("Old", "a b")  # noqa: PYI024 - the untyped kind is what is tested


class Custom:
    def __init__(self, data):
        self.data = data

    def __eq__(self, other):
        return type(other) is Custom and other.data == self.data

    def __hash__(self):
        return hash(self.data)

    def __repr__(self):
        return f"Custom({self.data!r})"


ALL = [
    Plain, FrozenSlots, Generic, Attrs, AttrsFrozen, AttrsFrozenSlots, Inner, Model, FrozenModel, Root, RootWithPrivate,
    PydanticData,
    Color, Level, Word, Perm, Conforming, Ejecting, IntPerm, Point, Old,
]  # fmt: skip


@pytest.fixture
def codec():
    registry = TypeRegistry()
    for cls in ALL:
        registry.register(cls)
    registry.register(Custom, encode=lambda c: c.data, decode=Custom)
    return Codec(registry)


def model(**more):
    made = Model(name="m", items=[Inner(n=2), Inner()], **more)
    made._secret = 9
    return made


OBJECTS = [
    Plain(1, ["a", ("b",)]),
    FrozenSlots(2, (1, b"")),
    Generic[int](5),
    Attrs(1),
    AttrsFrozen(3),
    AttrsFrozenSlots(3),
    Inner(),
    Inner(n=4),
    model(),
    model(extra=1, other=[Inner()]),
    FrozenModel(),
    Root([1, 2]),
    RootWithPrivate([1]),
    PydanticData(1),
    Color.RED,
    Color.CRIMSON,
    Color.GREEN,
    Level.LOW,
    Word.A,
    Perm.R,
    Perm.RW,
    Perm(0),
    IntPerm.R | IntPerm.W,
    IntPerm(8),
    Point(1),
    Old(1, "\ud800"),
    Custom((1, 2)),
    Custom(Point(1, 2)),
]


@pytest.mark.parametrize("value", OBJECTS, ids=repr)
def test_objects_come_back(codec, value):
    for wrapped in (value, [value], {"a": (value,)}, {"\ud800": value}, {1: {"b": [value]}}):
        data = codec.encode(wrapped)
        back = codec.decode(data)
        assert back == wrapped
        assert codec.encode(back) == data
        assert codec._encode_exactly(wrapped, "") == data
    assert type(codec.decode(codec.encode(value))) is type(value)
    assert codec.encode_joined([value, 1]) == b"".join(codec.encode_each([value, 1]))
    if isinstance(value, enum.Enum) and value.name is not None and "|" not in value.name:
        assert codec.decode(codec.encode(value)) is value


@pytest.mark.parametrize(
    "value", [v for v in OBJECTS if type(v).__hash__ and not isinstance(v, pydantic.RootModel)], ids=repr
)
def test_objects_can_be_keys(codec, value):
    assert codec.decode(codec.encode({value: 1, "a": {value}})) == {value: 1, "a": {value}}


@pytest.mark.parametrize("value", OBJECTS, ids=repr)
def test_an_object_taken_apart_has_the_same_bytes(codec, value):
    apart = codec.take_apart(value)
    assert isinstance(apart, TypedObject)
    assert apart.name == type(value).__qualname__
    assert codec.encode({"a": apart}, parts=True) == codec.encode({"a": value})
    assert codec.take_apart([value]) is None


def test_parts_may_be_replaced_by_refs(codec):
    apart = codec.take_apart(Plain(1, ["long"]))
    apart.fields["tags"] = Ref(0, 5)
    back = codec.decode(codec.encode(apart, parts=True), lambda kind, index: ["long", kind, index])
    assert back == Plain(1, ["long", 0, 5])


def test_init_is_not_run_and_all_is_kept(codec):
    value = Plain(1)
    value.made = "later"
    assert value.double == 2
    back = codec.decode(codec.encode(value))
    assert back.made == "later"
    assert "double" not in vars(back)
    assert back.double == 2


def test_pydantic_keeps_what_was_set_extra_and_private(codec):
    back = codec.decode(codec.encode(model(extra=[1])))
    assert back.model_fields_set == {"name", "items", "extra"}
    assert back.model_extra == {"extra": [1]}
    assert back._secret == 9
    assert not hasattr(back, "_unset")
    assert codec.decode(codec.encode(Inner())).model_fields_set == set()
    assert back.model_dump() == model(extra=[1]).model_dump()
    back.name = "still works"
    assert back.model_copy(deep=True) == back


def test_attributes_that_are_no_fields_are_refused(codec):
    plain = Plain(1)
    plain.other = 1
    with pytest.raises(UnsupportedValueError, match="'other' is no field") as caught:
        codec.encode({"a": plain})
    assert caught.value.path == "a"
    with pytest.raises(UnsupportedValueError, match="no field"):
        codec.take_apart(plain, "state")
    unset = object.__new__(FrozenSlots)
    with pytest.raises(UnsupportedValueError, match="can't be read"):
        codec.encode(unset)
    with pytest.raises(UnsupportedValueError, match="never set"):
        codec.encode(Model.model_construct())


def test_the_path_leads_into_objects(codec):
    with pytest.raises(UnsupportedValueError) as caught:
        codec.encode({"plan": Plain(1, ["a", len])}, "execution_state")
    assert caught.value.path == "execution_state.plan.tags[1]"


def test_subclasses_are_not_covered_by_their_parents(codec):
    class Sub(Plain):
        pass

    with pytest.raises(UnsupportedValueError, match="register"):
        codec.encode(Sub(1))


def test_unknown_names_are_told(codec):
    data = codec.encode([Point(1)])
    with pytest.raises(UnknownTypeError, match=r"'Point'.*holdfast.register"):
        Codec(TypeRegistry()).decode(data)


def stored(name, parts):
    return Codec(TypeRegistry()).encode(TypedObject(name, parts), parts=True)


def test_new_fields_take_their_defaults(codec):
    assert codec.decode(stored("Plain", {"x": 1})).tags == []
    assert codec.decode(stored("Point", {"x": 1})) == Point(1, 0)
    back = codec.decode(stored("Attrs", {"x": 1}))
    assert (back._private, back.made) == ("p", [1])
    back = codec.decode(stored("Model", {"name": "a", "": [["name"], None, None]}))
    assert (back.inner, back.items, back._secret, back.model_extra) == (Inner(), [], 3, {})


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Plain", {}),
        ("Plain", {"x": 1, "gone": 2}),
        ("Plain", [1]),
        ("Plain", {("x",): 1}),
        ("Attrs", {"gone": 1}),
        ("Attrs", {}),
        ("Point", {}),
        ("Point", {"x": 1, "z": 1}),
        ("Point", 3),
        ("Model", {"name": "a"}),
        ("Model", {"": [[], None, None]}),
        ("Model", {"name": "a", "": [[], None, {"_gone": 1}]}),
        ("Model", {"name": "a", "": [[[]], None, None]}),
        ("Inner", {"n": 1, "": [[], {"extra": 1}, None]}),
        ("Inner", {"n": 1, "": [[], 3, None]}),
        ("Color", "BLUE"),
        ("Color", 1),
        ("Perm", 1 << 5000),
        ("Perm", 64),
        ("Perm", None),
        ("Conforming", 3),  # by itself it would be Conforming.R
        ("Ejecting", 3),  # and this one 3
    ],
    ids=repr,
)
def test_changed_classes_are_told(codec, name, parts):
    with pytest.raises(UnknownTypeError, match=f"'{name}' has changed"):
        codec.decode(stored(name, parts))


def test_failing_functions_are_told():
    registry = TypeRegistry()

    def fail(_value):
        raise ZeroDivisionError("oops")

    registry.register(Custom, "custom", encode=fail, decode=fail)
    own = Codec(registry)
    with pytest.raises(UnsupportedValueError, match="oops") as caught:
        own.encode({"a": [Custom(1)]})
    assert caught.value.path == "a[0]"
    with pytest.raises(UnknownTypeError, match="oops"):
        own.decode(stored("custom", 1))


def test_registering():
    registry = TypeRegistry()

    @registry.register
    @dataclasses.dataclass
    class A:
        x: int = 0

    @registry.register(name="bee")
    @dataclasses.dataclass
    class B:
        x: int = 0

    assert registry.register(A) is A
    assert registry.register(B, "bee") is B
    assert set(registry.by_name) == {A.__qualname__, "bee"}
    assert codec_types.register.__self__ is codec_types.default_types
    assert Codec().types is codec_types.default_types

    class NoFields:
        pass

    @dataclasses.dataclass
    class Text(str):  # noqa: SLOT000 - a class that nobody should write
        x: int = 0

    for wrong in (
        lambda: registry.register(Plain, "bee"),
        lambda: registry.register(A, "another"),
        lambda: registry.register(NoFields),
        lambda: registry.register(NoFields, encode=repr),
        lambda: registry.register(Text),
        lambda: registry.register("name"),
        lambda: registry.register(int, encode=repr, decode=int),
        lambda: registry.register(memoryview, encode=bytes, decode=memoryview),
        lambda: registry.register(Ref),
        lambda: registry.register(PurePosixPath, encode=str, decode=PurePosixPath),
        lambda: registry.register(UnknownStr, encode=str, decode=str),
        lambda: registry.register(Plain, ""),
        lambda: registry.register(Plain, "\ud800"),
        lambda: registry.register(Plain, "x" * 201),
    ):
        with pytest.raises(UsageError):
            wrong()
    assert set(registry.by_name) == {A.__qualname__, "bee"}


def test_an_object_without_a_proper_name_is_corrupt(codec):
    for payload in ("90", "91a141", "9201c0", "93a141c0c0", "a141", "c0"):
        raw = bytes.fromhex(payload)
        with pytest.raises(CorruptError):
            codec.decode(b"\xc7" + bytes([len(raw), 17]) + raw)


class Leaf(pydantic.BaseModel):
    x: int = 1


class Kind(enum.Enum):
    A = 1


class Branch(pydantic.BaseModel):
    leaves: dict[str, list[Leaf] | None] = {}
    kind: typing.Annotated[Kind, "of branch"] = Kind.A


@dataclasses.dataclass
class Tree:
    branches: list[Branch]
    parent: Tree | None = None


def test_registering_a_model_takes_the_models_nested_in_it_along():
    registry = TypeRegistry()
    registry.register(Tree, "tree")
    codec = Codec(registry)
    value = Tree([Branch(leaves={"a": [Leaf(x=2)]})], Tree([]))
    assert codec.decode(codec.encode(value)) == value
    assert set(registry.by_name) == {"tree", "Branch", "Leaf", "Kind"}


def test_a_decorated_class_that_refers_to_itself_takes_others_along():
    registry = TypeRegistry()

    @registry.register
    @dataclasses.dataclass
    class Node:
        leaf: Leaf
        next: Node | None = None

    assert Leaf in registry.by_class
    assert Node in registry.by_class


def test_what_was_taken_along_may_be_registered_otherwise():
    registry = TypeRegistry()
    registry.register(Branch)
    assert registry.register(Leaf, "leaf-2") is Leaf
    assert set(registry.by_name) == {"Branch", "Kind", "leaf-2"}
    registry.register(Tree, "Kind")  # the name of one that was taken along
    assert registry.by_name["Kind"].cls is Tree
    with pytest.raises(UsageError, match="already registered"):
        registry.register(Leaf, "leaf-3")
    again = TypeRegistry()
    again.register(Leaf, "leaf-1")
    again.register(Branch)
    assert again.by_class[Leaf].name == "leaf-1"
    again.register(Kind)  # as it is: nothing changes
    assert again.by_class[Kind].name == "Kind"
    last = TypeRegistry()
    last.register(Branch)
    last.register(Leaf, encode=lambda leaf: [leaf.x], decode=lambda parts: Leaf(x=parts[0] + 1))
    assert Codec(last).decode(Codec(last).encode(Leaf(x=1))) == Leaf(x=2)
