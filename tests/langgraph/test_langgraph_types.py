"""Which objects come back as they were, which are refused, and that stored bytes never make anything run."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import ipaddress
import re
import sys
import warnings
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import langgraph_models as models
import ormsgpack
import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Send
from langgraph_savers import config, put, saver_on, values_of
from pydantic import BaseModel, SecretStr
from stores import Recorder, Store, python

import holdfast
from holdfast import SyncClient, UnknownTypeError, UnsupportedValueError, UsageError
from holdfast.adapters.langgraph import row_keys
from holdfast.adapters.langgraph.row_keys import ThreadNamespace
from holdfast.backends.port import STORE, Commit, RowKey, RowWrite
from holdfast.codec import ext_codes
from holdfast.format import frame
from holdfast.format.rows import head as rows
from holdfast.langgraph import HoldfastSaver
from holdfast.redaction import by_path
from holdfast.testing.store_dump import dump

KEPT = [
    HumanMessage("hello", id="1", name="me", additional_kwargs={"a": [1]}),
    AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c"}], response_metadata={"m": {"n": 2.5}}),
    ToolMessage("done", tool_call_id="c", artifact={"rows": (1, 2)}),
    SystemMessage([{"type": "text", "text": "be brief"}]),
    RemoveMessage(id="1"),
    Document("text", metadata={"page": 3}),
    Send("node", {"messages": [HumanMessage("x")]}),
    Send("node", 1, timeout=2.5),
    Interrupt(value={"question": "?"}, id="i"),
    Command(update={"a": 1}, goto="b"),
    _DeltaSnapshot([HumanMessage("x")]),
    models.Mood.GLAD,
    models.Note("n", ["t"]),
    models.Plan(goal="g", steps=[models.Note("n")]),
    models.Point(1, 2),
    collections.deque([1, 2], maxlen=3),
    collections.OrderedDict(b=1, a=2),
    collections.Counter("aab"),
    collections.defaultdict(list, a=[1]),
    memoryview(b"x"),
    ipaddress.ip_address("10.0.0.1"),
    ipaddress.ip_network("2001:db8::/32"),
    re.compile("a+", re.IGNORECASE),
    zoneinfo.ZoneInfo("Europe/Berlin"),
    dt.UTC,
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    {1: "a", (2, 3): {"s"}},
    frozenset({1}),
    Path("a/b"),
    bytearray(b"x"),
]


@pytest.mark.parametrize("value", KEPT, ids=lambda value: type(value).__name__)
def test_values_come_back_as_they_were(memory_store: Store, value: Any) -> None:
    put(saver_on(memory_store), config(), top=value, inside=[{"deep": value}])
    where = saver_on(memory_store).get_tuple(config())
    assert where is not None
    top, [inside] = where.checkpoint["channel_values"]["top"], where.checkpoint["channel_values"]["inside"]
    for found in (top, inside["deep"]):
        assert type(found) is type(value)
        assert repr(found) == repr(value) or isinstance(value, memoryview)
        assert found == value


@pytest.mark.slow
def test_arrays_and_timestamps_are_kept(store: Store) -> None:
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    array = np.arange(5000.0).reshape(50, 100)
    saver = saver_on(store)
    put(saver, config(), array=array, score=np.float32(0.5), at=pd.Timestamp("2026-01-01", tz="UTC"))
    found = values_of(saver_on(store), config())
    assert (found["array"] == array).all()
    assert found["array"].dtype == array.dtype
    assert type(found["score"]) is np.float32
    assert found["at"] == pd.Timestamp("2026-01-01", tz="UTC")


def test_a_defaultdict_with_a_factory_of_its_own_comes_back_without_it(memory_store: Store) -> None:
    put(saver_on(memory_store), config(), v=collections.defaultdict(lambda: 1, a=2))
    found = values_of(saver_on(memory_store), config())["v"]
    assert found == {"a": 2}
    with pytest.raises(KeyError):
        found["b"]


def test_a_secret_is_left_out_and_never_told(memory_store: Store) -> None:
    class Login(BaseModel):
        password: SecretStr

    with pytest.warns(holdfast.HoldfastWarning):
        put(
            saver_on(memory_store),
            config(),
            v=SecretStr("hush"),
            deep={"x": [SecretStr("hush")]},
            m=Login(password="hush"),
        )
    found = values_of(saver_on(memory_store), config())
    for secret in (found["v"], found["deep"]["x"][0], found["m"]["password"]):
        assert isinstance(secret, SecretStr)
        assert repr(secret) == "<redacted SecretStr>"
    dumped = dump(memory_store.backend(), ["state", "lg", "head"])
    assert b"hush" not in b"".join(record.data for record in dumped.records.values())


def test_rules_apply_to_channels_metadata_and_pending_writes(store: Store) -> None:
    recorded = Recorder(store.backend())
    saver = HoldfastSaver(SyncClient(recorded, redact=by_path("**.api_key", "**.x-token")))
    message = HumanMessage("hi", additional_kwargs={"api_key": "canary-7f3a"})
    at = put(saver, config(), {"source": "loop", "step": 1, "x-token": "canary-7f3a"}, messages=[message] * 12)
    saver.put_writes(at, [("api_key", "canary-7f3a"), ("plain", {"api_key": "canary-7f3a"})], "task")
    found = saver.get_tuple(at)
    assert [repr(value) for _, _, value in found.pending_writes] == ["<redacted str>", "{'api_key': <redacted str>}"]
    [*messages] = found.checkpoint["channel_values"]["messages"]
    assert (messages[11].content, repr(messages[11].additional_kwargs["api_key"])) == ("hi", "<redacted str>")
    assert repr(found.metadata["x-token"]) == "<redacted str>"
    assert message.additional_kwargs == {"api_key": "canary-7f3a"}
    assert "canary" not in repr(recorded.commits)


def test_without_rules_a_secret_is_refused_by_name_and_never_told(memory_store: Store) -> None:
    class Login(BaseModel):
        password: SecretStr

    saver = HoldfastSaver(memory_store.async_client(redact=False))
    for value in (SecretStr("hush"), {"deep": [SecretStr("hush")]}):
        with pytest.raises(
            UnsupportedValueError, match=r"SecretStr is a secret, and is never stored in clear"
        ) as refused:
            put(saver, config(), v=value)
        assert "hush" not in str(refused.value)
    with (
        pytest.warns(holdfast.HoldfastWarning),
        pytest.raises(UnsupportedValueError, match=r"password.*never stored in clear"),
    ):
        put(saver, config(), v=Login(password="hush"))


def test_messages_in_a_long_channel_are_split_and_typed(store: Store) -> None:
    messages = [kind("x" * 600, id=str(number)) for number in range(10) for kind in (HumanMessage, AIMessage)]
    saver = saver_on(store)
    where = put(saver, config(), messages=messages[:18])
    put(saver, where, messages=messages)
    found = values_of(saver_on(store), config())["messages"]
    assert found == messages
    assert list(map(type, found)) == list(map(type, messages))
    head = store.client().timeline(session_id="lg/t")[0]
    assert head.step_name == "loop 1"


MESSAGES = [
    HumanMessage("x"),
    HumanMessage("x", example=True, additional_kwargs={}),
    HumanMessage("x", own_field={"a": (1,)}),
    AIMessage("", id="", name=""),
    AIMessage("x", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    AIMessage("x", invalid_tool_calls=[{"name": "f", "args": "{", "id": "1", "error": "bad"}]),
    AIMessageChunk("x", chunk_position="last", tool_call_chunks=[{"name": "f", "args": "", "id": "1", "index": 0}]),
    ToolMessage("x", tool_call_id="", status="error", artifact=[]),
    ToolMessage([], tool_call_id="1", artifact=b"bytes"),
    ChatMessage("x", role="other"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_all_that_a_message_has_comes_back(memory_store: Store, message: Any) -> None:
    put(saver_on(memory_store), config(), messages=[message] * 2)
    first, second = values_of(saver_on(memory_store), config())["messages"]
    assert type(first) is type(message)
    assert first == message
    assert first.__dict__ == message.__dict__
    assert first.__pydantic_fields_set__ == message.__pydantic_fields_set__
    assert first.__pydantic_extra__ == message.__pydantic_extra__
    assert first.model_dump_json() == message.model_dump_json()
    first.additional_kwargs["changed"] = True
    assert second == message  # nothing is shared between two messages


def test_an_attribute_that_is_no_field_of_a_message_is_refused(memory_store: Store) -> None:
    message = HumanMessage("x")
    message.__dict__["smuggled"] = 1
    with pytest.raises(UnsupportedValueError, match="smuggled"):
        put(saver_on(memory_store), config(), messages=[message])


def test_of_an_error_the_text_is_kept_as_langgraph_does(memory_store: Store) -> None:
    saver = saver_on(memory_store)
    where = put(saver, config(), x=1)
    saver.put_writes(where, [("__error__", ValueError("why"))], "task")
    found = saver.get_tuple(where)
    assert found is not None
    assert found.pending_writes == [("task", "__error__", "ValueError('why')")]


def test_what_can_not_be_given_back_is_refused_with_the_line_to_add(memory_store: Store) -> None:
    @dataclass
    class Local:
        x: int

    saver = saver_on(memory_store)
    with pytest.raises(UnsupportedValueError, match=r"holdfast\.register\(Opaque, encode=\.\.\., decode=\.\.\.\)"):
        put(saver, config(), v=models.Opaque())
    with pytest.raises(UnsupportedValueError, match="Functions are code"):
        put(saver, config(), v=print)
    assert list(saver.list(None)) == []
    put(saver_on(memory_store, allow=[Local]), config(), v=[Local(1)])
    assert values_of(saver_on(memory_store, allow=[Local]), config()) == {"v": [Local(1)]}
    with pytest.raises(UnknownTypeError, match="allow="):
        values_of(saver_on(memory_store, on_unknown_type="raise"), config())
    with pytest.raises(UsageError, match="takes classes"):
        saver_on(memory_store, allow=["Local"])


def test_what_was_registered_with_holdfast_is_kept(memory_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Custom(models.Opaque):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Custom)

        __hash__ = None

    types = holdfast.TypeRegistry()
    types.register(Custom, "my-custom", encode=lambda _: None, decode=lambda _: Custom())
    monkeypatch.setattr("holdfast.adapters.langgraph.allowed_types.default_types", types)
    put(saver_on(memory_store), config(), v=Custom())
    assert values_of(saver_on(memory_store), config()) == {"v": Custom()}


def test_what_is_taken_along_by_register_is_stored_under_the_same_name_as_without(
    memory_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = holdfast.TypeRegistry()
    types.register(models.Plan, "plan")
    assert models.Note in types.by_class
    codec = saver_on(memory_store)._threads.ctx.codec
    before = codec.encode(models.Note("n"))
    monkeypatch.setattr("holdfast.adapters.langgraph.allowed_types.default_types", types)
    codec = saver_on(memory_store)._threads.ctx.codec
    assert codec.encode(models.Note("n")) == before
    assert codec.decode(before) == models.Note("n")


def test_allow_takes_local_classes_along(memory_store: Store) -> None:
    class Inner(BaseModel):
        x: int

    class Outer(BaseModel):
        inner: list[Inner]
        note: models.Note

    Outer.model_rebuild()
    saver = saver_on(memory_store, allow=[Outer])
    value = Outer(inner=[Inner(x=1)], note=models.Note("n"))
    put(saver, config(), v=value)
    assert values_of(saver, config()) == {"v": value}


@pytest.mark.slow
def test_a_class_that_is_not_imported_here_is_named_and_not_imported(disk_store: Store) -> None:
    put(saver_on(disk_store), config(), v=models.Note("n"))
    said = python(
        f"""
        import sys
        from holdfast import SyncClient, UnknownTypeError
        from holdfast.langgraph import HoldfastSaver
        saver = HoldfastSaver.from_url({disk_store.url!r}, on_unknown_type="raise")
        try:
            saver.get_tuple({{"configurable": {{"thread_id": "t"}}}})
        except UnknownTypeError as error:
            print("langgraph_models:Note" in str(error), "langgraph_models" in sys.modules)
        """
    )
    assert said.stdout.split() == ["True", "False"]


class Reversed:
    """A serializer of the program."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "reversed", repr(obj).encode()[::-1]

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return data[1][::-1].decode()


def test_a_serializer_is_refused_in_words_and_not_ignored(tmp_path: Path, memory_store: Store) -> None:
    saver = saver_on(memory_store)
    told = "takes no serializer, and was given a "
    with pytest.raises(UsageError, match=told + "EncryptedSerializer"):
        saver.serde = EncryptedSerializer(Any)
    with pytest.raises(UsageError, match=told + "Reversed"):
        saver.with_allowlist([]).serde = Reversed()
    with pytest.raises(UsageError, match=told + "Reversed"):
        saver_on(memory_store, serde=Reversed())
    for make in (
        lambda **options: HoldfastSaver.from_sqlite(tmp_path / "a.db", **options),
        lambda **options: HoldfastSaver.from_files(tmp_path / "a", **options),
        lambda **options: HoldfastSaver.from_url(f"sqlite:///{tmp_path}/b.db", **options),
        lambda **options: HoldfastSaver.from_postgres("postgresql://nowhere.invalid/x", **options),
        lambda **options: HoldfastSaver.from_redis("redis://nowhere.invalid", **options),
        HoldfastSaver.memory,
    ):
        with pytest.raises(UsageError, match=told + "Reversed"):
            make(serde=Reversed())
    assert list(tmp_path.iterdir()) == []  # refused before a store was made
    assert saver.serde is saver.serde
    saver.serde = saver.serde
    HoldfastSaver.memory(serde=None).close()


def _object(name: str, parts: Any) -> bytes:
    payload = ormsgpack.packb([name, parts])
    return ormsgpack.packb(ormsgpack.Ext(ext_codes.OBJECT, payload))


def _langgraph_ext(marker: Path) -> bytes:
    """What makes LangGraph's own serializer, as it is by default, call `os.system`."""
    return ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "system", f"touch {marker}"))))


FORGERIES: list[Callable[[Path], bytes]] = [
    _langgraph_ext,
    lambda marker: _object("os:system", f"touch {marker}"),
    lambda marker: _object("subprocess:Popen", {"args": ["touch", str(marker)]}),
    lambda marker: _object("builtins:eval", f"open({str(marker)!r}, 'w')"),
    lambda _marker: _object("this:anything", {}),
    lambda _marker: _object("antigravity:anything", {}),
    lambda marker: _object("langgraph_models:Opaque", {"handle": str(marker)}),
    lambda _marker: _object("langgraph_models:models.Note", {}),
    lambda _marker: _object(":", {}),
]


@pytest.mark.parametrize("forge", FORGERIES)
def test_a_forged_row_makes_nothing_run(memory_store: Store, tmp_path: Path, forge: Callable[[Path], bytes]) -> None:
    """Whoever can write to the store can put well-formed bytes there. They name what they like: it is not found."""
    marker = tmp_path / "executed"
    saver = saver_on(memory_store)
    where = put(saver, config(), x=1)
    id_ = where["configurable"]["checkpoint_id"]
    key = RowKey(row_keys.WRITES, row_keys.writes_key(ThreadNamespace("t", ""), id_, "task").key, STORE)
    content = ormsgpack.packb([[0, "x", "", forge(marker)]])
    row = rows.protect(key, ormsgpack.packb([b"", frame.compress(content)]))
    assert memory_store.backend().commit_all([Commit(tree=STORE, rows=[RowWrite(key, row)])]) == [None]
    loaded = set(sys.modules)
    with pytest.raises(holdfast.HoldfastError):
        saver_on(memory_store, on_unknown_type="raise").get_tuple(where)
    with warnings.catch_warnings(), contextlib.suppress(holdfast.HoldfastError):
        warnings.simplefilter("ignore", holdfast.HoldfastWarning)
        found = saver.get_tuple(where)
        assert found is not None
        [(_, _, forged)] = found.pending_writes or []
        assert isinstance(forged, holdfast.UnknownValue)  # data, and the name that it was given
    assert not marker.exists()
    assert not {"this", "antigravity"} & (set(sys.modules) - loaded)


def test_a_module_that_imports_when_it_is_asked_is_not_asked(
    memory_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Lazy(type(sys)):
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    codec = saver_on(memory_store, on_unknown_type="raise")._threads.ctx.codec
    with pytest.raises(UnknownTypeError):
        codec.decode(_object("lazy_module:Thing", {}))
    assert asked == []


def test_an_index_entry_that_leads_to_another_thread_is_damage(memory_store: Store) -> None:
    saver = saver_on(memory_store)
    put(saver, config("mine"), x=1)
    put(saver, config("yours"), x=2)
    backend = memory_store.backend()
    entries = {row_keys.unpack_entry(key, row).place.thread: key for key, row in backend.scan(row_keys.INDEX)}
    theirs = backend.rows([entries["yours"]])[0]
    assert theirs is not None
    checkpoint = row_keys.unpack_entry(entries["yours"], theirs).checkpoint
    swapped = row_keys.pack_entry(entries["mine"], checkpoint, None, None)
    backend.commit_all([Commit(tree=entries["mine"].tree, rows=[RowWrite(entries["mine"], swapped)])])
    with pytest.raises(holdfast.CorruptError, match="another"):
        saver.get_tuple(config("mine"))
