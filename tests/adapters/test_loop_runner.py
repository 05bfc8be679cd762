"""The event loop of entry points that block."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import UsageError
from holdfast.adapters.base.loop_runner import LoopRunner


def test_calls_of_several_threads_run_one_after_the_other_in_one_loop():
    runner, loops = LoopRunner(), []
    begin = threading.Barrier(4)

    async def work() -> int:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0.01)
        return len(loops)

    def call(_: int) -> int:
        begin.wait(30)
        return runner.run(work())

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(call, range(4))) == [1, 2, 3, 4]
    assert len(set(map(id, loops))) == 1


@pytest.mark.filterwarnings("error")
def test_a_call_within_an_event_loop_is_refused_and_leaves_no_coroutine():
    async def work() -> None:
        raise AssertionError

    async def main() -> None:
        with pytest.raises(UsageError, match="within an event loop"):
            LoopRunner().run(work())

    asyncio.run(main())
