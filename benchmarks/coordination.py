"""Topics beside plain queues: `python -m benchmarks.coordination [--rounds 3] [--messages 200] [--only sqlite,redis]`.

- Publishing: a save with a message over the save alone; a message alone, by `SyncClient`, over an insert with a
  commit (SQLite, PostgreSQL) or `XADD` (Valkey), and by `Client` over an awaited `XADD`.
- The floor on Valkey: one call of a script that writes as many keys and bytes as a message does, and checks one; and
  one of a script that is given as much and does nothing. Their difference is what the server needs to write a message.
- Consuming: claim, consume and acknowledge, with the consumer's checkpoint, over taking and deleting a row with
  `SKIP LOCKED`, or `XREADGROUP` and `XACK`, one message at a time; and commits per message, where those that go to
  the store together are one transaction, and count once. On Valkey also sixteen at a time, each acknowledged by itself.
- Processes: four that publish to one topic over four that save to sessions of their own, in messages per second, and
  the longest publication.
- Wake-up: from the end of `publish` to the reader in another thread, of the same client and of another; on files, too.
  Messages come 0.1 to 0.3 s apart, at random: at a fixed distance they would always meet the same moment of a poll.
- Idle: reads of the store and CPU of a subscriber that waits.
- Quiet topic: the first message of a topic in a store with many records.
- Contracts: validation of a value of 0.4 KB and of 10 KB.

All but wake-up, idle and quiet topic take turns, twenty calls each or a round of messages; a ratio is that of the
medians.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from benchmarks import coordination_report, environment
from benchmarks.coordination_report import BATCHES, STORES
from benchmarks.local_servers import PostgresDatabase, postgres, valkey
from benchmarks.subprocesses import ROOT
from holdfast import Client, Message, SyncClient, contract
from holdfast.backends.redis.msgpack import pack

PACKAGES = ("holdfast", "ormsgpack", "zstandard", "psycopg", "redis", "hiredis")
BODY = {"id": 1, "text": "x" * 450}
PLAIN = json.dumps(BODY).encode()
WAKE_UPS = 30
IN_TURN = 20  # calls of one kind before those of the next
PROCESSES = 4
AT_REST = 10.0  # seconds of an idle subscriber, once its polling has slowed down
ITEM = {"type": "object", "properties": {"id": {"type": "integer"}, "text": {"type": "string"}}, "required": ["id"]}
DECLARED = contract(
    "benchmark.value",
    1,
    {"type": "object", "properties": {"items": {"type": "array", "items": ITEM}}, "required": ["items"]},
)

# Writes what a message of holdfast writes: its record by id, order, session, topic, topic by record and end of its
# time, a position, and the head of its session, which it compares first.
BARE_COMMIT = """
local base, asked = KEYS[1], cmsgpack.unpack(ARGV[1])
local id, record, head, before = unpack(asked)
if (redis.call("HGET", base .. ":row", "head") or "") ~= before then return 1 end
local position = redis.call("INCRBY", base .. ":last", 1)
redis.call("HSET", base .. ":record", id, record)
redis.call("ZADD", base .. ":ids", 0, id)
redis.call("ZADD", base .. ":order", position, id)
redis.call("ZADD", base .. ":session", position, id)
redis.call("ZADD", base .. ":feed", position, id)
redis.call("HSET", base .. ":feeds", id, "topic")
redis.call("ZADD", base .. ":due", position, id)
redis.call("HSET", base .. ":row", "head", head)
return 0
"""
BARE_CALL = "return 0"
BARE_RECORD, BARE_HEAD = b"r" * 880, b"h" * 80  # with the id and both heads 1,090 bytes, as those of a message


class BareArguments:
    """The keys and the arguments of bare commits, each of which follows the one before."""

    def __init__(self, name: str) -> None:
        self.keys = [f"{{{name}}}", f"{{{name}}}:-"]
        self._numbers = count()
        self._before = b""

    def next(self) -> list[bytes]:
        number = b"%016d" % next(self._numbers)
        before, self._before = self._before, BARE_HEAD + number
        return [pack([number, BARE_RECORD, self._before, before])]


@dataclass
class Plain:
    """A plain queue: one client that publishes one message, and takes one or several."""

    publish: Callable[[], None]
    take: Callable[[], None]
    take_many: Callable[[int], None] | None = None
    bare_commit: Callable[[], None] | None = None
    bare_call: Callable[[], None] | None = None
    url: str | None = None  # for an awaited client


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=200, help="in each round")
    parser.add_argument("--records", type=int, default=50_000, help="in the store with a quiet topic")
    parser.add_argument("--only", default=",".join(STORES))
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        _work(*json.loads(given.worker))
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as where, ExitStack() as opened:
        results: dict[str, Any] = {
            "environment": environment.describe(Path(where), PACKAGES),
            "messages": given.messages,
            "validation_us": _validation(),
            "stores": {},
        }
        for store, url, plain in _stores(given.only.split(","), Path(where), opened):
            results["stores"][store] = found = _measured(url, plain, given.rounds, given.messages, given.records)
            print(f"{store}: {found}", flush=True)
        results["files: wake-up p50 ms"] = _wake_up_on_files(Path(where))
    results["seconds"] = time.monotonic() - began
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "coordination.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page = "\n".join(coordination_report.write_page(results)) + "\n"
    (given.results / "coordination.md").write_text(page, "utf-8")
    print(page)


def _stores(names: list[str], where: Path, opened: ExitStack) -> Iterator[tuple[str, str, Plain]]:
    for name in names:
        if name == "sqlite":
            yield name, f"sqlite:///{where}/store.db", _plain_sqlite(where / "plain.db")
        elif name == "postgres":
            server = opened.enter_context(postgres(None))
            yield name, PostgresDatabase(server, "topics").dsn, _plain_postgres(PostgresDatabase(server, "plain").dsn)
        else:
            yield name, opened.enter_context(valkey(None)).url, _plain_redis(opened.enter_context(valkey(None)).url)


def _plain_sqlite(path: Path) -> Plain:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE queue (n INTEGER PRIMARY KEY, body BLOB)")

    def take() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM queue WHERE n = (SELECT min(n) FROM queue) RETURNING body").fetchall()
        connection.execute("COMMIT")

    return Plain(lambda: connection.execute("INSERT INTO queue (body) VALUES (?)", (PLAIN,)) and None, take)


def _plain_postgres(dsn: str) -> Plain:
    import psycopg

    connection = psycopg.connect(dsn, autocommit=True)
    connection.execute("CREATE TABLE queue (n bigserial PRIMARY KEY, body bytea)")
    taken = "DELETE FROM queue WHERE n = (SELECT n FROM queue ORDER BY n FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING body"
    return Plain(
        lambda: connection.execute("INSERT INTO queue (body) VALUES (%s)", (PLAIN,)) and None,
        lambda: connection.execute(taken).fetchall() and None,
    )


def _plain_redis(url: str) -> Plain:
    import redis

    client = redis.Redis.from_url(url, protocol=2)
    client.xgroup_create("queue", "g", id="0", mkstream=True)

    def take(count: int = 1) -> None:
        for _, messages in client.xreadgroup("g", "c", {"queue": ">"}, count=count):
            for id_, _ in messages:
                client.xack("queue", "g", id_)

    def called(source: str, name: str) -> Callable[[], None]:
        script, arguments = client.register_script(source), BareArguments(name)

        def call() -> None:
            assert script(arguments.keys, arguments.next()) == 0

        return call

    bare = called(BARE_COMMIT, "bare"), called(BARE_CALL, "idle")
    return Plain(lambda: client.xadd("queue", {"body": PLAIN}) and None, take, take, *bare, url)


def _measured(url: str, plain: Plain, rounds: int, messages: int, records: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {}
    consumed: dict[int, list[tuple[float, float]]] = {batch: [] for batch in BATCHES}
    taken: dict[int, list[float]] = {}  # messages per second, by how many at a time
    together: list[dict[str, float]] = []
    with SyncClient.open(url) as client:
        for session in ("plain save", "save and publish"):
            client.save("a", session_id=session, execution_state=BODY)
        client.publish("alone", BODY)
        acts: dict[str, Callable[[int], object]] = {
            "save": lambda at: client.save("a", session_id="plain save", execution_state=BODY | {"n": at}),
            "save and publish": lambda at: client.save(
                "a", session_id="save and publish", execution_state=BODY | {"n": at}, publish=[Message("in", BODY)]
            ),
            "publish": lambda _: client.publish("alone", BODY),
            "plain publish": lambda _: plain.publish(),
        }
        for name, act in (("bare commit", plain.bare_commit), ("bare call", plain.bare_call)):
            if act is not None:
                acts[name] = lambda _, act=act: act()
        for turn in range(rounds):
            _take_turns(acts, messages, seconds)
            asyncio.run(_publish_awaited(url, plain.url, messages, seconds))
            for batch, found in consumed.items():
                found.append(_consume(client, f"g{batch}", turn, batch, messages))
            _take_plainly(plain, messages, taken)
            together.append(_processes(url, turn, messages))
        wakes = _wake_up(client, lambda: SyncClient.open(url))
        idle = _idle(url)
        quiet = _quiet_topic(client, url, records)
    p50 = {name: statistics.median(of_name) for name, of_name in seconds.items()}
    per_second = {batch: statistics.median(one for _, one in found) for batch, found in consumed.items()}
    over_awaited = {}
    if plain.url:
        awaited = p50["awaited plain publish"]
        with_bare = p50["save"] + p50["bare commit"] - p50["bare call"]
        over_awaited = {
            "awaited publish over a plain queue": round(p50["awaited publish"] / awaited, 2),
            "floors": {
                "save and publish over save": round(with_bare / p50["save"], 2),
                "publish over a plain queue": round(p50["bare commit"] / p50["plain publish"], 2),
                "awaited publish over a plain queue": round(p50["awaited bare commit"] / awaited, 2),
            },
        }
    return over_awaited | {
        "p50_ms": {name: round(value * 1000, 3) for name, value in p50.items()},
        "save and publish over save": round(p50["save and publish"] / p50["save"], 2),
        "publish over a plain queue": round(p50["publish"] / p50["plain publish"], 2),
        "commits per message": {
            f"batch {batch}": round(statistics.median(one for one, _ in found), 2) for batch, found in consumed.items()
        },
        "consumed per second": {f"batch {batch}": round(one, 1) for batch, one in per_second.items()},
        "taken plainly per second": {
            f"batch {batch}": round(statistics.median(found), 1) for batch, found in taken.items()
        },
        "consuming over a plain queue": round(per_second[1] / statistics.median(taken[1]), 3),
        "processes": {name: round(statistics.median(one[name] for one in together), 2) for name in together[0]},
        "wake-up p50 ms": wakes,
        "idle": idle,
        "quiet topic ms": quiet,
    }


def _take_turns(acts: dict[str, Callable[[int], object]], messages: int, seconds: dict[str, list[float]]) -> None:
    """Do everything so many times, twenty of each in turn; note how long each took."""
    for start in range(0, messages, IN_TURN):
        for name, act in acts.items():
            found = seconds.setdefault(name, [])
            for at in range(start, min(start + IN_TURN, messages)):
                began = time.perf_counter()
                act(at)
                found.append(time.perf_counter() - began)


async def _publish_awaited(url: str, plain: str | None, messages: int, seconds: dict[str, list[float]]) -> None:
    """Publish by `Client`, and by an awaited client of the plain queue, if it has one: twenty of each in turn."""
    async with Client.open(url) as client:
        acts: dict[str, Callable[[], Awaitable[object]]] = {"awaited publish": lambda: client.publish("awaited", BODY)}
        if plain is not None:
            import redis.asyncio

            queue = redis.asyncio.Redis.from_url(plain, protocol=2)
            acts["awaited plain publish"] = lambda: queue.xadd("awaited", {"body": PLAIN})
            script, arguments = queue.register_script(BARE_COMMIT), BareArguments(f"awaited {time.monotonic_ns()}")
            acts["awaited bare commit"] = lambda: script(arguments.keys, arguments.next())
        for act in acts.values():
            await act()  # connects
        for start in range(0, messages, IN_TURN):
            for name, act in acts.items():
                found = seconds.setdefault(name, [])
                for _ in range(start, min(start + IN_TURN, messages)):
                    began = time.perf_counter()
                    await act()
                    found.append(time.perf_counter() - began)
        if plain is not None:
            await queue.aclose()


def _take_plainly(plain: Plain, messages: int, taken: dict[int, list[float]]) -> None:
    """Take the messages of a round from the plain queue, one at a time; then, if it can, as many sixteen at a time."""
    began = time.perf_counter()
    for _ in range(messages):
        plain.take()
    taken.setdefault(1, []).append(messages / (time.perf_counter() - began))
    if plain.take_many is not None:
        for _ in range(messages):
            plain.publish()
        began = time.perf_counter()
        for _ in range(0, messages, BATCHES[1]):
            plain.take_many(BATCHES[1])
        taken.setdefault(BATCHES[1], []).append(messages / (time.perf_counter() - began))


def _consume(client: SyncClient, group: str, turn: int, batch: int, messages: int) -> tuple[float, float]:
    """Consume the messages of a round in a run; return the commits per message, and messages per second."""
    with client.run(f"consumer {group} {turn}", agent_id="c") as run:
        before = client._ctx.backend.committed
        began = time.perf_counter()
        for got in run.receive("in", group, batch=batch, timeout=0):
            run.state["last"] = got.message_id
            run.state["count"] = run.state.get("count", 0) + 1
        taken = time.perf_counter() - began
        commits = client._ctx.backend.committed - before
        assert run.state["count"] == messages, run.state
    return commits / messages, messages / taken


# -- processes ---------------------------------------------------------------------------------------------------------


def _processes(url: str, turn: int, messages: int) -> dict[str, float]:
    """Let processes publish to one topic, then save to sessions of their own; return the ratio, and the longest."""
    rates = {}
    longest = {}
    for kind in ("publish", "save") if turn % 2 else ("save", "publish"):
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.coordination", "--worker",
                 json.dumps([url, kind, f"{kind} {turn} {number}", messages])],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for number in range(PROCESSES)
        ]  # fmt: skip
        for one in workers:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in workers:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        found = [json.loads(one.communicate()[0]) for one in workers]
        rates[kind] = (
            len(workers) * messages / (max(one["ended"] for one in found) - min(one["began"] for one in found))
        )
        longest[kind] = max(one["longest"] for one in found) * 1000
    return {
        "published per second": rates["publish"],
        "saved per second": rates["save"],
        "publishing over saving": rates["publish"] / rates["save"],
        "longest publication ms": longest["publish"],
        "longest save ms": longest["save"],
    }


def _work(url: str, kind: str, session: str, messages: int) -> None:
    """Publish to the topic of all processes, or save to a session of this one; print when, and the longest."""
    with SyncClient.open(url) as client:

        def act() -> object:
            if kind == "publish":
                return client.publish("shared", BODY)
            return client.save("a", session_id=session, execution_state=BODY)

        act()
        print("ready", flush=True)
        sys.stdin.readline()
        began, longest = time.monotonic(), 0.0  # the same clock for all processes
        for _ in range(messages):
            at = time.monotonic()
            act()
            longest = max(longest, time.monotonic() - at)
        print(json.dumps({"began": began, "ended": time.monotonic(), "longest": longest}))


# -- waiting, reading, contracts ---------------------------------------------------------------------------------------


def _idle(url: str) -> dict[str, float]:
    """Let a subscriber wait for a message that does not come; return its reads per second and its CPU."""
    with SyncClient.open(url) as client:
        client.topics()  # opens the store: from now on it is asked through one bridge
        backend, reads = client._ctx.backend, Counter[str]()
        for name in ("rows", "changes", "scan", "records", "last_change"):
            setattr(backend, name, _counted(getattr(backend, name), reads))

        def wait() -> None:
            with client.subscribe("idle", "g", timeout=AT_REST + 6.0) as messages:
                assert next(messages, None) is None

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(4.0)  # its polling slows down meanwhile
        reads.clear()
        cpu = time.process_time()
        time.sleep(AT_REST)
        cpu = time.process_time() - cpu
        counted = reads.total()
        thread.join()
    return {"reads per second": round(counted / AT_REST, 2), "CPU %": round(cpu / AT_REST * 100, 2)}


def _counted(read: Callable[..., Any], reads: Counter[str]) -> Callable[..., Any]:
    def counting(*given: Any, **named: Any) -> Any:
        reads[read.__name__] += 1
        return read(*given, **named)

    return counting


def _quiet_topic(client: SyncClient, url: str, records: int) -> float:
    """Return the median time to read the first message of a topic, after many records of others."""
    asyncio.run(_fill(url, records))
    seconds = []
    for at in range(5):
        client.publish(f"quiet {at}", at)
        began = time.perf_counter()
        assert next(client.messages(f"quiet {at}")).value == at
        seconds.append(time.perf_counter() - began)
    return round(statistics.median(seconds) * 1000, 2)


async def _fill(url: str, records: int) -> None:
    numbers = count()
    async with Client.open(url) as client:

        async def save(session: str) -> None:
            for _ in islice(numbers, records // 64):
                await client.save("a", session_id=session, execution_state={})

        await asyncio.gather(*(save(f"noise {number}") for number in range(64)))


def _validation() -> dict[str, float]:
    """Return the time to check and encode a value of a contract, in microseconds, by its size."""
    found = {}
    for size, items in (("0.4 KB", 2), ("10 KB", 50)):
        value = {"items": [{"id": number, "text": "x" * 180} for number in range(items)]}
        DECLARED.encode(value)
        seconds = []
        for _ in range(500):
            began = time.process_time_ns()
            DECLARED.encode(value)
            seconds.append(time.process_time_ns() - began)
        found[size] = round(statistics.median(seconds) / 1000, 1)
    return found


def _wake_up(client: SyncClient, another: Callable[[], SyncClient]) -> dict[str, float]:
    """The median from the end of `publish` to a reader that waits: of the same client, and of another one."""
    found = {}
    with another() as other:
        for name, reader in (("same client", client), ("another client", other)):
            topic, published, taken = f"wake {name}", [], []

            def read(reader: SyncClient = reader, topic: str = topic, taken: list[float] = taken) -> None:
                stream = islice(reader.messages(topic, after="start", follow=True), WAKE_UPS)
                taken.extend(time.monotonic() for _ in stream)

            thread = threading.Thread(target=read)
            thread.start()
            pauses = random.Random(name)
            for number in range(WAKE_UPS):
                time.sleep(pauses.uniform(0.1, 0.3))
                client.publish(topic, number)
                published.append(time.monotonic())
            thread.join()
            waited = [max(0.0, end - start) for start, end in zip(published, taken, strict=True)]
            found[name] = round(statistics.median(waited) * 1000, 2)
    return found


def _wake_up_on_files(where: Path) -> dict[str, float]:
    with SyncClient.files(where / "files") as client:
        return _wake_up(client, lambda: SyncClient.files(where / "files"))


if __name__ == "__main__":
    main()
