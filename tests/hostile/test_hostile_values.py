"""Stored values that would expand when they are rebuilt: each ends in a refusal, within little memory and time."""

from __future__ import annotations

import collections
import datetime as dt
import ipaddress
import pathlib
import re
import uuid
import zoneinfo
from decimal import Decimal
from typing import Any

import limited
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, ToolCallChunk
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.langgraph.allowed_types import SaverTypes
from holdfast.adapters.langgraph.official_value import OfficialValueReader
from holdfast.codec.codec import Codec

# A model that can't be validated without expanding is made without validation, as LangGraph makes one that fails it.
CONSTRUCTED = {"message of a network", "tool calls of a network", "tokens of a huge number", "message by keywords",
               "chunk of unfinished JSON", "json chunk of unfinished JSON"}  # fmt: skip


@pytest.mark.slow
def test_no_value_expands_when_it_is_rebuilt() -> None:
    said = limited.run("hostile_values.py", memory=3 << 29, seconds=200)
    broken = {name: outcome for name, outcome in said.items() if not outcome.startswith(("read", "refused"))}
    assert broken == {}
    read = {name.partition(": ")[2] for name, outcome in said.items() if outcome.startswith("read")}
    assert read == {*CONSTRUCTED, "json with an odd lc"}  # the latter is a map like any other
    assert "execution_state.user.pattern" in said["encode"]
    assert "4096 characters" in said["encode"]


HONEST: list[Any] = [
    collections.deque([1, 2]), {1, 2}, frozenset({"a"}), ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_address("::1"),
    ipaddress.ip_interface("10.0.0.1/8"), pathlib.Path("/a/b"), re.compile("a[b-c]+", re.IGNORECASE), uuid.UUID(int=7),
    Decimal("1E+999999"), Decimal("-0.10"), Decimal("NaN"), dt.date(2026, 1, 2), dt.time(1, 2, tzinfo=dt.UTC),
    dt.timedelta(3, 4, 5),
    dt.timezone(dt.timedelta(hours=2), "X"), zoneinfo.ZoneInfo("Europe/Paris"), dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    AIMessage("x", additional_kwargs={"net": ipaddress.ip_network("10.0.0.0/8")}),
    re.compile("[\u4e00-\u9fff]+"), re.compile(b"x"), {(x, y): x for x in range(30) for y in range(30)},
    AIMessageChunk("", tool_call_chunks=[ToolCallChunk(name="f", args='{"text": "' + "x" * 500, id="i", index=0)]),
]  # fmt: skip


@pytest.mark.parametrize("value", HONEST, ids=lambda value: f"{value!r:.60}")
def test_honest_values_are_read_as_before(value: Any) -> None:
    kind, data = JsonPlusSerializer().dumps_typed({"x": [value]})
    [read] = OfficialValueReader().read(kind, data)["x"]
    assert type(read) is type(value)
    assert repr(read) == repr(value)
    codec = Codec(SaverTypes())
    [again] = codec.decode(codec.encode([value]))
    assert type(again) is type(value)
    assert repr(again) == repr(value)
