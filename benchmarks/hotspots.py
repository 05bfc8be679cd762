"""Where the time of our own operations goes: `python -m benchmarks.hotspots writers|history|declared|restore`.

A thread looks at all other threads a thousand times a second. Calls into C (SQLite, the encoder, the hash, the
compressor) count for the line of Python that makes them; threads that only wait are left out.
"""

import asyncio
import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Self

from benchmarks.contenders.contender import kept_on_disk, opened
from benchmarks.contenders.holdfast_sqlite import HoldfastDeclared, HoldfastUndeclared
from benchmarks.conversation import Conversation, Step, small_state

HERE = Path(__file__).resolve().parent
SECONDS = 8.0
SHOWN = 25
HISTORY = 1_200_000
WAITING = {("threading.py", "wait"), ("selectors.py", "select"), ("backends/bridge/worker_thread.py", "_work")}


class Sampler:
    def __init__(self) -> None:
        self._own: Counter[tuple[str, str]] = Counter()
        self._within: Counter[tuple[str, str]] = Counter()
        self._threads: Counter[str] = Counter()
        self._samples = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(0.0002)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        sys.setswitchinterval(self._interval)

    def _run(self) -> None:
        me = threading.get_ident()
        while not self._stop.wait(0.001):
            self._samples += 1
            for ident, frame in sys._current_frames().items():
                if ident != me and _name(frame)[0] not in WAITING:
                    self._count(frame, next((t.name for t in threading.enumerate() if t.ident == ident), "?"))

    def _count(self, frame: FrameType, thread: str) -> None:
        self._threads[thread] += 1
        function, line = _name(frame)
        self._own[(_words(function), f"{line}")] += 1
        seen = set()
        at: FrameType | None = frame
        while at is not None:
            seen.add(_words(_name(at)[0]))
            at = at.f_back
        for function_words in seen:
            self._within[(function_words, "")] += 1

    def print(self) -> None:
        total = max(1, self._samples)
        print(f"{self._samples} samples; busy threads: {dict(self._threads)}")
        for title, counter in (("own time, by line", self._own), ("within, by function", self._within)):
            print(f"\n{title}")
            for (name, line), count in counter.most_common(SHOWN):
                print(f"{count / total:7.1%}  {name}{':' + line if line else ''}")


def _name(frame: FrameType) -> tuple[tuple[str, str], int]:
    return (_short(frame.f_code.co_filename), frame.f_code.co_name), frame.f_lineno


def _short(filename: str) -> str:
    parts = Path(filename).parts
    return "/".join(parts[parts.index("holdfast") + 1 :]) if "holdfast" in parts else parts[-1]


def _words(function: tuple[str, str]) -> str:
    return f"{function[0]} {function[1]}"


async def writers(store: HoldfastUndeclared, until: float) -> int:
    """32 tasks save a 1 KB state each, as in workload B."""

    async def write(writer: int) -> int:
        state = small_state(seed=writer)
        for number in itertools.count(1):
            state["scratch"]["step"] = number
            await store.save(f"writer-{writer}", Step(number, state, state, []))
            if time.perf_counter() > until:
                return number
        raise AssertionError

    return sum(await asyncio.gather(*(write(writer) for writer in range(32))))


async def steps(store: HoldfastUndeclared, until: float) -> int:
    """One more step at 1.2 MB of history, again and again."""
    conversation = Conversation(seed=2)
    await store.save("history", conversation.grow_to(HISTORY))
    for number in itertools.count(1):
        await store.save("history", conversation.advance())
        if time.perf_counter() > until:
            return number
    raise AssertionError


async def restores(store: HoldfastUndeclared, until: float) -> int:
    conversation = Conversation(seed=2)
    await store.save("history", conversation.grow_to(HISTORY))
    for _ in range(50):
        last = await store.save("history", conversation.advance())
    for number in itertools.count(1):
        await store.restore("history", last)
        if time.perf_counter() > until:
            return number
    raise AssertionError


PROFILES: dict[str, tuple[type[HoldfastUndeclared], Callable[[HoldfastUndeclared, float], Awaitable[int]]]] = {
    "writers": (HoldfastUndeclared, writers),
    "history": (HoldfastUndeclared, steps),
    "declared": (HoldfastDeclared, steps),
    "restore": (HoldfastUndeclared, restores),
}


async def profile(name: str) -> None:
    kind, work = PROFILES[name]
    store = kind(HERE / ".stores" / f"hotspots-{name}-{os.getpid()}")
    with kept_on_disk([store]):
        async with opened([store]):
            cpu, began = time.process_time(), time.perf_counter()
            with Sampler() as sampler:
                count = await work(store, began + SECONDS)
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"{name}: {count} operations, {wall / count * 1e6:.0f} µs wall, {cpu / count * 1e6:.0f} µs CPU each (sampled)"
    )
    sampler.print()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PROFILES:
        sys.exit(f"usage: python -m benchmarks.hotspots {'|'.join(PROFILES)}")
    asyncio.run(profile(sys.argv[1]))
