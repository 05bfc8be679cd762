"""What stands for an object whose type is not known: plain data with its name, stored again byte for byte as it was."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Any

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from stores import Store
from strategies import values

from holdfast import HoldfastWarning, SyncClient, TypeRegistry, UnknownTypeError, UnknownValue, UsageError
from holdfast.codec.codec import Codec
from holdfast.codec.registry import RegisteredType


class Holder:
    """Any value, as an object of a registered class."""

    def __init__(self, content: Any) -> None:
        self.content = content


class Color(Enum):
    RED = 1


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Note:
    text: str
    color: Any = None


class Model(pydantic.BaseModel):
    x: int
    _private: int = pydantic.PrivateAttr(default=3)


def registry() -> TypeRegistry:
    types = TypeRegistry()
    types.register(Holder, "holder", encode=lambda holder: holder.content, decode=Holder)
    for cls in (Color, Right, Note, Model):
        types.register(cls)
    return types


known = Codec(registry())
unknown = Codec(TypeRegistry(), on_unknown_type="plain")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values())
def test_saved_again_it_is_stored_byte_for_byte_as_it_was(value: Any) -> None:
    encoded = known.encode([Holder(value), {"deep": (Holder([Holder(value)]),)}])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        plain = unknown.decode(encoded)
    assert isinstance(plain[0], UnknownValue)
    assert plain[0].type_name == "holder"
    assert unknown.encode(plain) == encoded
    assert unknown._encode_exactly(plain, "") == encoded
    assert Codec(TypeRegistry()).encode(plain) == encoded


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Note("a", Color.RED), {"text": "a", "color": "RED"}),
        (Color.RED, "RED"),
        (Model(x=1), {"x": 1}),
        (Holder([1]), [1]),
    ],
)
def test_it_is_used_as_the_plain_data_that_it_is(value: Any, plain: Any) -> None:
    with pytest.warns(HoldfastWarning):
        found = unknown.decode(known.encode(value))
    assert found == plain
    assert found.plain == plain
    assert type(found.plain) is type(plain)
    assert isinstance(found, type(plain))
    assert known.encode(known.decode(unknown.encode(found))) == known.encode(value)


def test_other_data_is_held() -> None:
    with pytest.warns(HoldfastWarning):
        found = unknown.decode(known.encode([Right.READ | Right.WRITE, Holder(None), Holder((1,))]))
    assert [one.plain for one in found] == [3, None, (1,)]


def test_objects_of_several_types_stay_apart_as_keys_and_members() -> None:
    types = registry()

    class Shade(Enum):
        RED = 1

    types.register(Shade, "shade")
    codec = Codec(types)
    encoded = codec.encode({Color.RED: 1, Shade.RED: {Color.RED, Shade.RED}})
    with pytest.warns(HoldfastWarning):
        found = unknown.decode(encoded)
    assert len(found) == 2
    assert unknown.encode(found) == encoded


def test_the_warning_names_the_path_in_sets_keys_and_metadata(memory_store: Store) -> None:
    with pytest.warns(HoldfastWarning, match=r"^value\.a<member> came back"):
        unknown.decode(known.encode({"a": {Color.RED}}))
    with pytest.warns(HoldfastWarning, match=r"^value\.b<key> came back"):
        unknown.decode(known.encode({"b": {Color.RED: 1}}))
    memory_store.client(types=registry()).save("a", session_id="s", note=Color.RED)
    plain = memory_store.client(types=TypeRegistry(), on_unknown_type="plain")
    with pytest.warns(HoldfastWarning, match=r"^metadata\.note came back"):
        plain.restore("s")


def test_what_a_failing_decode_took_out_of_its_argument_is_still_there() -> None:
    def fail(parts: Any) -> Any:
        parts.clear()
        raise ValueError

    types = TypeRegistry()
    types.register(Holder, "holder", encode=lambda holder: holder.content, decode=fail)
    failing = Codec(types, on_unknown_type="plain")
    for content in ({"a": 1, "": 2}, [1, 2]):
        encoded = known.encode(Holder(content))
        with pytest.warns(HoldfastWarning, match="value came back"):
            found = failing.decode(encoded)
        assert failing.encode(found) == encoded


def test_a_name_that_can_not_have_been_registered_is_no_name() -> None:
    for name in ("", "a\nb", "x" * 201):
        entry = RegisteredType(Holder, name, known.types.by_name["holder"])
        types = TypeRegistry()
        types.by_class[Holder] = entry
        with pytest.raises(UnknownTypeError):
            unknown.decode(Codec(types).encode(Holder(1)))


def test_a_client_raises_unless_it_was_asked_for_plain_data(store: Store) -> None:
    types = registry()
    state = {"note": Note("a"), "log": [Note("x" * 500) for _ in range(40)]}
    saved = store.client(types=types).save(agent_id="a", session_id="s", execution_state=state)
    with pytest.raises(UnknownTypeError, match="'Note'"):
        store.client(types=TypeRegistry()).restore(saved)
    client = store.client(types=TypeRegistry(), on_unknown_type="plain")
    with pytest.warns(HoldfastWarning) as caught:
        restored = client.restore(saved).execution_state
    told = [str(one.message).partition(" came back")[0] for one in caught]
    assert {"execution_state.note", "execution_state.log[0]"} <= set(told)
    assert restored["note"] == {"text": "a", "color": None}
    again = client.save(agent_id="a", session_id="s", execution_state=restored)
    assert store.client(types=types).restore(again).execution_state == state


def test_an_async_client_does_the_same(store: Store) -> None:
    saved = store.client(types=registry()).save(agent_id="a", execution_state={"note": Note("a")})

    async def restored(**options: Any) -> Any:
        return (await store.async_client(types=TypeRegistry(), **options).restore(saved)).execution_state

    with pytest.raises(UnknownTypeError, match="'Note'"):
        asyncio.run(restored())
    with pytest.warns(HoldfastWarning, match=r"execution_state\.note came back"):
        assert asyncio.run(restored(on_unknown_type="plain")) == {"note": {"text": "a", "color": None}}


def test_another_word_than_the_two_is_refused() -> None:
    with pytest.raises(UsageError, match="'raise' or 'plain'"):
        SyncClient.memory(on_unknown_type="ignore")
