"""Where the saver differs from LangGraph's own, as docs/moving-in.md says: each difference beside
the official saver."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pytest
from langchain_core.prompts import ChatPromptTemplate
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph_savers import config, put, saver_on, values_of
from pydantic import SecretStr
from stores import Store

from holdfast import UnsupportedValueError, UsageError
from holdfast.langgraph import HoldfastSaver


class Labelled(str):  # noqa: SLOT000 - what it has of its own is the point
    """A text with something of its own."""

    label = ""

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.label = "mine"
        return made


@dataclass
class Noted:
    """A dataclass that sets an attribute which is no field."""

    text: str

    def __post_init__(self) -> None:
        self.note = "mine"


@pytest.fixture
def official() -> Iterator[BaseCheckpointSaver[Any]]:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    yield SqliteSaver(connection)
    connection.close()


def kept(saver: BaseCheckpointSaver[Any], value: Any) -> Any:
    put(saver, config(), x=value)
    return values_of(saver, config())["x"]


@pytest.mark.parametrize(
    ("value", "officially"),
    [
        ((1, 2), [1, 2]),
        (bytearray(b"x"), b"x"),
        (deque([1], maxlen=2), deque([1])),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aa"), {"a": 2}),
        ("a\ud800", "a?"),
    ],
    ids=repr,
)
def test_types_that_only_ours_keeps(
    store: Store, official: BaseCheckpointSaver[Any], value: Any, officially: Any
) -> None:
    ours, theirs = kept(saver_on(store), value), kept(official, value)
    assert (ours, type(ours)) == (value, type(value))
    assert getattr(ours, "maxlen", None) == getattr(value, "maxlen", None)
    assert (theirs, type(theirs)) == (officially, type(officially))


@pytest.mark.parametrize("value", [2**70, np.float64(1.5), 1j], ids=repr)
def test_values_that_only_ours_takes(store: Store, official: BaseCheckpointSaver[Any], value: Any) -> None:
    assert kept(saver_on(store), value) == value
    with pytest.raises(TypeError):
        kept(official, value)


@pytest.mark.parametrize(
    ("value", "officially"),
    [
        pytest.param(Labelled("a"), lambda loaded: type(loaded) is str, id="a text that lost its label"),
        pytest.param(np.array([{}], dtype=object), lambda loaded: loaded is None, id="an array that is lost"),
        pytest.param(np.zeros(1, "i4,f8"), lambda loaded: loaded.dtype.names is None, id="an array that lost fields"),
        pytest.param(Noted("a"), lambda loaded: loaded.note == "mine", id="an attribute that is no field"),
        pytest.param(
            ChatPromptTemplate.from_messages([("user", "{a}")]),
            lambda loaded: loaded.input_variables == ["a"],
            id="an object that holds a class",
        ),
    ],
)
def test_values_that_only_ours_refuses(
    store: Store, official: BaseCheckpointSaver[Any], value: Any, officially: Callable[[Any], bool]
) -> None:
    with pytest.raises(UnsupportedValueError, match=r"channel_values\.x"):
        kept(saver_on(store), value)
    assert officially(kept(official, value))


def test_a_secret_that_only_ours_leaves_out(store: Store, official: BaseCheckpointSaver[Any]) -> None:
    assert repr(kept(saver_on(store), SecretStr("hush"))) == "<redacted SecretStr>"
    assert kept(official, SecretStr("hush")).get_secret_value() == "hush"


def test_serializers_of_the_documentation_are_refused(tmp_path: Any) -> None:
    for serde in (JsonPlusSerializer(pickle_fallback=True), EncryptedSerializer(Any)):
        with pytest.raises(UsageError, match="takes no serializer"):
            HoldfastSaver(sqlite3.connect(tmp_path / "checkpoint.db"), serde=serde)
        with pytest.raises(UsageError, match="takes no serializer"):
            HoldfastSaver.from_conn_string(str(tmp_path / "checkpoint.db"), serde=serde)


METADATA = {"source": "loop", "step": 1, "pair": (1, (2, 3)), "nested": {"x": (1,)}, "dotted.key": 1}


def test_filters_take_keys_as_they_are_and_tuples_as_lists(store: Store, official: BaseCheckpointSaver[Any]) -> None:
    saver = saver_on(store)
    for one in (saver, official):
        put(one, config(), METADATA, x=1)

    def listed(one: BaseCheckpointSaver[Any], wanted: dict[str, Any]) -> list[int]:
        async def awaited() -> int:
            return len([found async for found in one.alist(config(), filter=wanted)])

        counted = len([*one.list(config(), filter=wanted)])
        return [counted] if one is official else [counted, asyncio.run(awaited())]

    for wanted in ({"pair": [1, [2, 3]]}, {"nested": {"x": [1]}}):
        assert listed(saver, wanted) == [1, 1]
        assert listed(official, wanted) == [1]
    for wanted in ({"pair": (1, (2, 3))}, {"dotted.key": 1}):
        assert listed(saver, wanted) == [1, 1]
        assert listed(official, wanted) == [0]
    for wanted in ({"pair": [1, [2]]}, {"pair": [1, [2, 4]]}, {"nested": {"x": [1], "y": 1}}, {"pair": "1"}):
        assert listed(saver, wanted) == [0, 0]
        assert listed(official, wanted) == [0]
    assert listed(saver, {"nested.x": [1]}) == [0, 0]
    assert saver.get_tuple(config()).metadata["pair"] == (1, (2, 3))


def test_a_config_without_an_id_as_before_leaves_nothing_out(store: Store, official: BaseCheckpointSaver[Any]) -> None:
    for saver, count in ((saver_on(store), 1), (official, 0)):
        put(saver, config(), x=1)
        assert len([*saver.list(config(), before=config())]) == count


def test_a_deleted_threads_bytes_go_with_gc(store: Store) -> None:
    saver = saver_on(store)
    put(saver, config(), x="a long text " * 1000)
    saver.delete_thread("t")
    assert saver.get_tuple(config()) is None
    collected = store.client().gc()
    assert (collected.records, collected.blobs) == (1, 1)
