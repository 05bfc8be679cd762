"""Clocks, samples and what is said about them."""

import gc
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Samples:
    """Wall and CPU seconds of many calls of one operation. CPU is the whole process's, worker threads included."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    async def time(self, awaitable: Awaitable[Any]) -> Any:
        cpu, wall = time.process_time(), time.perf_counter()
        result = await awaitable
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        return result

    def start(self) -> Callable[[], None]:
        """Starts the clocks; what it returns stops them and takes the sample."""
        cpu, wall = time.process_time(), time.perf_counter()

        def stop() -> None:
            self.wall.append(time.perf_counter() - wall)
            self.cpu.append(time.process_time() - cpu)

        return stop

    def extend(self, other: "Samples") -> None:
        self.wall += other.wall
        self.cpu += other.cpu

    def last(self, count: int) -> "Samples":
        return Samples(self.wall[-count:], self.cpu[-count:])

    def summary(self) -> dict[str, float]:
        return {
            "p50_ms": milliseconds(statistics.median(self.wall)),
            "p99_ms": milliseconds(percentile(self.wall, 0.99)),
            "cpu_p50_ms": milliseconds(statistics.median(self.cpu)),
            "samples": len(self.wall),
        }


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 4)


def shuffled(values: Iterable[Any], order: random.Random) -> list[Any]:
    """So that whatever one contender leaves behind (dirty pages, a busy disk) meets each of the others in turn."""
    mixed = list(values)
    order.shuffle(mixed)
    return mixed


def settle() -> None:
    """Let garbage of one measurement not be collected in the next."""
    gc.collect()
