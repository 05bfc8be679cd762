"""The Redis backend itself: opening, closing, and the verbs of the port."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

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
from holdfast.backends.redis.queries import Reading
from holdfast.backends.redis.script_calls import Calls, Durability
from holdfast.backends.redis.server_state import EvictionWatch
from holdfast.backends.redis.sharded_commit import ShardedCommits
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
        self._connections = connections
        self._location = location
        self._durability = durability
        self._shards = shards
        self._default_shards = default_shards
        self._clock = StoreClock()
        self._overdue = Overdue(calls) if auto_gc else None
        self._eviction = EvictionWatch(location)
        self._reading: Reading | None = None  # once the number of shards is known

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="redis",
            durability="replicated" if self._durability.replicas else "default",
            location=self._location,
            awaitable=True,
            timeout=self._connections.timeout,
            now_us=self._clock.now_us,
            seen_is_durable=not self._durability.replicas,
        )

    async def commit_all(self, batch: Sequence[Commit]) -> list[BaseException | None]:
        reading = await self._opened()
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
        return await (await self._opened()).records(ids)

    async def record_and_segments(self, id_: bytes) -> tuple[Record | None, dict[Span, list[Segment]]]:
        return await (await self._opened()).record_and_segments(id_)

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]:
        return await (await self._opened()).session_records(session, before=before, limit=limit)

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        return await (await self._opened()).find_ids(ending, limit)

    async def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        return await (await self._opened()).segments(spans)

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        return await (await self._opened()).blobs(hashes)

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        return await (await self._opened()).rows(keys)

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        return await (await self._opened()).scan(space, tree=tree, prefix=prefix, after=after, limit=limit)

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        return await (await self._opened()).page_records(after, limit)

    async def changes(self, after: int, limit: int) -> list[Change]:
        return await Positions(self._calls, await self._opened(), self._durability).changes(after, limit)

    async def wait_for_notify(self) -> None:
        await self._opened()
        await self._calls.wait_for_notify()

    async def recent(self, before: int | None, limit: int) -> list[Change]:
        return await (await self._opened()).recent(before, limit)

    async def last_change(self) -> int:
        return await Positions(self._calls, await self._opened(), self._durability).last()

    async def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        return await (await self._opened()).page_segments(after, limit)

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        return await (await self._opened()).page_blobs(after, limit)

    async def usage(self) -> Usage:
        return await (await self._opened()).usage()

    async def compact(self) -> None:
        """Do nothing: the server returns memory by itself."""

    async def find_damage(self) -> list[str]:
        return await find_damage(self._calls, await self._opened())

    async def examine(self) -> list[Finding]:
        # Without asking for the time, which a user may lack the right to.
        return await server_state.examine(self._calls, self._reading or await self._find_store())

    def ask_to_collect(self, collect: Callable[[], None]) -> None:
        if self._overdue is not None:
            self._overdue.ask_to_collect(collect)

    async def take_turn_to_collect(self) -> bool:
        return self._overdue is not None and await self._overdue.take_turn(await self._opened())

    async def was_collected(self) -> None:
        if self._overdue is not None:
            await self._overdue.note_held(await self._opened())

    async def close(self) -> None:
        await self._connections.close()

    async def _opened(self) -> Reading:
        """Return the reader of the store, which is checked and set up at the first call."""
        if self._connections.is_closed:
            raise StoreError(f"the store {self._location} was closed: open a new client")
        if self._reading is None:
            self._reading = await self._find_store()
        if self._clock.is_due:
            asked_us = since_start_us()
            self._clock.set(int(await self._calls.read("now", [])), asked_us)
        if self._overdue is not None:
            self._overdue.look_if_due()
        return self._reading

    async def _find_store(self) -> Reading:
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
        reading = Reading(self._calls, int(shards))
        if mark is not None:
            if reading.shards > 1 and is_marked is None:
                await reading.everywhere("mark", [mark, False])
                await self._calls.read("mark", [mark, True])
            self._calls.mark = mark
        return reading
