"""Rows of approvals and effects that are forged, swapped or replayed: no effect happens twice, none without its yes."""

from __future__ import annotations

import pytest
from sealed_story import Raw
from stores import Store

from holdfast import ApprovalPendingError, HoldfastError, KeyMissingError, SyncClient
from holdfast.backends.port import Commit, RowWrite
from holdfast.format.rows.approval import APPROVAL
from holdfast.format.rows.ledger import LEDGER

pytestmark = pytest.mark.every_store


class Bank:
    def __init__(self) -> None:
        self.paid: list[str] = []

    def pay(self, to: str) -> str:
        self.paid.append(to)
        return f"receipt {len(self.paid)}"


def life(client: SyncClient, bank: Bank, session: str = "order") -> str:
    """One life of a program that pays when somebody has approved."""
    with client.run(session, agent_id="buyer") as run:
        return run.effect("pay", bank.pay, to=session, identity=("to",), approve="finance")


def ask(store: Store, bank: Bank, session: str) -> None:
    with pytest.raises(ApprovalPendingError):
        life(store.client(), bank, session)


def decide(store: Store, session: str, answer: str) -> None:
    client = store.client()
    [waiting] = client.approvals(session)
    client.decide(waiting.approval_id, answer, by="ann")


def rows_of(raw: Raw, *spaces: str) -> dict[object, bytes]:
    return {key: row.value for space in spaces for key, row in raw.rows(space)}


def put_back(raw: Raw, old: dict[object, bytes], *spaces: str) -> None:
    """Make the rows of these spaces what they were."""
    for key in rows_of(raw, *spaces):
        if key not in old:
            raw.put_row(key, None)
    for key, value in old.items():
        raw.put_row(key, value)


def try_again(store: Store, bank: Bank, session: str) -> None:
    try:
        life(store.client(), bank, session)
    except HoldfastError:
        return


def test_a_yes_in_the_place_of_another_request_pays_nothing(store: Store):
    store.is_sealed = True
    bank, raw = Bank(), Raw.of(store)
    for session in ("one", "two", "three"):
        ask(store, bank, session)
    before = rows_of(raw, APPROVAL)
    decide(store, "one", "approve")
    [yes] = [value for key, value in rows_of(raw, APPROVAL).items() if key not in before]
    decide(store, "two", "reject")
    for key in list(rows_of(raw, APPROVAL)):  # on every request: its own row, and where its decision would be
        value = rows_of(raw, APPROVAL)[key]
        for state in range(3):
            place = key._replace(key=bytes((state,)) + key.key[1:])
            was = rows_of(raw, APPROVAL).get(place)
            if was == yes:
                continue
            raw.commit(Commit(place.tree, rows=[RowWrite(place, yes)]))
            for session in ("two", "three"):
                try_again(store, bank, session)
            assert bank.paid == []
            raw.put_row(place, was)
        raw.put_row(key, value)
    life(store.client(), bank, "one")
    assert bank.paid == ["one"]


@pytest.mark.parametrize("when", ["asked", "approved"])
def test_replayed_rows_of_an_approval_pay_nothing_twice(store: Store, when: str):
    """That they are older is not found; that the effect has happened is."""
    store.is_sealed = True
    bank, raw = Bank(), Raw.of(store)
    ask(store, bank, "order")
    old = rows_of(raw, APPROVAL)
    decide(store, "order", "approve")
    if when == "approved":
        old = rows_of(raw, APPROVAL)
    assert life(store.client(), bank) == "receipt 1"
    put_back(raw, old, APPROVAL)
    for _ in range(2):
        try_again(store, bank, "order")
    if when == "asked":
        decide(store, "order", "approve")
        try_again(store, bank, "order")
    assert bank.paid == ["order"]


def test_replayed_rows_of_effects_pay_nothing_twice(store: Store):
    """The head's checkpoint names the effect: an entry that is older or gone does not make it new."""
    store.is_sealed = True
    bank, raw = Bank(), Raw.of(store)
    ask(store, bank, "order")
    decide(store, "order", "approve")
    before = rows_of(raw, LEDGER)
    started: dict[object, bytes] = {}

    def pay(to: str) -> str:
        started.update(rows_of(raw, LEDGER))
        return bank.pay(to)

    with store.client().run("order", agent_id="buyer") as run:
        run.effect("pay", pay, to="order", identity=("to",), approve="finance")
    assert started
    for old in (started, before):
        put_back(raw, old, LEDGER)
        try_again(store, bank, "order")
        assert bank.paid == ["order"]


def test_a_decision_without_the_keys_is_refused(store: Store):
    """The control: on a plain store, whoever can write can say yes."""
    for is_sealed in (False, True):
        store.is_sealed = is_sealed
        bank = Bank()
        if is_sealed:
            store = Store("memory", store.where / "sealed")
            store.is_sealed = True
        ask(store, bank, "order")
        [waiting] = store.client().approvals("order")
        stranger = SyncClient(store.backend())
        if is_sealed:
            with pytest.raises(KeyMissingError):
                stranger.decide(waiting.approval_id, "approve", by="a stranger")
        else:
            stranger.decide(waiting.approval_id, "approve", by="a stranger")
        try_again(store, bank, "order")
        assert bank.paid == ([] if is_sealed else ["order"])
