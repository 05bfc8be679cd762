"""Driver that kills a program with an effect at every point: each life is a process.

    python crash_worker.py <store url> <directory> <how: json>

Prints one JSON line per point: where it was killed, what the lives after it came to, and how often
the outside world saw the effect. The outside world is a file: no store, rollback or fork changes
it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import NOT_DONE, Done, EffectBlockedError, EffectUnknownError, SyncClient, SyncRun
from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.url import open_backend

OUTSIDE_POINTS = ("effect begins", "effect ends")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Killing:
    """A backend that dies before or after its nth commit."""

    def __init__(self, inner: Any, point: str) -> None:
        self._inner = inner
        self._point = point
        self._commits = 0

    def commit_all(self, commits: Any) -> Any:
        self._commits += 1
        if self._point == f"before commit {self._commits}":
            die()
        outcome = self._inner.commit_all(commits)
        if self._point == f"after commit {self._commits}":
            die()
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class World:
    """What is outside: lines of a file, each with the key that the call came with."""

    def __init__(self, path: Path, point: str) -> None:
        self._path = path
        self._point = point

    def pay(self, to: str, amount: int, ref: str = "", *, idempotency_key: str = "") -> str:
        if self._point == "effect begins":
            die()
        with self._path.open("a") as file:
            file.write(f"{to} {amount} {idempotency_key}\n")
            file.flush()
            os.fsync(file.fileno())
        if self._point == "effect ends":
            die()
        return "receipt"

    def find(self, to: str, amount: int, ref: str = "", *, idempotency_key: str = "") -> Any:
        return Done("found") if any(line.split()[2] == idempotency_key for line in self.lines()) else NOT_DONE

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


def told_of(pays: Callable[[], object]) -> str:
    try:
        return str(pays())
    except EffectUnknownError:
        return "unknown"
    except EffectBlockedError:
        return "blocked"


def pay_three(run: SyncRun, world: World, by: str) -> str:
    """Three payments that differ by key, task, sub-agent or declared identity; or, as a control, by
    their arguments only."""
    told = []
    if by == "task":
        for task in run.tasks("invoices", ["a", "b", "c"]):
            told.append(told_of(lambda to=task.id: run.effect("pay", world.pay, to, 500)))
            if told[-1] != "receipt":
                task.fail("not paid")
        return ",".join(told)
    for to in ("a", "b", "c"):
        if by == "sub-agent":
            with run.subagent("payer", subagent_id=to) as payer:
                told.append(told_of(lambda to=to, payer=payer: payer.effect("pay", world.pay, to, 500)))
            continue
        options: dict[str, Any] = {"key": {"key": to}, "identity": {"identity": ("to",)}, "arguments": {}}[by]
        told.append(told_of(lambda to=to, options=options: run.effect("pay", world.pay, to, 500, **options)))
    return ",".join(told)


def program(run: SyncRun, world: World, how: dict[str, Any]) -> str:
    run.step("plan", lambda: "plan")
    if "three_by" in how:
        return pay_three(run, world, how["three_by"])
    options: dict[str, Any] = {"kind": how["kind"], "identity": ("to", "amount")}
    if how.get("probe"):
        options["probe"] = world.find
    if how.get("as_step"):  # the positive control: what peers do
        got = run.step("pay", world.pay, "bob", 500)
    else:
        got = run.effect("pay", world.pay, "bob", how.get("amount", 500), os.urandom(4).hex(), **options)
    run.step("tell", lambda: "told")
    return str(got)


def open_client(url: str, point: str) -> SyncClient:
    backend: Any = open_backend(url)
    return SyncClient(Killing(blocking(backend) if backend.capabilities.awaitable else backend, point))


def life(url: str, session: str, world: World, point: str, how: dict[str, Any]) -> str:
    client = open_client(url, point)
    try:
        with client.run(session, agent_id="a") as run:
            return program(run, world, how)
    except EffectUnknownError:
        return "unknown"
    except EffectBlockedError:
        return "blocked"
    finally:
        client.close()


def in_a_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """What the work came to in a process of its own; "killed" if that was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(work(*arguments)).encode())
            os._exit(0)
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-2000:])
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed"
    if os.WEXITSTATUS(status):
        raise RuntimeError(told)
    return json.loads(told)


def aftermath(url: str, session: str, world_file: Path, how: dict[str, Any]) -> tuple[int, list[str]]:
    """What the store says of the effect, and what two more lives come to, after a rollback or in a fork perhaps."""
    client = open_client(url, "")
    doubts = len([effect for effect in client.effects(in_doubt=True) if effect.session_id == session])
    listed = client.timeline(session_id=session, limit=None)
    if listed and how.get("then") == "rollback":
        client.rollback(session, listed[-1].checkpoint_id)
    if listed and how.get("then") == "fork":
        session = client.fork(listed[-1].checkpoint_id, f"{session}-fork").session_id
    client.close()
    again = how | how.get("again", {})
    return doubts, [life(url, session, World(world_file, ""), "", again) for _ in range(2)]


def main(url: str, where: Path, how: dict[str, Any]) -> None:
    import_driver(url)
    points = [*OUTSIDE_POINTS, "before commit 1"]
    for number, point in enumerate(points):
        session, world_file = f"{how['name']}-{number}", where / f"world-{how['name']}-{number}"
        first = in_a_process(life, url, session, World(world_file, point), point, how)
        if point.startswith("before"):
            points.append(point.replace("before", "after"))
        elif point.startswith("after") and first == "killed":
            points.append(f"before commit {int(point.split()[-1]) + 1}")
        doubts, lives = in_a_process(aftermath, url, session, world_file, how)
        seen = World(world_file, "").lines()
        keys = {line.split()[-1] for line in seen}
        told = {"point": point, "first": first, "lives": lives, "seen": len(seen), "keys": len(keys), "doubts": doubts}
        told["payees"] = sorted(line.split()[0] for line in seen)
        print(json.dumps(told), flush=True)


def import_driver(url: str) -> None:
    """Once for all lives: it takes longer than they do."""
    if url.startswith("postgres"):
        import psycopg  # noqa: F401 - forked processes have it
    if url.startswith("redis"):
        import redis.asyncio  # noqa: F401 - as above


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
