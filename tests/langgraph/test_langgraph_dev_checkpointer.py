"""`dev_checkpointer`, without the server: settings from the environment. test_langgraph_dev.py has
it with the real one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import HumanMessage
from langgraph_savers import chat_graph, config

from holdfast import SyncClient
from holdfast.errors import UsageError
from holdfast.langgraph import HoldfastSaver, HoldfastStore, dev_checkpointer, dev_store


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOLDFAST_URL", "HOLDFAST_TTL_SECONDS", "HOLDFAST_KEEP_LAST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def talk(turns: int = 1) -> None:
    async def scenario() -> None:
        async with dev_checkpointer() as saver:
            for turn in range(turns):
                await chat_graph(saver).ainvoke({"messages": [HumanMessage(str(turn))]}, config())

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "made"),
    [(None, ".holdfast/store.db"), ("", ".holdfast/store.db"), ("a/b.db", "a/b.db"), ("sqlite:///c.db", "c.db")],
)
def test_where_the_store_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str | None, made: str) -> None:
    if url is not None:
        monkeypatch.setenv("HOLDFAST_URL", url)
    talk()
    with SyncClient.sqlite(tmp_path / made) as client:
        assert [session.session_id for session in client.sessions()] == ["lg/t"]


def test_how_long_and_how_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_TTL_SECONDS", "3600")
    monkeypatch.setenv("HOLDFAST_KEEP_LAST", "2")
    talk(turns=20)
    with SyncClient.sqlite() as client:
        [session] = client.sessions()
        assert session.head.ttl_seconds == 3600
        assert len(client.timeline(agent_id="langgraph", session_id="lg/t", limit=100)) < session.saves


@pytest.mark.parametrize("name", ["HOLDFAST_TTL_SECONDS", "HOLDFAST_KEEP_LAST"])
@pytest.mark.parametrize("value", ["soon", "-1"])
def test_what_is_no_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name if value == "soon" else "ttl_seconds|keep_last"):
        talk()


def test_opening_and_closing_do_not_block_the_loop() -> None:
    talk()  # lazy imports are done

    async def scenario() -> Any:
        with blockbuster_ctx():
            async with (
                dev_checkpointer() as first,
                dev_checkpointer() as second,
            ):  # one for each of the server's threads
                assert isinstance(first, HoldfastSaver)
                await chat_graph(first).ainvoke({"messages": [HumanMessage("1")]}, config())
                await chat_graph(second).ainvoke({"messages": [HumanMessage("2")]}, config())
                return (await first.aget_tuple(config())).checkpoint["channel_values"]["messages"]

    assert len(asyncio.run(scenario())) == 6


def test_the_store_of_the_dev_server_does_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setenv("HOLDFAST_URL", "memories.db")
    monkeypatch.setenv("HOLDFAST_TTL_SECONDS", "3600")  # of checkpoints: it does not concern items

    async def scenario() -> Any:
        async with dev_store() as first:  # lazy imports are done
            assert isinstance(first, HoldfastStore)
            await first.aput(("a",), "k", {"n": 1}, ttl=60)
            await first.asearch(("a",), filter={"n": 1})
        with blockbuster_ctx():
            async with dev_store() as store:
                await store.aput(("a",), "k", {"n": 2}, ttl=60)
                assert [item.value for item in await store.asearch(("a",))] == [{"n": 2}]
                assert await store.alist_namespaces() == [("a",)]
                await store.asweep_ttl()
                return (await store.aget(("a",), "k")).value

    assert asyncio.run(scenario()) == {"n": 2}
