"""The Redis backend itself: opening, closing, and the verbs of the port over the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.backends.port import (
    BlobInfo,
    Capabilities,
    Change,
    Commit,
    Record,
    Row,
    RowKey,
    Run,
    RunInfo,
    Span,
    Usage,
)
from holdfast.backends.redis import commit as commits
from holdfast.backends.redis import layout, plain
from holdfast.backends.redis.calls import Call, Calls, Durability
from holdfast.backends.redis.commit import InShard
from holdfast.backends.redis.connections import Connections
from holdfast.backends.redis.overdue import Overdue
from holdfast.backends.redis.positions import Positions
from holdfast.backends.redis.reading import Reading
from holdfast.backends.redis.scripts import script
from holdfast.backends.redis.shards import ShardedCommits
from holdfast.backends.store_clock import StoreClock, since_start_us
from holdfast.errors import NewerVersionError, StoreError, UsageError


class RedisBackend:
    """A store on Redis or Valkey. `open_redis` makes one."""

    def __init__(
        self,
        calls: Calls,
        connections: Connections,
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
        self._reading: Reading | None = None  # once it is known how many shards there are

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="redis",
            durability="replicated" if self._durability.replicas else "default",
            location=self._location,
            awaitable=True,
            now_us=self._clock.now_us,
            seen_is_durable=not self._durability.replicas,
        )

    async def commit_all(self, batch: Sequence[Commit]) -> list[BaseException | None]:
        reading = await self._opened()
        if not batch:
            return []
        if reading.shards > 1:
            positions = Positions(self._calls, reading, self._durability)
            return await ShardedCommits(
                self._calls, reading, positions, self._durability, self._location
            ).commit_all(batch)  # fmt: skip
        groups = list(plain.groups(batch))
        calls = [
            Call(layout.FIRST_SHARD, script("save_all"), plain.asked(group))
            if are_plain
            else Call(layout.FIRST_SHARD, script("commit"), commits.asked(group[0], InShard()))
            for are_plain, group in groups
        ]
        outcomes: list[BaseException | None] = []
        for (are_plain, group), answer in zip(
            groups, await self._calls.carry_out(calls, self._durability), strict=True
        ):
            if are_plain:
                outcomes += plain.outcomes(group, answer, self._location)
            else:
                outcomes.append(commits.outcome(group[0], answer, self._location))
        return outcomes

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        return await (await self._opened()).records(ids)

    async def record_and_runs(self, id_: bytes) -> tuple[Record | None, dict[Span, list[Run]]]:
        return await (await self._opened()).record_and_runs(id_)

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]:
        return await (await self._opened()).session_records(session, before=before, limit=limit)

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        return await (await self._opened()).find_ids(ending, limit)

    async def runs(self, spans: Sequence[Span]) -> list[list[Run]]:
        return await (await self._opened()).runs(spans)

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

    async def news(self) -> None:
        await self._opened()
        await self._calls.news()

    async def last_change(self) -> int:
        return await Positions(self._calls, await self._opened(), self._durability).last()

    async def page_runs(self, after: tuple[int, int] | None, limit: int) -> list[RunInfo]:
        return await (await self._opened()).page_runs(after, limit)

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        return await (await self._opened()).page_blobs(after, limit)

    async def usage(self) -> Usage:
        return await (await self._opened()).usage()

    async def compact(self) -> None:
        """Nothing to do: the server gives memory back by itself."""

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
        """What reads from the store, which is looked at, and set up, at the first call."""
        if self._connections.is_closed:
            raise StoreError(f"the store {self._location} was closed: open a new client")
        if self._reading is None:
            asked = [b"%d" % layout.LAYOUT, b"%d" % (self._shards or self._default_shards)]
            found, shards, policy = await self._calls.read("about", asked)
            if int(found) > layout.LAYOUT:
                raise NewerVersionError(f"the store {self._location} was made by a newer holdfast: update this one")
            if self._shards is not None and int(shards) != self._shards:
                raise UsageError(
                    f"the store {self._location} has {int(shards)} shards, not {self._shards}: that can't be "
                    "changed. Leave `shards` out, or take another prefix and import what `holdfast export` gives"
                )
            if policy.startswith(b"allkeys"):
                raise StoreError(
                    f"the server {self._location} drops keys when its memory is full (maxmemory-policy {policy.decode()}): it "
                    "would lose checkpoints without a word. Set maxmemory-policy to noeviction"
                )
            self._reading = Reading(self._calls, int(shards))
        if self._clock.is_due:
            asked_us = since_start_us()
            self._clock.set(int(await self._calls.read("now", [])), asked_us)
        if self._overdue is not None:
            self._overdue.look_if_due()
        return self._reading
