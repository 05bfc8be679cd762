"""What the conformance suite does not ask, and savers are known to get wrong."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph_savers import checkpoint, config, put, saver_on, values_of
from stores import SERVED, Store

from holdfast import UsageError
from holdfast.langgraph import HoldfastSaver

pytestmark = pytest.mark.every_store

META: Any = {"source": "loop", "step": 1}


@pytest.fixture
def saver(store: Store) -> HoldfastSaver:
    return saver_on(store)


def test_it_is_a_checkpointer_and_can_be_copied(saver: HoldfastSaver) -> None:
    assert isinstance(saver, BaseCheckpointSaver)
    put(saver, config(), x=1)
    clone = saver.with_allowlist([("collections", "OrderedDict")])
    put(clone, config(), x=2)
    assert values_of(saver, config()) == {"x": 2}


def test_get_within_a_listing(saver: HoldfastSaver) -> None:
    async def scenario() -> list[Any]:
        for number in range(3):
            made = checkpoint(n=number)
            await saver.aput(config(), made, META, {})
        return [
            (await saver.aget_tuple(found.config)).checkpoint["channel_values"]["n"]
            async for found in saver.alist(config())
        ]

    assert asyncio.run(scenario()) == [2, 1, 0]
    assert [values_of(saver, found.config)["n"] for found in saver.list(config())] == [2, 1, 0]


def test_an_abandoned_listing_holds_nothing(saver: HoldfastSaver) -> None:
    for number in range(5):
        put(saver, config(), n=number)
    abandoned = saver.list(config())
    next(abandoned)
    put(saver, config(), n=5)
    assert values_of(saver, config()) == {"n": 5}

    async def scenario() -> None:
        listing = saver.alist(config())
        await anext(listing)
        await saver.aput(config(), checkpoint(n=6), META, {})
        await listing.aclose()

    asyncio.run(scenario())
    assert values_of(saver, config()) == {"n": 6}


def test_deleting_in_a_fresh_store(saver: HoldfastSaver) -> None:
    saver.delete_thread("nobody")
    asyncio.run(saver.adelete_thread("nobody"))
    saver.prune(["nobody"])
    saver.delete_for_runs(["none"])
    saver.copy_thread("nobody", "somebody")
    assert list(saver.list(None)) == []


def test_a_sync_call_on_the_loops_thread_waits_for_no_network(
    saver: HoldfastSaver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adapters.langgraph.handle._warned_of_blocking", False)
    calls: list[Callable[[], object]] = [
        lambda: put(saver, config(), x=1),
        lambda: saver.get_tuple(config()),
        lambda: saver.put_writes(config(id_="1"), [("x", 1)], "task"),
        lambda: list(saver.list(None)),
    ]

    async def scenario() -> None:
        for number, call in enumerate(calls):
            if store.kind in SERVED:
                with pytest.raises(UsageError, match=r"the network.*ainvoke.*allow_blocking"):
                    call()
            elif number == 0:
                with pytest.warns(RuntimeWarning, match="HoldfastSaver.*blocks the running event loop.*ainvoke"):
                    call()
            else:
                call()  # a second warning would be an error here
        await asyncio.to_thread(put, saver, config(), x=2)
        put(saver_on(store, allow_blocking=True), config("notebook"), x=3)

    asyncio.run(scenario())
    assert values_of(saver, config()) == {"x": 2}
    assert values_of(saver, config("notebook")) == {"x": 3}


@pytest.mark.parametrize("value", ["nul \0 inside", "lone \udc80 surrogate", 2**70, -(2**70), uuid.UUID(int=7), b"\0"])
def test_values_come_back_exactly(saver: HoldfastSaver, value: Any) -> None:
    put(saver, config(), {"source": "loop", "step": 1, "kept": {"in": value}}, top=value, nested={"a": [value]})
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"top": value, "nested": {"a": [value]}}
    assert type(found.checkpoint["channel_values"]["top"]) is type(value)
    assert found.metadata["kept"] == {"in": value}


def test_not_a_number_comes_back(saver: HoldfastSaver) -> None:
    put(saver, config(), top=math.nan, nested=[math.nan, math.inf])
    values = values_of(saver, config())
    assert math.isnan(values["top"])
    assert math.isnan(values["nested"][0])
    assert values["nested"][1] == math.inf


@pytest.mark.parametrize("name", ["nul\0name", "slash/name", "per%2Fcent", "\udc80", "", "ü" * 300])
def test_names_are_data(saver: HoldfastSaver, name: str) -> None:
    put(saver, config(name), x="root")
    put(saver, config(name, ns=name), x="inner")
    put(saver, config("other"), x="other")
    assert values_of(saver, config(name, ns=name)) == {"x": "inner"}
    assert values_of(saver, config(name)) == {"x": "inner" if name == "" else "root"}
    saver.delete_thread(name)
    assert values_of(saver, config(name)) is None
    assert [found.checkpoint["channel_values"]["x"] for found in saver.list(None)] == ["other"]


def test_a_thread_is_not_mistaken_for_anothers_namespace(saver: HoldfastSaver) -> None:
    put(saver, config("a/b"), x="thread a/b")
    put(saver, config("a", ns="b"), x="namespace b of thread a")
    assert values_of(saver, config("a/b")) == {"x": "thread a/b"}
    assert values_of(saver, config("a", ns="b")) == {"x": "namespace b of thread a"}
    assert values_of(saver, config("a")) is None


def test_a_number_names_the_same_thread_as_its_text(saver: HoldfastSaver) -> None:
    where = put(saver, config(1), x=1)
    assert values_of(saver, config("1")) == values_of(saver, config(1)) == {"x": 1}
    assert where["configurable"]["thread_id"] == "1"
    saver.delete_thread(1)
    assert values_of(saver, config("1")) is None


def test_listing_all_threads_is_newest_first(saver: HoldfastSaver) -> None:
    ids = [put(saver, config(thread), x=1)["configurable"]["checkpoint_id"] for thread in ("b", "a", "c", "a")]
    assert [found.checkpoint["id"] for found in saver.list(None)] == ids[::-1]
    assert [found.checkpoint["id"] for found in saver.list(None, limit=2)] == ids[:1:-1]
    assert list(saver.list(None, limit=0)) == []


def test_before_without_an_id_is_ignored(saver: HoldfastSaver) -> None:
    put(saver, config(), x=1)
    assert len(list(saver.list(config(), before=config()))) == 1


def test_an_id_comes_after_those_that_begin_with_it(saver: HoldfastSaver) -> None:
    for id_ in ("a", "ab", "aa", "b"):
        made = checkpoint(id_, x=id_)
        saver.put(config(), made, META, {})
    assert [found.checkpoint["id"] for found in saver.list(config())] == ["b", "ab", "aa", "a"]
    assert [found.checkpoint["id"] for found in saver.list(config(), before=config(id_="ab"))] == ["aa", "a"]
    assert values_of(saver, config(id_="a")) == {"x": "a"}


def test_a_listing_of_many_pages(saver: HoldfastSaver) -> None:
    for number in range(150):
        saver.put(config(), checkpoint(f"{number:04}", n=number), META, {})
    assert [found.checkpoint["channel_values"]["n"] for found in saver.list(config())] == [*range(149, -1, -1)]


def test_putting_again_replaces_value_and_parent(saver: HoldfastSaver) -> None:
    first = put(saver, config(), x=0)
    second = put(saver, config(), x=1)
    made = checkpoint("ffff", x=2)
    saver.put(first, made, META, {})
    saver.put(second, {**made, "channel_values": {"x": 3}}, META, {})
    found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"x": 3}
    assert found.parent_config == second
    assert len(list(saver.list(config()))) == 3
    saver.prune(["t"])
    assert [one.checkpoint["channel_values"] for one in saver.list(None)] == [{"x": 3}]


def test_the_order_is_that_of_ids_not_of_time(saver: HoldfastSaver) -> None:
    saver.put(config(), checkpoint("2", x="newer"), META, {})
    saver.put(config(), checkpoint("1", x="older"), META, {})
    assert values_of(saver, config()) == {"x": "newer"}


def test_writes_may_come_before_their_checkpoint(saver: HoldfastSaver) -> None:
    saver.put_writes(config(id_="1"), [("x", "early")], "task", "path")
    assert saver.get_tuple(config(id_="1")) is None
    saver.put(config(), checkpoint("1"), META, {})
    found = saver.get_tuple(config())
    assert found is not None
    assert found.pending_writes == [("task", "x", "early")]


def test_writes_in_a_mixed_batch_are_decided_one_by_one(saver: HoldfastSaver) -> None:
    where = put(saver, config(), x=1)
    saver.put_writes(where, [("x", "first"), ("__interrupt__", "i1")], "task")
    saver.put_writes(where, [("x", "second"), ("__interrupt__", "i2"), ("y", "new")], "task")
    found = saver.get_tuple(where)
    assert found is not None
    assert found.pending_writes == [("task", "__interrupt__", "i2"), ("task", "x", "first"), ("task", "y", "new")]


def test_writes_are_ordered_by_path_then_task(saver: HoldfastSaver) -> None:
    where = put(saver, config(), x=1)
    for task, path in (("a", "~2"), ("c", "~1"), ("b", "~1"), ("z", "")):
        saver.put_writes(where, [("x", task)], task, path)
    found = saver.get_tuple(where)
    assert found is not None
    assert [value for _, _, value in found.pending_writes or ()] == ["z", "b", "c", "a"]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"a": None}, 1),
        ({"n": {"x": 1}}, 0),
        ({"n": {"y": 2, "x": 1}}, 1),
        ({"k.d": 1}, 1),
        ({"sp ace": 1}, 1),
        ({"n.x": 1}, 0),
        ({"x' OR '1'='1": 1}, 0),
        ({"name": "' OR 1=1 --"}, 0),
        ({"k.d": True}, 1),
    ],
)
def test_filters_compare_values_and_are_never_a_language(saver: HoldfastSaver, wanted: Any, count: int) -> None:
    about = {"source": "loop", "step": 1, "n": {"x": 1, "y": 2}, "k.d": 1, "sp ace": 1, "name": "me"}
    put(saver, config(), about, x=1)
    assert len(list(saver.list(None, filter=wanted))) == count


def test_versions_of_two_branches_differ(saver: HoldfastSaver) -> None:
    one, other = saver.get_next_version(None, None), saver.get_next_version(None, None)
    assert one != other
    assert saver.get_next_version(one, None) > one
    assert saver.get_next_version(7, None).startswith("0" * 31 + "8.")


def test_a_config_without_a_thread_is_refused_by_name(saver: HoldfastSaver) -> None:
    with pytest.raises(UsageError, match="thread_id"):
        saver.get_tuple({"configurable": {}})


def test_what_the_store_expires_is_not_found_any_more(store: Store) -> None:
    saver = saver_on(store)
    first = put(saver, config(), x=1)
    put(saver, first, x=2)
    client = store.client()
    session = client.sessions()[0]
    assert session.session_id == "lg/t"
    client.expire(session.head.checkpoint_id)
    assert values_of(saver, config()) == {"x": 1}
    put(saver, config(), x=3)
    assert values_of(saver, config()) == {"x": 3}
    assert client.verify().ok
    client.gc()
    assert [found.checkpoint["channel_values"]["x"] for found in saver.list(config())] == [3, 1]


def test_a_deleted_thread_begins_anew(store: Store) -> None:
    saver = saver_on(store)
    put(saver, put(saver, config(), x=1), x=2)
    saver.delete_thread("t")
    store.client().gc()
    put(saver, config(), x=3)
    assert values_of(saver, config()) == {"x": 3}
    saver.delete_thread("t")
    put(saver_on(store), config(), x=4)
    assert [found.checkpoint["channel_values"] for found in saver.list(None)] == [{"x": 4}]
    assert store.client().verify().ok
