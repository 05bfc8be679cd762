"""The saver among others: an event loop that must not be blocked, and other processes on the same store."""

from __future__ import annotations

import asyncio

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import HumanMessage
from langgraph_savers import chat_graph, checkpoint, config, saver_on
from paths import SUPPORT
from stores import Store, python, python_process

from holdfast.langgraph import HoldfastSaver

PROCESSES, STEPS = 8, 6


def test_no_async_method_blocks_the_event_loop(store: Store) -> None:
    saver = saver_on(store)

    async def scenario() -> int:
        await chat_graph(saver).ainvoke({"messages": [HumanMessage("x" * 5000)]}, config())  # lazy imports are done
        with blockbuster_ctx():
            for _ in range(4):
                await chat_graph(saver).ainvoke({"messages": [HumanMessage("x" * 5000)]}, config())
            where = await saver.aput(config("u"), checkpoint(x=1), {"source": "loop", "step": 0, "run_id": "r"}, {})
            await saver.aput_writes(where, [("x", 1)], "task")
            await saver.aget_tuple(where)
            await saver.aget_delta_channel_history(config=where, channels=["x"])
            await saver.acopy_thread("t", "copied")
            found = len([one async for one in saver.alist(None)])
            await saver.aprune(["copied"])
            await saver.adelete_for_runs(["r"])
            await saver.adelete_thread("t")
            return found

    assert asyncio.run(scenario()) == 15 + 1 + 15


def test_making_the_store_does_not_block_the_event_loop(store: Store) -> None:
    async def scenario(saver: HoldfastSaver) -> None:
        await chat_graph(saver).ainvoke({"messages": [HumanMessage("first")]}, config())

    asyncio.run(scenario(HoldfastSaver.memory()))  # lazy imports are done
    saver = saver_on(store)

    async def watched() -> None:
        with blockbuster_ctx():
            await scenario(saver)

    asyncio.run(watched())


@pytest.mark.slow
def test_processes_that_put_to_one_store_lose_nothing(disk_store: Store) -> None:
    program = """
        import sys
        sys.path.insert(0, sys.argv[4])
        from langgraph_savers import checkpoint, config
        from holdfast.langgraph import HoldfastSaver
        url, number, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        saver = HoldfastSaver.from_url(url, durability="fast")
        for step in range(steps):
            thread = config(f"shared-{step % 2}")
            made = saver.put(thread, checkpoint(x=[number, step]), {"source": "loop", "step": step}, {})
            saver.put_writes(made, [("x", number)], f"task {number}")
        print("done")
    """
    here = str(SUPPORT)
    children = [python_process(program, disk_store.url, str(number), str(STEPS), here) for number in range(PROCESSES)]
    for child in children:
        said, complained = child.communicate(timeout=240)
        assert (said, complained) == ("done\n", "")
    found = list(saver_on(disk_store).list(None))
    values = sorted(one.checkpoint["channel_values"]["x"] for one in found)
    assert values == [[number, step] for number in range(PROCESSES) for step in range(STEPS)]
    assert all(len(one.pending_writes or ()) == 1 for one in found)
    assert disk_store.client().verify().ok


def test_without_langgraph_the_error_says_what_to_install() -> None:
    done = python(
        """
        import sys
        import holdfast  # does not need it
        sys.modules["langgraph.checkpoint.base"] = None
        try:
            import holdfast.langgraph
        except ModuleNotFoundError as error:
            print(error)
        """
    )
    assert "pip install 'holdfast[langgraph]'" in done.stdout
