"""The first save of a process into a session, through `Client`: some states are encoded before the store is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from stores import Store

from holdfast import Client, ConflictError, UnsupportedValueError


def messages(count: int, version: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "content": "words " * 60, "version": version} for number in range(count)]


FOLLOWERS = {
    "the same": lambda before: before,
    "more": lambda before: [*before, {"id": -1}],
    "much more": lambda before: [*before, *messages(100, 1)],
    "fewer": lambda before: before[:150],
    "edited": lambda before: [*before[:50], {"id": "edited"}, *before[51:]],
    "another": lambda _: messages(180, 2),
    "none": lambda _: [],
    "with bytes": lambda before: [*before, bytearray(b"x"), b"y", (1, 2)],
}


@pytest.mark.parametrize("name", FOLLOWERS)
@pytest.mark.parametrize("raw", [False, True])
def test_whatever_follows_is_restored_exactly(store: Store, name: str, raw: bool):
    before: list[Any] = [*messages(200), bytearray(b"raw")] if raw else messages(200)
    after = FOLLOWERS[name](before)

    async def main() -> None:
        backend = store.backend()
        first = await Client(backend).save("a", execution_state={"messages": before}, session_id="s")
        client = Client(backend)
        cid = await client.save("a", execution_state={"messages": after, "step": 1}, session_id="s")
        restored = (await client.restore(cid)).execution_state
        assert restored == {"messages": after, "step": 1}
        assert list(map(type, restored["messages"])) == list(map(type, after))
        assert (await client.restore(first)).execution_state == {"messages": before}
        assert (await client.get(cid)).parent_id == first
        assert (await client.verify()).ok

    asyncio.run(main())


@pytest.mark.parametrize("count", [0, 3, 200])
def test_a_declared_append_follows_lists_of_any_length(store: Store, count: int):
    async def main() -> None:
        backend = store.backend()
        await Client(backend).save("a", execution_state={"messages": messages(count)}, session_id="s")
        client = Client(backend)
        cid = await client.save("a", execution_state={"step": 1}, append={"messages": [{"id": "new"}]}, session_id="s")
        restored = (await client.restore(cid)).execution_state
        assert restored == {"step": 1, "messages": [*messages(count), {"id": "new"}]}

    asyncio.run(main())


def test_a_state_that_is_changed_meanwhile_is_saved_as_it_was_at_one_moment(store: Store):
    async def main() -> None:
        backend = store.backend()
        await Client(backend).save("a", execution_state={"messages": messages(200), "version": 0}, session_id="s")
        client = Client(backend)
        state: dict[str, Any] = {"messages": messages(201), "version": 0}
        saving = asyncio.ensure_future(client.save("a", execution_state=state, session_id="s"))
        for version in range(1, 6):
            await asyncio.sleep(0)
            for message in state["messages"]:
                message["version"] = version
            state["version"] = version
        restored = (await client.restore(await saving)).execution_state
        assert {message["version"] for message in restored["messages"]} == {restored["version"]}

    asyncio.run(main())


def test_many_that_meet_a_session_at_once_make_one_line(store: Store):
    async def main() -> None:
        backend = store.backend()
        await Client(backend).save("a", execution_state={"messages": messages(200)}, session_id="s")
        client = Client(backend)
        saves = [client.save("a", append={"messages": [{"id": f"new {n}"}]}, session_id="s") for n in range(20)]
        await asyncio.gather(*saves)
        latest = await client.latest(session_id="s")
        assert latest is not None
        assert latest.sequence == 21
        assert {m["id"] for m in latest.execution_state["messages"][200:]} == {f"new {n}" for n in range(20)}

    asyncio.run(main())


def test_what_can_t_be_kept_is_refused_by_name(store: Store):
    async def main() -> None:
        backend = store.backend()
        await Client(backend).save("a", execution_state={"messages": messages(200)}, session_id="s")
        client = Client(backend)
        with pytest.raises(UnsupportedValueError, match=r"execution_state\.messages\[200\]"):
            await client.save("a", execution_state={"messages": [*messages(200), object()]}, session_id="s")
        with pytest.raises(UnsupportedValueError, match=r"execution_state\.messages\[200\]"):
            await client.save("a", append={"messages": [object()]}, session_id="s")
        assert len(await client.timeline(session_id="s")) == 1

    asyncio.run(main())


def test_a_head_that_was_not_expected_is_refused(store: Store):
    async def main() -> None:
        backend = store.backend()
        first = await Client(backend).save("a", execution_state={"messages": messages(200)}, session_id="s")
        second = await Client(backend).save("a", execution_state={"messages": messages(201)}, session_id="s")
        with pytest.raises(ConflictError, match="expected"):
            await Client(backend).save("a", execution_state={"messages": []}, session_id="s", expect_head=first)
        third = await Client(backend).save("a", execution_state={"n": 3}, session_id="s", expect_head=second)
        forked = await Client(backend).save(
            "a", execution_state={"messages": messages(202)}, session_id="s", parent_id=first
        )
        client = Client(backend)
        assert (await client.get(third)).parent_id == second
        assert (await client.get(forked)).parent_id == first
        assert (await client.restore(forked)).execution_state == {"messages": messages(202)}

    asyncio.run(main())
