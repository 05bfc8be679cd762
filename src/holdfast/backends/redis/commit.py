"""From a commit to what the script is asked, and from what it answers to an outcome. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from holdfast.backends.port import Commit, CommitConflict, RecordWrite, RowWrite, RunDelete, RunWrite
from holdfast.backends.redis import layout
from holdfast.backends.redis.calls import NotReplicatedError
from holdfast.backends.redis.connections import LostError
from holdfast.errors import StoreError

DONE = [b"", 0]
AGAIN = "Saving again with the same checkpoint_id (the error has it) is safe: it does nothing if it is there"


class InShard(NamedTuple):
    """What a script must know of the shard it runs in."""

    shard: int = layout.FIRST_SHARD
    shards: int = 1
    position: int | None = None  # of the first new record; None lets the shard count by itself
    claims: Sequence[tuple[bytes, int]] = ()  # (id, claim) of records whose ids are of other shards


def record_writes(commit: Commit) -> list[RecordWrite]:
    return [*commit.more_records] if commit.record is None else [commit.record, *commit.more_records]


def asked(commit: Commit, where: InShard) -> list[Any]:
    """What `commit.lua` is asked for that commit."""
    return [
        [
            (
                write.id,
                write.session,
                write.sequence,
                write.data,
                _or_false(write.replaces),
                layout.spans_of(write.spans),
                False if write.expires_at_us is None else b"%d" % write.expires_at_us,
            )
            for write in record_writes(commit)
        ],
        _runs(commit.runs),
        list(commit.blobs.items()),
        [_row(write) for write in commit.rows],
        list(commit.require),
        [(key.space, layout.place(key), version) for key, version in commit.require_rows],
        list(commit.delete_records),
        [_deleted(delete) for delete in commit.delete_runs],
        list(commit.delete_blobs.items()),
        where.position or False,
        list(where.claims),
        where.shard,
        where.shards,
    ]


def outcome(commit: Commit, answer: Any, location: str) -> CommitConflict | StoreError | None:
    """What the script's answer says of the commit."""
    if answer == DONE:
        return None
    if isinstance(answer, NotReplicatedError):
        refused = outcome(commit, answer.answer, location)
        return refused or StoreError(
            f"{answer.confirmed} of {answer.wanted} replicas have confirmed the commit in time: it is on the server {location}, "
            f"and may be lost with it, so its outcome is not known. {AGAIN}"
        )
    if isinstance(answer, StoreError):
        return answer
    if isinstance(answer, LostError):
        return StoreError(
            f"the connection to {location} broke ({answer}): it is not known whether the commit was carried out. {AGAIN}"
        )
    if isinstance(answer, ResponseError):
        return StoreError(f"{location} refused the commit: {answer}. Nothing was changed")
    kind, at = answer[0].decode(), answer[1] - 1
    match kind:
        case "row":
            return CommitConflict("row", commit.rows[at].key)
        case "required row":
            return CommitConflict("row", commit.require_rows[at][0])
        case "run":
            return CommitConflict("run", commit.runs[at].log)
        case "require":
            return CommitConflict("require", commit.require[at][0])
        case "record" | "replace":
            return CommitConflict(kind, record_writes(commit)[at].id)
        case _:  # late, elsewhere: see shards.py, which tries again
            return StoreError(f"{location} had no room for the commit among others: nothing was changed. Try again")


def _runs(writes: Sequence[RunWrite]) -> list[tuple[Any, ...]]:
    """With whether each begins where the one before ended: only the first one's tail is compared with the store."""
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
        layout.place(key),
        layout.place_in_tree(key),
        _or_false(write.value),
        write.expect,
        _or_false(write.was),
    )


def _deleted(delete: RunDelete) -> tuple[Any, ...]:
    return b"%d" % delete.log, delete.first, delete.length, delete.pieces


def _or_false(value: bytes | None) -> bytes | bool:
    """Nothing, in a way that a Lua table can hold."""
    return False if value is None else value
