"""Rows of topics that were not written by holdfast: their checksum is right, and what they say is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ormsgpack
import pytest

from holdfast import HoldfastError, Message, SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit, RowKey, RowWrite
from holdfast.format.rows import head
from holdfast.format.rows import topic as rows

GROUP = rows.group_key("t", "g")
ID = b"x" * 16


def group(*, cursor: Any = 3, token: Any = 2, entries: Any = (), seen: Any = 0, dead: Any = 0) -> list[Any]:
    return [1, cursor, token, list(entries) if isinstance(entries, tuple) else entries, None, seen, 0, dead, False]


def entry(*, id_: Any = ID, key: Any = None, attempts: Any = 0, holder: Any = None, reasons: Any = ()) -> list[Any]:
    return [1, id_, key, 0, attempts, 0, holder, list(reasons) if isinstance(reasons, tuple) else reasons]


def holder(*, token: Any = 2, tree: Any = b"t" * 16, session: Any = "s", until: Any = 0, place: Any = "h") -> list[Any]:
    return [token, tree, session, 9, until, place, 1, 1]


GROUPS: list[Any] = [
    [], "x", 5, {}, [1, 2], ["1", 2, 3, []], [9, 3, 2, [], None, 0, 0, 0, False], [*group(), 1],
    group(cursor="x"), group(cursor=-5), group(cursor=2**63), group(token=2**64 - 1), group(token=-7), group(seen="x"),
    group(dead=-4), group(entries=5), group(entries=([1],)), group(entries=(entry(id_="id"),)),
    group(entries=(entry(id_=b"short"),)), group(entries=(entry(),)), group(entries=(entry(),) * 1_000),
    group(entries=(entry(key=[]),)), group(entries=(entry(attempts=10**18),)), group(entries=(entry(reasons=5),)),
    group(entries=(entry(reasons=(5,)),)), group(entries=(entry(holder=[1]),)),
    group(entries=(entry(holder=holder()),)),
    group(entries=(entry(holder=holder(token=-2)),)), group(entries=(entry(holder=holder(tree=None)),)),
    group(entries=(entry(holder=holder(until="u")),)), group(entries=(entry(holder=holder(place=[])),)),
]  # fmt: skip
OTHERS = [[], 5, "x", [1], [None] * 3, ["a", {}, 5], [1, 2, [3]], [9] * 4, ["done", b"\xff", 1], b"no msgpack"]
KEYS = [b"", b"x", b"\xff" * 40, b"\x00\x05t", b"a" * 16]


def first_message(client: SyncClient) -> str:
    return next(iter(client.messages("t"))).message_id


def run_once(client: SyncClient) -> None:
    with client.run("s", "a") as run:
        for _ in run.receive("t", "g", timeout=0):
            pass


ACTS: list[Callable[[SyncClient], Any]] = [
    lambda client: client.topics(),
    lambda client: [one.ack() for one in client.subscribe("t", "g", timeout=0)],
    run_once,
    lambda client: client.dead_messages("t"),
    lambda client: client.redeliver("t", "g", first_message(client)),
    lambda client: client.discard("t", "g", first_message(client)),
    lambda client: client.publish("t", 4),
    lambda client: list(client.messages("t")),
    lambda client: (client.save("a", session_id="z", publish=[Message("t", 1)]), client.team("z")),
    lambda client: client.copy_to(SyncClient.memory()),
    lambda client: client.gc(),
]


def tried(key: Callable[[SyncClient], RowKey], value: Any) -> int:
    """Write a row, and try what there is; return how much was refused. Any other error is one of ours."""
    refused = 0
    for act in ACTS:
        with SyncClient.memory() as client:
            for number in range(3):
                client.publish("t", number)
            next(client.subscribe("t", "g", timeout=0)).reject("no")
            place = key(client)
            content = value if isinstance(value, bytes) else ormsgpack.packb(value)
            write = RowWrite(place, head.protect(place, content))
            run_inline(client._ctx.backend.commit(Commit(tree=place.tree, rows=[write])))
            try:
                act(client)
            except HoldfastError:
                refused += 1
    return refused


@pytest.mark.parametrize("value", [*GROUPS, b"no msgpack"], ids=range(len(GROUPS) + 1))
def test_a_forged_group_is_reported_or_does_no_harm(value: Any):
    tried(lambda _: GROUP, value)


def test_a_forged_group_is_reported():
    assert tried(lambda _: GROUP, group(cursor="x")) > 5


@pytest.mark.parametrize("value", OTHERS, ids=range(len(OTHERS)))
def test_a_forged_dead_row_is_reported_or_does_no_harm(value: Any):
    tried(lambda client: run_inline(client._ctx.backend.scan(rows.DEAD))[0][0], value)


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
@pytest.mark.parametrize("space", [rows.GROUP, rows.DEAD, rows.TAKEN, rows.CONSUMED, rows.TOPIC])
def test_a_row_with_a_forged_key_is_reported_or_does_no_harm(space: str, key: bytes):
    tried(lambda _: RowKey(space, key) if space == rows.TOPIC else RowKey(space, key, b"T" * 16), [1, 1, 1])


@pytest.mark.parametrize("value", OTHERS, ids=range(len(OTHERS)))
def test_a_forged_decision_is_reported_or_does_no_harm(value: Any):
    tried(lambda _: rows.decision_key(rows.group_tree("t", "g"), ID, 1, b"T" * 16), value)
