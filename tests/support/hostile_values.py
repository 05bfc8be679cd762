"""Values that expand when they are decoded, in LangGraph's format and our own; prints results as JSON."""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import Any

import numpy as np
import ormsgpack
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.adapters.langgraph.allowed_types import SaverTypes
from holdfast.adapters.langgraph.official_value import OfficialValueReader, UnreadableError
from holdfast.codec.codec import Codec
from holdfast.errors import HoldfastError
from holdfast.importers import checkpnt_state

SECONDS = 5
SINGLE, POSITIONAL, KEYWORDS, METHOD, PYDANTIC_1, PYDANTIC_2 = range(6)
NET = "0.0.0.0/0"
LONG_PATTERN = "(a|b)" * 43_600
WIDE_PATTERN = "".join(f"[{chr(0x100 + at)}-\uffff]" for at in range(800))


UNFINISHED = "[" + "1," * 50_000 + "x," + "1," * 50_000  # LangChain would parse it 100,000 times
CHUNK = {"content": "", "tool_call_chunks": [{"name": "f", "args": UNFINISHED, "id": "i", "index": 0}]}


def equal_hashes(length: int) -> bytes:
    """A map whose keys, tuples of -1 and -2, all have the same hash."""
    bits = [f"{number:0{length}b}" for number in range(1 << length)]
    keys = [b"\xdc" + length.to_bytes(2) + bytes(0xFF - int(bit) for bit in one) for one in bits]
    return b"\xdf" + len(keys).to_bytes(4) + b"\xc0".join(keys) + b"\xc0"


def ext(code: int, *stored: Any) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, ormsgpack.packb(list(stored)))


def network() -> ormsgpack.Ext:
    return ext(SINGLE, "ipaddress", "IPv4Network", NET)


def huge() -> ormsgpack.Ext:
    return ext(SINGLE, "decimal", "Decimal", "1E+999999999")


def nested(depth: int, inside: int) -> bytes:
    """Objects in objects, each with arrays in arrays around the next."""
    data = ormsgpack.packb(None)
    for _ in range(depth):
        data = b"\x91" * inside + ormsgpack.packb(ormsgpack.Ext(SINGLE, b"\x93\xa8builtins\xa3set" + b"\x91" + data))
    return data


def wide(size: int, depth: int) -> bytes:
    """One long text in objects in objects: each level copies it."""
    data = ormsgpack.packb("x" * size)
    for _ in range(depth):
        data = ormsgpack.packb(ormsgpack.Ext(7, data))
    return data


OFFICIAL: dict[str, Any] = {
    "deque of a network": ext(SINGLE, "collections", "deque", network()),
    "set of a network": ext(SINGLE, "builtins", "set", network()),
    "frozenset of a network": ext(SINGLE, "builtins", "frozenset", network()),
    "positional deque": ext(POSITIONAL, "collections", "deque", network()),
    "path of a network": ext(POSITIONAL, "pathlib", "Path", network()),
    "long pattern": ext(POSITIONAL, "re", "compile", [LONG_PATTERN, 0]),
    "wide pattern": ext(POSITIONAL, "re", "compile", [WIDE_PATTERN, int(re.IGNORECASE)]),
    "message of a network": ext(
        PYDANTIC_2, "langchain_core.messages.ai", "AIMessage", {"content": network(), "type": "ai"}, "x"
    ),
    "tool calls of a network": ext(
        PYDANTIC_2, "langchain_core.messages.ai", "AIMessage", {"content": "", "tool_calls": network()}, "x"
    ),
    "tokens of a huge number": ext(
        PYDANTIC_2,
        "langchain_core.messages.ai",
        "AIMessage",
        {"content": "", "usage_metadata": {"input_tokens": huge(), "output_tokens": 1, "total_tokens": 1}},
        "x",
    ),
    "message by keywords": ext(KEYWORDS, "langchain_core.messages.ai", "AIMessage", {"content": network()}),
    "item of a network": ext(
        KEYWORDS,
        "langgraph.store.base",
        "Item",
        {"value": {}, "key": "k", "namespace": network(), "created_at": "2026-01-01", "updated_at": "2026-01-01"},
    ),
    "chunk of unfinished JSON": ext(PYDANTIC_2, "langchain_core.messages.ai", "AIMessageChunk", CHUNK, "x"),
    "interrupt of a network": ext(KEYWORDS, "langgraph.types", "Interrupt", {"value": 1, "ns": network()}),
    "zone that is a path": ext(SINGLE, "zoneinfo", "ZoneInfo", "../../../etc/passwd"),
    "long uuid": ext(SINGLE, "uuid", "UUID", "0" * 1_000_000),
}
RAW_OFFICIAL = {
    "nested objects": nested(90, 1000),
    "copied texts": wide(5_000_000, 90),
    "keys of equal hashes": equal_hashes(15),
    "keys of equal hashes in an object": ormsgpack.packb(ormsgpack.Ext(7, equal_hashes(15))),
}
COLUMNS: dict[str, tuple[Any, Any]] = {
    "a number as a value": ("bytes", 5_000_000_000),
    "a number as msgpack": ("msgpack", 5_000_000_000),
    "a text": ("msgpack", "text"),
    "a float": ("json", 1.5),
    "a number as a type": (7, b"x"),
    "json with an odd lc": ("json", b'{"lc": [], "type": "constructor", "id": []}'),
    "json without an id": ("json", b'{"lc": 2, "type": "constructor", "id": []}'),
    "json of a network": (
        "json",
        json.dumps(
            {
                "lc": 2, "type": "constructor", "id": ["collections", "deque"],
                "args": [{"lc": 2, "type": "constructor", "id": ["ipaddress", "IPv4Network"], "args": [NET]}],
            }
        ).encode(),
    ),
    "json chunk of unfinished JSON": (
        "json",
        json.dumps(
            {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessageChunk"], "kwargs": CHUNK}
        ).encode(),
    ),
    "json chunk with arguments": (
        "json",
        json.dumps(
            {
                "lc": 2, "type": "constructor", "id": ["langchain_core", "messages", "ai", "AIMessageChunk"],
                "args": [""], "kwargs": {"tool_call_chunks": CHUNK["tool_call_chunks"]},
            }
        ).encode(),
    ),
}  # fmt: skip


def own(name: str, parts: Any) -> bytes:
    """An object as our codec stores it."""
    return ormsgpack.packb(ormsgpack.Ext(17, ormsgpack.packb([name, parts])))


def own_network() -> ormsgpack.Ext:
    return ormsgpack.Ext(17, ormsgpack.packb(["python:IPv4Network", NET]))


def beside(names: list[Any]) -> dict[str, Any]:
    return {"content": "", "": [names, None, None]}


OWN = {
    "deque of a network": own("python:deque", [own_network(), None]),
    "counter of a network": own("python:Counter", own_network()),
    "ordered dict of a network": own("python:OrderedDict", own_network()),
    "long pattern": own("python:Pattern", [LONG_PATTERN, 0]),
    "wide pattern": own("python:Pattern", [WIDE_PATTERN, int(re.IGNORECASE)]),
    "address of a number": own("python:IPv6Address", b"x" * 16),
    "zone that is a path": own("python:ZoneInfo", "../../../etc/passwd"),
    "item of a network": own(
        "langgraph:Item", {"value": {}, "key": "k", "namespace": own_network(), "created_at": "2026-01-01",
                           "updated_at": "2026-01-01"}
    ),
    "shape of huge numbers": own(
        "numpy:ndarray",
        {"dtype": "<f8", "shape": [ormsgpack.Ext(1, b"\x7f" * 1_000_000)] * 8, "order": "C", "data": b""},
    ),
    "names of equal hashes": own("langchain:HumanMessage", beside([at * (2**61 - 1) for at in range(8)] * 20_000)),
    "millions of names": own("langchain:HumanMessage", {"content": "", "": "," * 5_000_000}),
}  # fmt: skip


def outcome(read: Any, *given: Any) -> str:
    def hang(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    try:
        value = read(*given)
        return f"read: {type(value).__name__}"
    except (UnreadableError, HoldfastError) as error:
        return f"refused: {error}"
    except BaseException as error:
        return f"broke: {error!r:.200}"
    finally:
        signal.alarm(0)


def unpack_checkpnt(payload: bytes) -> Any:
    try:
        return checkpnt_state.unpack(payload)
    except ValueError as error:
        raise UnreadableError(str(error)) from error


def main() -> None:
    codec = Codec(SaverTypes())
    assert _DeltaSnapshot is not None
    assert np is not None  # else its arrays are not built at all
    said = {
        f"langgraph: {name}": outcome(OfficialValueReader().read, "msgpack", ormsgpack.packb(one))
        for name, one in OFFICIAL.items()
    }
    said |= {
        f"langgraph: {name}": outcome(OfficialValueReader().read, "msgpack", one) for name, one in RAW_OFFICIAL.items()
    }
    said |= {f"column: {name}": outcome(OfficialValueReader().read, *one) for name, one in COLUMNS.items()}
    said["checkpnt: keys of equal hashes"] = outcome(unpack_checkpnt, equal_hashes(15))
    said |= {f"own: {name}": outcome(codec.decode, one) for name, one in OWN.items()}
    said["encode"] = outcome(codec.encode, {"user": {"pattern": re.compile("a" * 5000)}}, "execution_state")
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
