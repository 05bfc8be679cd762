"""What checkpnt's README shows, with nothing but the import and the class's name changed."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import checkpnt
import pytest
from langchain_core.messages import HumanMessage
from langgraph_savers import chat_graph

import holdfast
from holdfast import UsageError
from holdfast.adapters.langgraph import HoldfastSaver, LangGraphAdapter


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


LIBRARIES = [checkpnt, holdfast]  # the first is the control
STORES = ["default", "./dev.db", pytest.param("redis", marks=(pytest.mark.servers, pytest.mark.slow))]


@pytest.mark.parametrize("library", LIBRARIES, ids=["checkpnt", "holdfast"])
@pytest.mark.parametrize("store", STORES)
def test_quick_start_and_the_five_operations(library: Any, store: str, request: pytest.FixtureRequest) -> None:
    run = str(uuid.uuid4())  # a server has what others saved
    if store == "redis":
        opened = library.Client.redis(request.getfixturevalue("redis_url"))
    else:
        opened = library.Client.sqlite() if store == "default" else library.Client.sqlite(store)

    async def main() -> None:
        async with opened as client:
            first = await client.save(
                agent_id="invoice-processor",
                framework=library.Framework.LANGGRAPH,
                execution_state={"step": 3},
                context={"invoice_id": "INV-4821", "step": "validate"},
            )
            assert (await client.restore(first)).execution_state == {"step": 3}
            graph_state = {"messages": ["result from step 3"], "step": 3}
            checkpoint_id = await client.save(
                agent_id="processor",
                framework=library.Framework.LANGGRAPH,
                execution_state=graph_state,
                context={"run_id": "run-001"},
                session_id=run,
                step_index=3,
                step_name="after_tool_call",
                ttl_seconds=3600,
            )
            checkpoint = await client.restore(checkpoint_id)
            assert checkpoint.execution_state["step"] == 3
            assert checkpoint.schema_version == "1.0"
            assert (checkpoint.agent_id, checkpoint.session_id, checkpoint.parent_id) == ("processor", run, None)
            assert checkpoint.framework == library.Framework.LANGGRAPH
            assert (checkpoint.step_index, checkpoint.ttl_seconds) == (3, 3600)
            assert (checkpoint.agent_context, checkpoint.handoff_target) == ({"run_id": "run-001"}, None)
            assert len(checkpoint.checksum) == 64
            assert checkpoint.created_at.utcoffset().total_seconds() == 0
            handoff_id = await client.handoff(checkpoint_id, target_agent_id="approval-agent")
            history = await client.timeline(agent_id="processor", session_id=run)
            assert [cp.checkpoint_id for cp in history] == [handoff_id, checkpoint_id]
            assert [cp.step_index for cp in history] == [4, 3]
            assert await client.expire(checkpoint_id)

    asyncio.run(main())


def test_pattern_1_invoke_within_async_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.adapters.langgraph.handle._warned_of_blocking", False)
    config: Any = {"configurable": {"thread_id": "t"}}

    async def main() -> None:
        async with HoldfastSaver.from_sqlite("./checkpnt_local.db") as saver:
            app = chat_graph(saver)
            with pytest.warns(RuntimeWarning, match="blocks the running event loop"):
                app.invoke({"messages": [HumanMessage("hi")]}, config=config)
            result = app.invoke({"messages": [HumanMessage("again")]}, config=config)
            assert len(result["messages"]) == 4

    asyncio.run(main())
    assert (tmp_path / "checkpnt_local.db").exists()


@pytest.mark.servers
@pytest.mark.slow
def test_pattern_1_over_a_network_takes_ainvoke(redis_url: str) -> None:
    config: Any = {"configurable": {"thread_id": str(uuid.uuid4())}}
    asked: Any = {"messages": [{"role": "user", "content": "hi"}]}

    async def main() -> None:
        async with HoldfastSaver.from_redis(redis_url) as saver:
            app = chat_graph(saver)
            with pytest.raises(UsageError, match="ainvoke"):
                app.invoke(asked, config=config)
            assert len((await app.ainvoke(asked, config=config))["messages"]) == 2

    asyncio.run(main())
    with HoldfastSaver.from_redis(redis_url) as saver:
        assert len(chat_graph(saver).invoke(asked, config=config)["messages"]) == 4


def test_pattern_2_by_hand() -> None:
    config: Any = {"configurable": {"thread_id": "t"}}

    async def main() -> None:
        async with HoldfastSaver.memory(allow_blocking=True) as saver, holdfast.Client.memory() as client:
            app = chat_graph(saver)
            app.invoke({"messages": [HumanMessage("hi")]}, config=config)
            adapter = LangGraphAdapter()
            state_snapshot = app.get_state(config)
            checkpoint = adapter.extract(
                state_snapshot,
                agent_id="my-agent",
                context={"invoice_id": "INV-001"},
            )
            checkpoint_id = await client._backend.save(checkpoint)
            checkpoint = await client.restore(checkpoint_id)
            restored = adapter.reconstruct(checkpoint)
            assert restored["values"] == state_snapshot.values == restored.values
            assert restored["next"] == ()
            assert restored["config"]["configurable"]["thread_id"] == restored["thread_id"] == "t"
            assert restored["agent_context"] == {"invoice_id": "INV-001"}
            assert restored["checkpoint_id"] == checkpoint_id
            assert restored["metadata"]["source"] == "loop"
            assert restored[0] is restored.values
            with pytest.raises(KeyError):
                restored["nothing"]

    asyncio.run(main())


def test_everything_that_extract_takes() -> None:
    adapter = LangGraphAdapter()
    snapshot = {"values": {"n": 1}, "next": ["ask"], "config": {"configurable": {"thread_id": "t"}}, "metadata": None}
    built = adapter.extract(snapshot, "me", step_index=7, step_name="by hand", ttl_seconds=60, tenant_note="a")
    assert (built.session_id, built.step_index, built.step_name, built.ttl_seconds) == ("t", 7, "by hand", 60)
    assert built.metadata == {"tenant_note": "a"}
    assert built.execution_state["next"] == ("ask",)
    parent = adapter.extract(snapshot, agent_id="me", session_id="s", parent_id=built.checkpoint_id).parent_id
    assert parent == built.checkpoint_id
