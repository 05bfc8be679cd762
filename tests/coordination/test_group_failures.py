"""What a group gives up, and within which limits: poison, contracts, damage, odd texts."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from group_use import consume, group_of, load_group, publish, seen

from holdfast import CorruptError, NewerVersionError, UsageError, contract
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit, RecordWrite, RowWrite
from holdfast.coordination.contract import Contract
from holdfast.format.rows import contract as contracts
from holdfast.format.state import record
from holdfast.model import group_state, ids

pytestmark = pytest.mark.every_store


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch):
    monkeypatch.setattr(group_state, "FIRST_BACKOFF_US", 1000)
    monkeypatch.setattr(group_state, "BACKOFF_FACTOR", 1)


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_poison_message_is_dead_with_its_reasons_and_others_flow(store):
    client = store.client()
    publish(client, 3)

    def handle(_run, message):
        if message.value == 1:
            raise RuntimeError("poison")

    handled = []
    for _ in range(12):
        with suppress(RuntimeError):
            handled += consume(client, "s", handle=handle)
        time.sleep(0.005)
    assert sorted(seen(client, "s")) == [0, 2]
    [dead] = client.dead_messages("t")
    assert (dead.group, dead.attempts) == ("g", 5)
    assert all("poison" in reason for reason in dead.reasons)
    assert group_of(client).dead == 1
    client.redeliver("t", "g", dead.message_id)
    assert client.dead_messages("t", "g") == []
    assert consume(client, "s") == [1]
    assert sorted(seen(client, "s")) == [0, 1, 2]


@pytest.mark.slow
def test_released_messages_are_never_dead(store):
    client = store.client()
    publish(client, 1)
    count = iter(range(101))

    def handle(_run, message):
        assert message.attempts == 0
        if next(count) < 100:
            message.release()

    consume(client, "s", timeout=1, handle=handle)
    assert seen(client, "s") == [0]
    assert client.dead_messages("t") == []


def test_a_rejected_message_is_dead_at_once_and_can_be_discarded(store):
    client = store.client()
    [message_id] = publish(client, 1)
    consume(client, "s", handle=lambda _run, message: message.reject("of another order"))
    [dead] = client.dead_messages("t")
    assert (dead.message_id, dead.attempts, dead.reasons) == (message_id, 1, ("of another order",))
    assert client.discard("t", "g", message_id)
    assert not client.discard("t", "g", message_id)
    assert client.dead_messages("t") == []
    assert consume(client, "s") == []


def test_a_rolled_back_consumer_gets_the_message_again_only_by_decision(store):
    client = store.client()
    begin = client.save("a", session_id="s", execution_state={"seen": []})
    publish(client, 2)
    assert consume(client, "s") == [0, 1]
    report = client.rollback("s", to=begin)
    assert [(one.topic, one.groups) for one in report.consumed] == [("t", ("g",))] * 2
    assert consume(client, "s") == []
    first = next(iter(client.messages("t"))).message_id
    assert first in {one.message_id for one in report.consumed}
    client.redeliver("t", "g", first)
    assert consume(client, "s") == [0]
    assert seen(client, "s") == [0]


OLD = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


NEW = {"type": "object", "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}}, "required": ["n", "m"]}


OTHER = {"type": "object", "properties": {"m": {"type": "integer"}}, "required": ["m"]}


def test_a_newer_contract_that_is_proven_is_read(store):
    client = store.client()
    client.publish("t", {"n": 1, "m": 2}, contract=contract("forward", 2, NEW))
    [got] = consume(client, "s", contract=contract("forward", 1, OLD))
    assert got["n"] == 1


def test_a_newer_contract_that_is_not_proven_stays_open_without_an_attempt(store):
    client = store.client()
    older, newer = contract("breaking", 1, OLD), contract("breaking", 2, OTHER)
    client.publish("t", {"n": 1}, contract=older)
    client.publish("t", {"m": 2}, contract=newer)
    client.publish("t", {"n": 3}, contract=older)
    for _ in range(7):
        consume(client, "old", contract=older)
    assert [one["n"] for one in seen(client, "old")] == [1, 3]
    assert group_of(client).waiting == 1
    with client.subscribe("t", "g", contract=newer, timeout=0) as messages:
        [got] = [(one.value["m"], one.attempts, one.ack()) for one in messages]
    assert got == (2, 0, True)
    assert client.dead_messages("t") == []


def test_a_message_of_another_contract_is_dead(store):
    client = store.client()
    client.publish("t", "no contract")
    client.publish("t", {"n": 1}, contract=contract("counted", 1, OLD))
    assert [one["n"] for one in consume(client, "s", contract=contract("counted", 1, OLD))] == [1]
    [dead] = client.dead_messages("t")
    shown = f"ContractError: message {dead.message_id} was published without a contract, and is read as counted@1"
    assert dead.reasons[0].startswith(shown)


@pytest.mark.parametrize("upgraded", [lambda old: old["no"], lambda _: {"n": "text"}])
def test_a_message_whose_upgrade_fails_is_dead_and_was_never_in_flight(store, upgraded):
    client = store.client()
    client.publish("t", {"n": 1}, contract=contract("upgraded", 1, OLD))
    newer = Contract("upgraded", 2, OLD, None)
    newer.upgrade(from_version=1)(upgraded)
    assert consume(client, "s", contract=newer) == []
    [dead] = client.dead_messages("t")
    assert dead.attempts == 0
    assert "upgraded@1" in dead.reasons[0] or "upgrade" in dead.reasons[0]


DEEP = '{"items":' * 10_000 + "{}" + "}" * 10_000


LOOP = '{"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}}'


LONG = '{"type": "string", "minLength": 1e18}'


FILE = '{"$ref": "file:///etc/passwd"}'


@pytest.mark.parametrize("schema", [DEEP, "no JSON", FILE, LOOP, LONG], ids=["deep", "text", "file", "loop", "long"])
def test_a_message_of_a_version_with_a_hostile_schema_stays_open(store, schema):
    """A schema in the store that is none proves nothing, and does no more harm than that."""
    client = store.client()
    client.publish("t", {"n": 1}, contract=Contract("hostile", 2, OLD, None))
    client.publish("t", {"n": 2}, contract=Contract("hostile", 1, OLD, None))
    key = contracts.contract_key("hostile", 2)
    forged = contracts.StoredContract(schema, b"\0" * 32, 1)
    write = RowWrite(key, contracts.pack_contract(key, forged))
    run_inline(client._ctx.backend.commit(Commit(tree=key.tree, rows=[write])))
    fresh = store.client()
    assert [one["n"] for one in consume(fresh, "s", contract=Contract("hostile", 1, OLD, None))] == [2]
    assert group_of(fresh).waiting == 1
    with pytest.raises((CorruptError, UsageError)):
        fresh.contracts()


def damage(store, client, message_id, change):
    """Replace a message's record in the store by changed bytes."""
    id_ = ids.from_text(message_id)
    [found] = run_inline(client._ctx.backend.records([id_]))
    write = RecordWrite(id_, found.session, found.sequence, change(found.data), replaces=found.data)
    tree = record.unpack(client._ctx.codec, found.data).tree
    run_inline(client._ctx.backend.commit(Commit(tree=tree, record=write)))


@pytest.mark.parametrize("kind", ["flipped", "newer"])
def test_a_damaged_or_newer_message_is_dead_and_others_flow(store, kind):
    client = store.client()
    messages = publish(client, 3)
    if kind == "flipped":
        damage(store, client, messages[1], lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:])
    else:
        damage(store, client, messages[1], lambda data: data[:3] + b"\x09" + data[4:])
    fresh = store.client()
    assert consume(fresh, "s") == [0, 2]
    [dead] = fresh.dead_messages("t")
    assert dead.message_id == messages[1]
    assert ("NewerVersionError" if kind == "newer" else "CorruptError") in dead.reasons[0]
    stream, found, errors = fresh.messages("t"), [], []
    for _ in range(5):
        try:
            for one in stream:
                found.append(one.value)  # noqa: PERF401 - those before an error count
        except (NewerVersionError, CorruptError) as error:
            errors.append(error)
    assert found == [0, 2]
    assert len(errors) == 1


# -- limits ----------------------------------------------------------------------------------------------------------


def test_a_group_takes_no_more_than_its_entries(store, monkeypatch):
    monkeypatch.setattr(group_state, "MAX_ENTRIES", 4)
    client = store.client()
    for n in range(8):
        client.publish("t", n, key="same" if n else None)
    messages = client.subscribe("t", "g", timeout=0)
    assert next(messages).ack()
    first = next(messages)
    assert first.value == 1
    assert list(client.subscribe("t", "g", timeout=0)) == []
    state, _ = load_group(client)
    assert len(state.entries) <= 4
    first.ack()
    assert [(one.value, one.ack())[0] for one in client.subscribe("t", "g", timeout=0)] == [2, 3, 4, 5, 6, 7]


ODD = "lone \ud800"


def test_texts_with_lone_surrogates_are_keys_sessions_and_reasons(store):
    client = store.client()
    client.publish("t", ODD, key=ODD)
    for number in range(5):
        with suppress(KeyError):
            consume(client, ODD, handle=lambda *_: {}[ODD])
        assert group_of(client).dead == (number == 4)
        time.sleep(0.005)
    [dead] = store.client().dead_messages("t")
    assert "lone" in dead.reasons[0]
    client.redeliver("t", "g", dead.message_id)
    next(client.subscribe("t", "g", timeout=5)).reject(ODD)
    assert store.client().dead_messages("t")[0].reasons == (ODD,)
    client.redeliver("t", "g", dead.message_id)
    assert consume(client, ODD) == [ODD]
    assert seen(client, ODD) == [ODD]


def test_reasons_are_cut(store):
    client = store.client()
    publish(client, 1)
    next(client.subscribe("t", "g", timeout=0)).reject("x" * 1_000_000)
    assert len(client.dead_messages("t")[0].reasons[0]) <= 500
