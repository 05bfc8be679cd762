"""Publishers and consumers of a topic, for crash tests.

    python topic_consumers.py URL publish SESSION COUNT | consume SESSION PAUSE
    python topic_consumers.py URL burst NAME COUNT [one-lane] | slow SESSION [SECONDS] | slow-subscriber NAME

A consumer adds each number to its state, and publishes a result, in one commit. It ends when nothing has come for
three seconds; what it says is for the test that has started it. A slow one says that it has a message, and handles it
once it hears a line; its lease lasts SECONDS.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from acknowledged import say

from holdfast import LeaseLostError, SyncClient
from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.port import BlockingBackend, Commit
from holdfast.backends.url import open_backend
from holdfast.operations import publish as publishing

TOPIC, RESULTS, GROUP = "numbers", "results", "adders"
LEASE_SECONDS = 2.0


def publish(client: SyncClient, session: str, count: int, *, key: bool = False) -> None:
    """Publish numbers in a run, half of them with a step before; a second life continues where the first ended."""
    with client.run(session, "publisher") as run:
        for number in range(count):
            if number % 2:
                run.step("think", lambda: 1)
            run.publish(TOPIC, number, key=f"k{number % 3}" if key else None)


def consume(client: SyncClient, session: str, *, batch: int = 1, timeout: float = 0.0, pause: float = 0.0) -> None:
    """Consume until nothing has come for a while; each message takes at least `pause` seconds."""
    with client.run(session, "consumer") as run:
        run.state.setdefault("seen", [])
        for message in run.receive(TOPIC, GROUP, batch=batch, timeout=timeout):
            run.state["seen"].append(message.value)
            result = run.step("double", lambda value: 2 * value, message.value)
            time.sleep(pause)
            run.publish(RESULTS, {"of": message.value, "result": result})


def burst(client: SyncClient, refusals: Refusals, name: str, count: int) -> None:
    """Publish at once as fast as possible; say how many commits were refused, and how long each message took."""
    say(ready=name)
    sys.stdin.readline()
    seconds = []
    for number in range(count):
        began = time.perf_counter()
        client.publish(TOPIC, [name, number])
        seconds.append(time.perf_counter() - began)
    say(refused=refusals.count, seconds=seconds)


def consume_slowly(client: SyncClient, session: str, seconds: float) -> None:
    try:
        with client.run(session, "consumer", seconds=seconds) as run:
            run.state.setdefault("seen", [])
            for message in run.receive(TOPIC, GROUP, timeout=0):
                say(has=message.value)
                sys.stdin.readline()
                run.state["seen"].append(message.value)
    except LeaseLostError as error:
        say(refused=type(error).__name__)
    else:
        say(saved=True)


def subscribe_slowly(client: SyncClient) -> None:
    for message in client.subscribe(TOPIC, GROUP, seconds=LEASE_SECONDS, timeout=0):
        say(has=message.value)
        sys.stdin.readline()
        client.publish(RESULTS, {"of": message.value})  # the effect
        say(acknowledged=message.ack())
        break


class Refusals:
    """A backend that counts the commits that were refused."""

    def __init__(self, inner: BlockingBackend) -> None:
        self._inner = inner
        self.count = 0

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        outcomes = self._inner.commit_all(commits)
        self.count += sum(one is not None for one in outcomes)
        return outcomes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def seen(client: SyncClient, *sessions: str) -> list[int]:
    """The numbers that these sessions have consumed, as their last checkpoints have them."""
    states = [client.latest(one).execution_state for one in sessions if client.session(one) is not None]
    return sorted(value for state in states for value in state.get("seen", ()))


def results(client: SyncClient) -> list[int]:
    return sorted(one.value["of"] for one in client.messages(RESULTS))


def main() -> None:
    url, role, session, *rest = sys.argv[1:]
    options: dict[str, Any] = {} if url.startswith("redis") else {"durability": "fast"}
    opened = open_backend(url, **options)
    backend: Any = blocking(opened) if opened.capabilities.awaitable else opened
    refusals = Refusals(backend)
    client = SyncClient(refusals)
    if "one-lane" in rest:
        publishing._lane = lambda *_: f"topic/{TOPIC}/2026-01-01/all"
    match role:
        case "publish":
            publish(client, session, int(rest[0]))
        case "burst":
            burst(client, refusals, session, int(rest[0]))
        case "slow":
            consume_slowly(client, session, float(rest[0]) if rest else LEASE_SECONDS)
        case "slow-subscriber":
            subscribe_slowly(client)
        case _:
            say(ready=True)
            consume(client, session, batch=4, timeout=3.0, pause=float(rest[0]))
    say(done=True)


if __name__ == "__main__":
    main()
