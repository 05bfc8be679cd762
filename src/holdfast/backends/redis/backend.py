"""The Redis backend itself: opening, closing, and the verbs of the port."""

from __future__ import annotations

import copy
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Self

from holdfast.backends import fork_safety
from holdfast.backends.port import (
    BlobInfo,
    Capabilities,
    Change,
    Commit,
    Finding,
    Record,
    Row,
    RowKey,
    Segment,
    SegmentInfo,
    Span,
    Usage,
)
from holdfast.backends.redis import commit as commits
from holdfast.backends.redis import keys as layout
from holdfast.backends.redis import server_state
from holdfast.backends.redis.change_positions import Positions
from holdfast.backends.redis.commit import ShardCommit
from holdfast.backends.redis.damage import find_damage
from holdfast.backends.redis.gc_trigger import Overdue
from holdfast.backends.redis.pool import RedisPool
from holdfast.backends.redis.queries import StoreQueries
from holdfast.backends.redis.script_calls import Calls, Durability
from holdfast.backends.redis.server_state import EvictionWatch
from holdfast.backends.redis.sharded_commit import ShardedCommits
from holdfast.backends.redis.sync_connection import BlockingPool
from holdfast.backends.server_clock import StoreClock, since_start_us
from holdfast.errors import NewerVersionError, StoreError, UsageError


class RedisBackend:
    """A store on Redis or Valkey. `open_redis` makes one."""

    def __init__(
        self,
        calls: Calls,
        connections: RedisPool,
        *,
        location: str,
        durability: Durability,
        shards: int | None,
        default_shards: int,
        auto_gc: bool = True,
    ) -> None:
        self._calls = calls
        self._connections: RedisPool | BlockingPool = connections
        self._to_close: list[RedisPool | BlockingPool] = [connections]
        self._location = location
        self._durability = durability
        self._shards = shards
        self._default_shards = default_shards
        self._clock = StoreClock()
        self._overdue = Overdue(calls) if auto_gc else None
        self._eviction = EvictionWatch(location)
        self._reading: StoreQueries | None = None  # once the number of shards is known
        self._capabilities: Capabilities | None = None
        self._parting = threading.Lock()
        self._without_loop: Self | None = None
        fork_safety.begin_again_in_child(self, _begin_again)

    def without_loop(self) -> Self | None:
        """Return the same store for callers without an event loop; None if it needs one.

        The coroutines of its verbs never suspend, and any thread may step them. All callers share
        one such object and its connections. Closing one closes both.
        """
        with self._parting:
            if self._without_loop is None and (calls := self._calls.without_loop()) is not None:
                other = self._without_loop = copy.copy(self)
                other._calls, other._connections, other._reading = calls, calls.connections, None
                other._overdue = None if self._overdue is None else Overdue(calls)
                other._eviction = EvictionWatch(self._location)
                self._to_close.append(calls.connections)
            return self._without_loop

    @property
    def capabilities(self) -> Capabilities:
        splits = self._reading is not None and self._reading.shards > 1
        if self._capabilities is None or self._capabilities.splits != splits:
            self._capabilities = self._make_capabilities(splits=splits)
        return self._capabilities

    def _make_capabilities(self, *, splits: bool) -> Capabilities:
        return Capabilities(
            name="redis",
            durability="replicated" if self._durability.replicas else "default",
            location=self._location,
            awaitable=True,
            timeout=self._connections.timeout,
            feeds=True,
            now_us=self._clock.now_us,
            seen_is_durable=not self._durability.replicas,
            splits=splits,
        )

    async def commit_all(self, batch: Sequence[Commit]) -> list[BaseException | None]:
        reading = await self._open_store()
        if not batch:
            return []
        await self._eviction.check(reading)
        if reading.shards > 1:
            positions = Positions(self._calls, reading, self._durability)
            return await ShardedCommits(
                self._calls, reading, positions, self._durability, self._location
            ).commit_all(batch)  # fmt: skip
        answers = await commits.carry_out(
            self._calls, [ShardCommit(commit) for commit in batch], reading.shards, self._durability
        )
        return [commits.outcome(commit, answer, self._location) for commit, answer in zip(batch, answers, strict=True)]

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        return await (await self._open_store()).records(ids)

    async def record_and_segments(self, id_: bytes) -> tuple[Record | None, dict[Span, list[Segment]]]:
        return await (await self._open_store()).record_and_segments(id_)

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]:
        return await (await self._open_store()).session_records(session, before=before, limit=limit)

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        return await (await self._open_store()).find_ids(ending, limit)

    async def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        return await (await self._open_store()).segments(spans)

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        return await (await self._open_store()).blobs(hashes)

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        return await (await self._open_store()).rows(keys)

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        return await (await self._open_store()).scan(space, tree=tree, prefix=prefix, after=after, limit=limit)

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        return await (await self._open_store()).page_records(after, limit)

    async def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
        return await Positions(self._calls, await self._open_store(), self._durability).changes(after, limit, feed)

    async def wait_for_notify(self) -> None:
        await self._open_store()
        await self._calls.wait_for_notify()

    async def recent(self, before: int | None, limit: int) -> list[Change]:
        return await (await self._open_store()).recent(before, limit)

    async def last_change(self) -> int:
        return await Positions(self._calls, await self._open_store(), self._durability).last()

    async def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        return await (await self._open_store()).page_segments(after, limit)

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        return await (await self._open_store()).page_blobs(after, limit)

    async def usage(self) -> Usage:
        return await (await self._open_store()).usage()

    async def compact(self) -> None:
        """Do nothing: the server returns memory by itself."""

    async def find_damage(self) -> list[str]:
        return await find_damage(self._calls, await self._open_store())

    async def examine(self) -> list[Finding]:
        # Without asking for the time, which a user may lack the right to.
        return await server_state.examine(self._calls, self._reading or await self._find_store())

    def ask_to_collect(self, collect: Callable[[], None]) -> None:
        if self._overdue is not None:
            self._overdue.ask_to_collect(collect)

    async def take_turn_to_collect(self) -> bool:
        return self._overdue is not None and await self._overdue.take_turn(await self._open_store())

    async def was_collected(self) -> None:
        if self._overdue is not None:
            await self._overdue.note_held(await self._open_store())

    async def close(self) -> None:
        for connections in self._to_close:
            await connections.close()

    async def _open_store(self) -> StoreQueries:
        """Return the reader of the store, which is checked and set up at the first call."""
        if self._connections.is_closed:
            raise StoreError(f"the store {self._location} was closed: open a new client")
        if self._reading is None:
            self._reading = await self._find_store()
        if self._clock.is_due:
            asked_us = since_start_us()
            self._clock.set(int(await self._calls.read("now", [])), asked_us)
        if self._overdue is not None:
            self._overdue.check_if_due()
        return self._reading

    async def _find_store(self) -> StoreQueries:
        """Find or create the store, and mark it: scripts write only as long as the mark is there."""
        asked = [b"%d" % layout.LAYOUT, b"%d" % (self._shards or self._default_shards), secrets.token_hex(8).encode()]
        found, shards, mark, is_marked = await self._calls.read("about", asked)
        if int(found) > layout.LAYOUT:
            raise NewerVersionError(f"the store {self._location} was made by a newer holdfast: update this one")
        if self._shards is not None and int(shards) != self._shards:
            raise UsageError(
                f"the store {self._location} has {int(shards)} shards, not {self._shards}: that can't be "
                "changed. Leave `shards` out, or take another prefix and import what `holdfast export` gives"
            )
        reading = StoreQueries(self._calls, int(shards))
        if mark is not None:
            if reading.shards > 1 and is_marked is None:
                await reading.call_everywhere("mark", [mark, False])
                await self._calls.read("mark", [mark, True])
            self._calls.mark = mark
        return reading


def _begin_again(backend: RedisBackend) -> None:
    """Replace the lock in a forked child: a thread that the child lacks may hold it."""
    backend._parting = threading.Lock()
