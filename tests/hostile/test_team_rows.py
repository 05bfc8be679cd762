"""Rows of delegations, waits, contracts and inboxes, and records of messages, that holdfast has not written.

Their checksums are right, and what they say is not: each is reported, or does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ormsgpack
import pytest

from holdfast import CorruptError, HoldfastError, SyncClient, contract
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit, RecordWrite, RowKey, RowWrite
from holdfast.format.rows import contract as contracts
from holdfast.format.rows import delegation as rows
from holdfast.format.rows import head, inbox
from holdfast.format.state import record
from holdfast.model import ids
from holdfast.operations import contract as registered

pytestmark = pytest.mark.slow  # each row by each kind of forgery

ID = b"x" * 16
LATE = 2**62  # in microseconds: no date
ITEM = contract("hostile.item", 1, {"type": "object", "properties": {"n": {"type": "integer"}}})
ANY = [
    [],
    5,
    "x",
    {},
    [1],
    [None] * 3,
    ["a", {}, 5],
    [1, 2, [3]],
    [9] * 7,
    [b"\xff", b"\xff", 1, LATE, 5],
    b"no msgpack",
]
DELEGATIONS = [
    *ANY, [b"boss", b"a", b"short", None, 1, None, None], [b"boss", b"a", ID, None, LATE, None, None],
    [b"boss", b"a", ID, 5, 1, None, None], [b"boss", b"\xff\xfe", ID, None, 1, None, None],
    [b"boss", b"a", ID, None, -1, 5, 5], [b"boss", b"a", ID, None, 1, "x@" + "9" * 5000, "@"],
]  # fmt: skip
WAITS = [
    *ANY, [b"boss", "join", [5], 1, None], [b"boss", "receive", [b"\xff"], 1, None], [b"boss", "join", [], LATE, LATE],
    [b"boss", "receive", [b"t", b"no topic", b"\n" * 9], LATE, 5], [b"boss", "x" * 10_000, [b"boss"] * 1000, -1, None],
]  # fmt: skip
CONTRACTS = [*ANY, ["{", b"", 1], ["[" * 100_000, b"", 1], ["{}", b"h", LATE], ['{"$ref": "file:///etc"}', b"", 1]]
INBOXES = [*ANY, [ID, 1, LATE, b"\xff", None], [ID, "t", 1, b"x", None], [b"", LATE, b"\xff", True]]


def the_boss(client: SyncClient) -> bytes:
    """Make a session that has delegated work; return its tree."""
    with client.run("boss", "boss") as run:
        run.delegate("worker", [{"n": 1}], contract=ITEM)
        run.publish("t", {"n": 1}, contract=ITEM)
    return ids.from_text(client.latest(session_id="boss").tree_id)


def claim_all(client: SyncClient) -> None:
    for offer in client.inbox("worker", include_claimed=True):
        with client.claim(offer.handoff_id, "worker", contract=ITEM) as claim:
            claim.complete({"n": 2})


def join_again(client: SyncClient) -> None:
    with client.run("boss", "boss") as run:
        asked = run.delegate("worker", [{"n": 1}], contract=ITEM)
        run.join(asked, timeout=0)


def consume(client: SyncClient) -> None:
    with client.subscribe("t", "g", timeout=0) as messages:
        for message in messages:
            message.ack()


ACTS: list[Callable[[SyncClient], Any]] = [
    lambda client: client.team("boss"),
    lambda client: client.cancel("boss", by="ana", reason="hostile"),
    lambda client: client.inbox("worker"),
    claim_all,
    join_again,
    consume,
    lambda client: client.topics(),
    lambda client: list(client.messages("t")),
    lambda client: list(client.messages("t", contract=ITEM)),
    lambda client: client.handoff(client.latest(session_id="boss").checkpoint_id, "z", contract=ITEM),
    lambda client: client.publish("t", {"n": 1}, contract=ITEM),
    lambda client: run_inline(registered.list_contracts(client._ctx)),
    lambda client: client.gc(),
    lambda client: client.verify(),
    lambda client: client.copy_to(SyncClient.memory()),
]


def tried(forge: Callable[[SyncClient, bytes], Commit]) -> list[HoldfastError]:
    """Write what is forged, and try what there is; return what was refused. Any other error is one of ours."""
    refused = []
    for act in ACTS:
        with SyncClient.memory() as client:
            tree = the_boss(client)
            run_inline(client._ctx.backend.commit(forge(client, tree)))
            client._ctx.contracts.clear()
            try:
                act(client)
            except HoldfastError as error:
                refused.append(error)
    return refused


def row(key: RowKey, value: Any) -> Commit:
    content = value if isinstance(value, bytes) else ormsgpack.packb(value)
    return Commit(tree=key.tree, rows=[RowWrite(key, head.protect(key, content))])


@pytest.mark.parametrize("value", DELEGATIONS, ids=range(len(DELEGATIONS)))
def test_a_forged_delegation_is_reported_or_does_no_harm(value: Any):
    tried(lambda _, tree: row(rows.delegation_key("child", tree), value))


@pytest.mark.parametrize("value", WAITS, ids=range(len(WAITS)))
def test_a_forged_wait_is_reported_or_does_no_harm(value: Any):
    tried(lambda _, tree: row(rows.wait_key("boss", "place", tree), value))


@pytest.mark.parametrize("value", CONTRACTS, ids=range(len(CONTRACTS)))
def test_a_forged_contract_is_reported_or_does_no_harm(value: Any):
    assert tried(lambda *_: row(contracts.contract_key("hostile.item", 1), value))


@pytest.mark.parametrize("value", INBOXES, ids=range(len(INBOXES)))
@pytest.mark.parametrize("part", [inbox.WAITING, inbox.DONE])
def test_a_forged_inbox_row_is_reported_or_does_no_harm(part: bytes, value: Any):
    def forge(client: SyncClient, _: bytes) -> Commit:
        [offer] = client.inbox("worker")
        id_ = ids.from_text(offer.handoff_id)
        return row(inbox.key_of("worker", id_, id_, part), value)

    tried(forge)


HEADERS: list[dict[str, Any]] = [
    {"topic": 5}, {"at": "x"}, {"at": LATE}, {"key": [1]}, {"toschema": 5}, {"toschema": "hostile.item@" + "9" * 5000},
    {"toschema": "hostile.item@٣"}, {"keep": "x"}, {"agent": 7}, {"session": None}, {"ttl": {}},
]  # fmt: skip


@pytest.mark.parametrize("changed", HEADERS, ids=lambda one: f"{next(iter(one.items()))!r:.20}")
def test_a_message_with_a_forged_header_stops_no_group(changed: dict[str, Any]):
    def forge(client: SyncClient, tree: bytes) -> Commit:
        [message] = client.messages("t")
        codec, id_ = client._ctx.codec, client._ctx.new_id(ids.tree_tag(tree))
        [found] = run_inline(client._ctx.backend.records([ids.from_text(message.message_id)]))
        stored = record.unpack(codec, found.data)
        header = {**stored.header, "id": id_, "seq": 50, **changed}
        data, _ = record.pack(codec, header, stored.manifest())
        labels = stored.labels()
        return Commit(tree=tree, record=RecordWrite(id_, b"boss", 50, data, labels, None, feed=b"t"))

    tried(forge)
    with SyncClient.memory() as client:
        run_inline(client._ctx.backend.commit(forge(client, the_boss(client))))
        client.publish("t", {"n": 3}, contract=ITEM)
        seen = []
        with client.subscribe("t", "g", contract=ITEM, timeout=0) as messages:
            for message in messages:
                seen.append(message.value["n"])
                message.ack()
        assert seen[0] == 1
        assert seen[-1] == 3


def test_a_schema_that_was_changed_in_the_store_is_named():
    refused = tried(lambda *_: row(contracts.contract_key("hostile.item", 1), [1, 2, 3]))
    assert any(isinstance(error, CorruptError) and "contract row" in str(error) for error in refused)
