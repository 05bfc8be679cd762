"""Commits across several shards. The tree's part is one atomic call in the tree's shard.

The other parts come before or after it:

- rows of the whole store are in the first shard: writes go before, deletions after. So a crash in
  between leaves a row too many, never one too few;
- positions of new records are drawn before, and closed as decided after: `change_positions.py`;
- a record whose id belongs to another shard than its tree (users may choose ids) is noted in the
  id's own shard before, so that it is found by its id. A writer that finds another shard's note
  bars that shard from carrying it out before changing it: an id is taken once in the whole store;
- segments and blobs that gc removes may be in any shard. A deletion is no condition: each shard
  gets its part after.

A session's numbers are compared within one shard only. A session belongs to one tree, which is a
row of the store.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.backends.port import ANY_VERSION, STORE, Commit, CommitConflict, SegmentDelete
from holdfast.backends.redis import commit as commits
from holdfast.backends.redis import keys
from holdfast.backends.redis.change_positions import Note, Positions
from holdfast.backends.redis.commit import ShardCommit
from holdfast.backends.redis.pool import LostError
from holdfast.backends.redis.queries import StoreQueries
from holdfast.backends.redis.script_calls import Calls, Durability, ScriptCall, script
from holdfast.errors import StoreError

ATTEMPTS = 10
ALL_COPIES_US = 2**60  # later than any clock


@dataclass(slots=True)
class _Work:
    """A commit in progress."""

    commit: Commit
    shard: int
    main: Commit  # the part in the tree's shard
    before: Commit | None = None  # the part in the first shard that goes first
    after: dict[int, Commit] = field(default_factory=dict)  # the parts that go last, by shard
    claims: dict[bytes, int] = field(default_factory=dict)
    note: Note | None = None
    answer: Any = None
    is_over: bool = False
    outcome: BaseException | None = None

    def end(self, outcome: BaseException | None) -> None:
        self.is_over = True
        self.outcome = outcome

    @property
    def new(self) -> list[bytes]:
        return [write.id for write in self.main.list_records() if write.replaces is None]


class ShardedCommits:
    def __init__(
        self, calls: Calls, reading: StoreQueries, positions: Positions, durability: Durability, location: str
    ) -> None:
        self._calls = calls
        self._reading = reading
        self._positions = positions
        self._durability = durability
        self._location = location
        self._shards = reading.shards

    async def commit_all(self, batch: Sequence[Commit]) -> list[BaseException | None]:
        all_work = [await self._plan(commit) for commit in batch]
        work = [item for item in all_work if item.before is not None]
        parts = [ShardCommit(item.before, keys.FIRST_SHARD) for item in work if item.before is not None]
        for item, part, answer in zip(work, parts, await self._send(parts), strict=True):
            refused = commits.outcome(part.commit, answer, self._location)
            if refused is not None:
                item.end(refused)
        for attempt in range(ATTEMPTS):
            left = [item for item in all_work if not item.is_over]
            if not left:
                break
            try:
                await self._claim(left, every=attempt > 0)
                await self._carry_out([item for item in left if not item.is_over], is_last=attempt == ATTEMPTS - 1)
            except StoreError as error:  # before anything was sent to the trees' shards; earlier results count
                for item in left:
                    if not item.is_over:
                        item.end(error)
        await self._finish([item for item in all_work if item.outcome is None])
        return [item.outcome for item in all_work]

    # -- the parts of a commit ---------------------------------------------------------------------------------------

    async def _plan(self, commit: Commit) -> _Work:
        shard = keys.shard_of(commit.tree, self._shards)
        main = commit
        work = _Work(commit, shard, main)
        of_store = [write for write in commit.rows if write.key.tree == STORE]
        if of_store and shard != keys.FIRST_SHARD:
            gone = [write for write in of_store if write.value is None]
            main = replace(main, rows=[write for write in commit.rows if write.key.tree != STORE])
            work.before = Commit(
                STORE,
                rows=[write for write in of_store if write.value is not None],
                require_rows=[(write.key, write.expect) for write in gone if write.expect != ANY_VERSION],
            )
            if gone:
                work.after[keys.FIRST_SHARD] = Commit(STORE, rows=gone)
        if commit.delete_segments and commit.tree == STORE:
            main = replace(main, delete_segments=())
            for of_shard, deletes in (await self._locate(commit.delete_segments)).items():
                work.after[of_shard] = replace(work.after.get(of_shard, Commit(STORE)), delete_segments=deletes)
        if commit.delete_blobs:
            main = replace(main, delete_blobs={})
            for of_shard, hashes in self._copies(commit.delete_blobs).items():
                if of_shard == shard:
                    main = replace(main, delete_blobs=hashes)
                else:
                    work.after[of_shard] = replace(work.after.get(of_shard, Commit(STORE)), delete_blobs=hashes)
        work.main = main
        return work

    async def _locate(self, deletes: Sequence[SegmentDelete]) -> dict[int, list[SegmentDelete]]:
        """Return the shards that have these logs."""
        answers = await self._reading.call_everywhere("where", [[b"%d" % delete.log for delete in deletes]])
        found: dict[int, list[SegmentDelete]] = {}
        for shard, answer in enumerate(answers):
            for delete, is_deleted in zip(deletes, answer, strict=True):
                if is_deleted:
                    found.setdefault(shard, []).append(delete)
        return found

    def _copies(self, deletes: Any) -> dict[int, dict[bytes, int]]:
        """Return the copies of blobs that a deletion means, by shard.

        The last bits of a listed time name its shard. Clocks of shards may differ, so one shard's
        times say nothing about another's copy, which the next collection finds. A time later than
        any clock means all copies.
        """
        found: dict[int, dict[bytes, int]] = {}
        for hash_, before in deletes.items():
            shards = range(self._shards) if before > ALL_COPIES_US else [(before - 1) % self._shards]
            for shard in shards:
                found.setdefault(shard, {})[hash_] = before
        return found

    # -- carrying out ------------------------------------------------------------------------------------------------

    async def _carry_out(self, work: list[_Work], *, is_last: bool) -> None:
        """Carry out the main parts. The next attempt takes late ones and those whose id is noted elsewhere."""
        new = [item for item in work if item.new]
        if new:
            notes = await self._positions.draw([(len(item.new), item.shard) for item in new])
            for item, note in zip(new, notes, strict=True):
                item.note = note
        try:
            await self._answer(work)
        finally:
            lost = [item.note for item in new if item.note and isinstance(item.answer, (LostError, type(None)))]
            await self._positions.close_notes([item.note for item in new if item.note and item.note not in lost])
            with suppress(StoreError):
                await self._positions.refuse(lost)
        for item in work:
            retry = isinstance(item.answer, list) and item.answer[0] in {b"late", b"elsewhere"}
            if not retry or is_last:
                item.end(commits.outcome(item.main, item.answer, self._location, before=item.before is not None))
                for log in {segment.log for segment in item.main.segments}:
                    self._reading.remember(log, item.shard)

    async def _answer(self, work: list[_Work]) -> None:
        parts = []
        for item in work:
            item.answer = None
            position = int(item.note.partition(b":")[0]) if item.note else None
            parts.append(ShardCommit(item.main, item.shard, position, list(item.claims.items())))
        for item, answer in zip(work, await self._send(parts), strict=True):
            item.answer = answer

    async def _finish(self, work: list[_Work]) -> None:
        """Carry out the parts that go last. An entry that no longer matches is left alone."""
        parts = [(item, ShardCommit(commit, shard)) for item in work for shard, commit in item.after.items()]
        for (item, part), answer in zip(parts, await self._send([part for _, part in parts]), strict=True):
            outcome = commits.outcome(part.commit, answer, self._location)
            if outcome is not None and not isinstance(outcome, CommitConflict):
                item.outcome = outcome

    async def _send(self, parts: Sequence[ShardCommit]) -> list[Any]:
        return await commits.carry_out(self._calls, parts, self._shards, self._durability) if parts else []

    # -- ids of other shards -----------------------------------------------------------------------------------------

    async def _claim(self, work: list[_Work], *, every: bool) -> None:
        """Note new records whose ids belong to other shards (with `every`, all), so that they are found."""
        for item in work:
            for id_ in item.new:
                own = keys.shard_of(id_, self._shards)
                if own != item.shard or every:
                    try:
                        item.claims[id_] = await self._make_claim(id_, own, item.shard)
                    except (CommitConflict, StoreError) as reason:
                        item.end(reason)
                        break

    async def _note(self, name: str, asked: list[Any], shard: int) -> Any:
        """Call a script that writes down what others rely on: with `durability`, before it is believed."""
        [answer] = await self._calls.read_all([ScriptCall(shard, script(name), asked)], self._durability)
        return answer

    async def _make_claim(self, id_: bytes, own: int, shard: int) -> int:
        """Return the claim to write a record of that id in a shard; raise `CommitConflict` if it is taken."""
        instead: bytes | bool = False
        for attempt in range(ATTEMPTS):
            reply, *more = await self._note("claim", [id_, b"%d" % shard, instead], own)
            if reply == b"taken":
                raise CommitConflict("record", id_)
            if reply == b"here":
                return int(more[0])
            noted, claim = more
            if attempt < ATTEMPTS // 2:  # its author is probably about to write it
                [found] = await self._calls.read("records", [[id_]], int(noted))
                if isinstance(found, list):
                    raise CommitConflict("record", id_)
                await self._calls.sleep(random.random() * 0.005 * attempt)  # noqa: S311 - writers part
            elif await self._note("bar", [id_, claim], int(noted)):
                raise CommitConflict("record", id_)
            else:
                instead = claim
        raise StoreError(
            f"{self._location}: several writers want the same id at once. No checkpoint was saved; try again"
        )
