"""Conversion of a commit to a script's arguments, and of its answer to an outcome. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from holdfast.backends.port import Commit, CommitConflict, RowWrite, SegmentDelete, SegmentWrite
from holdfast.backends.redis import errors, keys
from holdfast.backends.redis.pool import LostError
from holdfast.backends.redis.script_calls import Calls, Durability, NotReplicatedError, ScriptCall, script
from holdfast.errors import StoreError

DONE = 0
MOST_TOGETHER = 64  # commits in one call of the script: the server does nothing else meanwhile
AGAIN = "Saving again with the same checkpoint_id (the error has it) is safe: it does nothing if it is there"


class ShardCommit(NamedTuple):
    """A commit, or the part of it that one shard carries out."""

    commit: Commit
    shard: int = keys.FIRST_SHARD
    position: int | None = None  # of the first new record; None lets the shard count by itself
    claims: Sequence[tuple[bytes, int]] = ()  # (id, claim) of records whose ids belong to other shards


async def carry_out(calls: Calls, parts: Sequence[ShardCommit], shards: int, durability: Durability) -> list[Any]:
    """Return an answer for each part, or its error. Parts of one shard are carried out in their order."""
    of_shard: dict[int, list[int]] = {}
    for at, part in enumerate(parts):
        of_shard.setdefault(part.shard, []).append(at)
    groups = [
        (shard, shard_parts[start : start + MOST_TOGETHER])
        for shard, shard_parts in of_shard.items()
        for start in range(0, len(shard_parts), MOST_TOGETHER)
    ]
    script_calls = [
        ScriptCall(shard, script("commit"), [[_arguments(parts[at]) for at in group], shard, shards])
        for shard, group in groups
    ]
    answers: list[Any] = [None] * len(parts)
    for (_, group), answer in zip(groups, await calls.carry_out(script_calls, durability), strict=True):
        for at, item in zip(group, _split(answer, len(group)), strict=True):
            answers[at] = item
    return answers


def _split(answer: Any, count: int) -> list[Any]:
    """Return the answers to the commits of one call."""
    if isinstance(answer, NotReplicatedError):
        return [
            error if isinstance(error, Exception) else NotReplicatedError(answer.confirmed, answer.wanted, error)
            for error in answer.answer
        ]
    return [answer] * count if isinstance(answer, Exception) else answer


def _arguments(part: ShardCommit) -> list[Any]:
    """Return the arguments of `commit.lua` for a commit."""
    commit = part.commit
    return [
        [
            (
                write.id,
                write.session,
                write.sequence,
                write.data,
                _replace_none(write.replaces),
                keys.spans_of(write.spans),
                False if write.expires_at_us is None else b"%d" % write.expires_at_us,
                _replace_none(write.feed),
            )
            for write in commit.list_records()
        ],
        _segments(commit.segments),
        list(commit.blobs.items()),
        [_row(write) for write in commit.rows],
        list(commit.require),
        [(key.space, keys.place(key), version) for key, version in commit.require_rows],
        list(commit.delete_records),
        [_list_deleted(delete) for delete in commit.delete_segments],
        list(commit.delete_blobs.items()),
        part.position or False,
        list(part.claims),
    ]


def outcome(commit: Commit, answer: Any, location: str, *, before: bool = False) -> CommitConflict | StoreError | None:
    """Return the outcome that the script's answer stands for.

    With `before`, a part of it was carried out before, in another shard.
    """
    if answer == DONE:
        return None
    if isinstance(answer, NotReplicatedError):
        refused = outcome(commit, answer.answer, location)
        return refused or StoreError(
            f"{answer.confirmed} of {answer.wanted} replicas have confirmed the commit in time: it is on the server "
            f"{location}, and may be lost with it, so its outcome is not known. {AGAIN}"
        )
    if isinstance(answer, StoreError):
        return answer
    if isinstance(answer, LostError):
        return StoreError(
            f"the connection to {location} broke ({answer}): it is not known whether the commit was carried out. "
            f"{AGAIN}"
        )
    if isinstance(answer, ResponseError):
        return errors.make_write_error(answer, location, before=before)
    kind, at = answer[0].decode(), answer[1] - 1
    match kind:
        case "row":
            return CommitConflict("row", commit.rows[at].key)
        case "required row":
            return CommitConflict("row", commit.require_rows[at][0])
        case "run":
            return CommitConflict("segment", commit.segments[at].log)
        case "require":
            return CommitConflict("require", commit.require[at][0])
        case "record" | "replace":
            return CommitConflict(kind, commit.list_records()[at].id)
        case _:  # late, elsewhere: `sharded_commit.py` retries
            return StoreError(f"{location} had no room for the commit among others: nothing was changed. Try again")


def _segments(writes: Sequence[SegmentWrite]) -> list[tuple[Any, ...]]:
    """Return writes, each with whether it begins where the one before ended.

    Only the first one's tail is compared with the store.
    """
    ends: dict[int, int] = {}
    packed = []
    for write in writes:
        follows = ends.get(write.log) == write.first == write.tail
        ends[write.log] = write.first + write.length
        packed.append((b"%d" % write.log, write.first, write.length, write.data, write.tail, follows))
    return packed


def _row(write: RowWrite) -> tuple[Any, ...]:
    key = write.key
    return (
        key.space,
        keys.place(key),
        keys.place_in_tree(key),
        _replace_none(write.value),
        write.expect,
        _replace_none(write.was),
    )


def _list_deleted(delete: SegmentDelete) -> tuple[Any, ...]:
    return b"%d" % delete.log, delete.first, delete.length, delete.pieces


def _replace_none(value: bytes | None) -> bytes | bool:
    """Return False for None, which a Lua table can't hold."""
    return False if value is None else value
