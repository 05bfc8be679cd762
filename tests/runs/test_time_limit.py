"""Time limits of steps and effects: a late result is discarded, and a cut-off effect is in doubt."""

import asyncio
import threading

import pytest

from holdfast import Client, EffectUnknownError, Retry, StepTimeoutError, UsageError, time_limit


@pytest.mark.slow
def test_a_step_that_takes_too_long_fails_and_its_late_result_is_discarded(quick):
    may_end, ended = threading.Event(), threading.Event()

    def late(number):
        may_end.wait(60)
        ended.set()
        return number

    with pytest.raises(StepTimeoutError, match="late has taken longer than 0"), quick.run("s") as run:
        run.step("slow", time_limit(0.1)(late), 1)
    assert not ended.is_set()
    may_end.set()
    assert ended.wait(60)
    with quick.run("s") as run:
        assert run.step("slow", lambda: "again") == "again"


def test_a_call_within_its_time_is_as_without_a_limit(quick):
    with quick.run("s") as run:
        assert run.step("quick", time_limit(30)(lambda number: number + 1), 1) == 2
        with pytest.raises(ZeroDivisionError):
            run.step("fails", time_limit(30)(lambda: 1 / 0))


def test_an_effect_that_takes_too_long_is_in_doubt(quick):
    may_end = threading.Event()

    def slow(number):
        may_end.wait(60)
        return number

    for expected in (StepTimeoutError, EffectUnknownError):
        with pytest.raises(expected), quick.run("s") as run:
            run.effect("pay", time_limit(0.1)(slow), number=5, key="k")
    may_end.set()
    assert quick.run_status("s").status == "in doubt"


@pytest.mark.slow
def test_a_limit_counts_for_each_attempt(quick):
    tries, may_end = [], threading.Event()

    @time_limit(3)  # the last attempt ends within it on a busy machine, too
    def sometimes():
        tries.append(1)
        if len(tries) < 3:
            may_end.wait(60)
        return "done"

    with quick.run("s") as run:
        assert run.step("sometimes", sometimes, retry=Retry(attempts=5, seconds=0)) == "done"
    assert len(tries) == 3
    may_end.set()


def test_a_coroutine_is_cancelled():
    ended = []

    @time_limit(0.1)
    async def hangs():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(1)

    async def main():
        async with Client.memory() as client, client.run("s") as run:
            with pytest.raises(StepTimeoutError):
                await run.step("hangs", hangs)
            assert await run.step("fine", time_limit(30)(asyncio.sleep), 0, "x") == "x"

    asyncio.run(main())
    assert ended == [1]


def test_a_timeout_of_the_function_itself_stays_its_own():
    @time_limit(30)
    async def own():
        raise TimeoutError("of a socket")

    with pytest.raises(TimeoutError, match="of a socket"):
        asyncio.run(own())


@pytest.mark.parametrize("wrong", [0, -1, "1", None])
def test_a_limit_is_a_number_of_seconds(wrong):
    with pytest.raises(UsageError):
        time_limit(wrong)
