"""fork(ref, set=…): an edit keeps the type of what it replaces, or is refused."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from stores import Store

from holdfast import Client, SyncClient, UsageError
from holdfast.codec.registry import TypeRegistry
from holdfast.model.conversion import Replacement, WrittenValue
from holdfast.model.path_edit import edit

pytestmark = pytest.mark.every_store


class Status(Enum):
    OPEN = "open"
    DONE = "done"


class Crossed(Enum):
    A = "B"
    B = "A"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Order:
    status: Status
    due: datetime


DUE = datetime(2026, 1, 1, tzinfo=UTC)
ONE = UUID(int=1)


def types() -> TypeRegistry:
    registry = TypeRegistry()
    for one in (Status, Order):
        registry.register(one)
    return registry


def after(old: Any, new: Any) -> Any:
    return edit({"x": old}, {}, {"x": new})[0]["x"]


@pytest.mark.parametrize(
    ("old", "new", "made"),
    [
        (Status.OPEN, "DONE", Status.DONE),
        (Status.OPEN, "done", Status.DONE),
        (Status.OPEN, Status.DONE, Status.DONE),
        (Status.OPEN, None, None),
        (Status.OPEN, Replacement("text"), "text"),
        (Level.LOW, 2, Level.HIGH),
        (Right.READ, 3, Right.READ | Right.WRITE),
        (DUE, "2027-02-03T04:05:06+01:00", datetime.fromisoformat("2027-02-03T04:05:06+01:00")),
        (datetime(2026, 1, 1), "2027-02-03T04:05", datetime(2027, 2, 3, 4, 5)),
        (date(2026, 1, 1), "2027-02-03", date(2027, 2, 3)),
        (time(1), "04:05", time(4, 5)),
        (timedelta(1), 90, timedelta(seconds=90)),
        (timedelta(1), "0.5", timedelta(seconds=0.5)),
        (Decimal(1), "2.50", Decimal("2.50")),
        (Decimal(1), WrittenValue(2.5, "2.50"), Decimal("2.50")),
        (Fraction(1), "1/3", Fraction(1, 3)),
        (ONE, str(UUID(int=2)), UUID(int=2)),
        (ONE, Decimal(7), Decimal(7)),
        (
            Order(Status.OPEN, DUE),
            {"status": "DONE", "due": "2027-01-01T00:00:00+00:00"},
            Order(Status.DONE, DUE.replace(year=2027)),
        ),
        ((1, 2), WrittenValue([3], "[3]"), (3,)),
        ({1}, WrittenValue([3], "[3]"), {3}),
        ((1, 2), [3], [3]),
        ("text", 7, 7),
        (7, "text", "text"),
    ],
)
def test_a_value_of_the_same_type(old: Any, new: Any, made: Any) -> None:
    found = after(old, new)
    assert (found, type(found)) == (made, type(made))
    assert str(found) == str(made)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (Status.OPEN, "closed", "has the type Status, and 'closed' is no value of it: write one of OPEN, DONE"),
        (Status.OPEN, 1, "write one of OPEN, DONE"),
        (Crossed.A, "A", "is the name of .* and the value of"),
        (Right.READ, 8, "is no value of it"),
        (DUE, "tomorrow", "has the type datetime, and 'tomorrow' is no value of it: write it as 2026-11-16T12:00:00"),
        (DUE, "2027-01-01T00:00", "with an offset from UTC"),
        (DUE, 7, "has the type datetime"),
        (Decimal(1), 2.5, "a float is not exact"),
        (Decimal(1), "much", "write it in digits"),
        (Decimal(1), True, "write it in digits"),
        (timedelta(1), "0.0000001", "six decimals"),
        (ONE, "x", "32 hexadecimal digits"),
        (b"x", "y", "Base64"),
        (Order(Status.OPEN, DUE), {"status": "DONE"}, "it has the fields status, due"),
        (Order(Status.OPEN, DUE), "text", "has the type Order"),
        (Order(Status.OPEN, DUE), {"status": "closed", "due": None}, "'x.status' has the type Status"),
    ],
)
def test_another_one_is_refused(old: Any, new: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        after(old, new)


def test_an_element_that_is_appended_is_like_the_others() -> None:
    assert edit({"x": [Status.OPEN]}, {}, {"x.-": "DONE"})[0] == {"x": [Status.OPEN, Status.DONE]}
    with pytest.raises(UsageError, match="write one of OPEN, DONE"):
        edit({"x": [Status.OPEN]}, {}, {"x.-": "closed"})
    assert edit({"x": [Status.OPEN, 1]}, {}, {"x.-": "closed"})[0] == {"x": [Status.OPEN, 1, "closed"]}


def test_a_dict_on_the_way_keeps_its_class() -> None:
    made, _ = edit({"x": OrderedDict(a=1, b=2)}, {}, {"x.a": 3, "+x.c": 4})
    assert (made["x"], type(made["x"])) == (OrderedDict(a=3, b=2, c=4), OrderedDict)


def test_of_a_stored_state(store: Store) -> None:
    client = store.client(types=types())
    id_ = client.save("a", session_id="s", execution_state={"order": Order(Status.OPEN, DUE)})
    report = client.fork(id_, "done", set={"order.status": "DONE"})
    assert client.restore(report.checkpoint_id).execution_state == {"order": Order(Status.DONE, DUE)}
    with pytest.raises(UsageError, match=r"'order\.status' has the type Status"):
        client.fork(id_, "never", set={"order.status": "closed"})
    assert client.latest("never") is None


def test_awaited(disk_store: Store) -> None:
    async def forked() -> Any:
        async with Client.open(disk_store.url, types=types()) as client:
            id_ = await client.save("a", session_id="s", execution_state={"status": Status.OPEN})
            with pytest.raises(UsageError, match="write one of OPEN, DONE"):
                await client.fork(id_, set={"status": "closed"})
            report = await client.fork(id_, set={"status": "DONE"})
            return (await client.restore(report.checkpoint_id)).execution_state

    assert asyncio.run(forked()) == {"status": Status.DONE}


@pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")
def test_of_a_type_that_is_unknown_here(tmp_path: Any) -> None:
    path = tmp_path / "store.db"
    with SyncClient.sqlite(path, types=types()) as client:
        client.save("a", session_id="s", execution_state={"order": Order(Status.OPEN, DUE), "status": Status.OPEN})
    with SyncClient.sqlite(path, types=TypeRegistry(), on_unknown_type="plain") as client:
        with pytest.raises(
            UsageError, match="has the type Status, and 'DONE' is no value of it: its class is not known here"
        ):
            client.fork("s", set={"status": "DONE"})
        client.fork("s", "later", set={"order.due": "2027-01-01T00:00:00+00:00"})
    with SyncClient.sqlite(path, types=types()) as client:
        made = client.latest("later")
        assert made is not None
        assert made.execution_state["order"] == Order(Status.OPEN, DUE.replace(year=2027))
