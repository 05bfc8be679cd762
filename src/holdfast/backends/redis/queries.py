"""Queries over one shard or many: answers of several shards are merged in the requested order."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from typing import Any

from holdfast.backends.port import BlobInfo, Change, Record, Row, RowKey, Segment, SegmentInfo, Span, Usage
from holdfast.backends.redis import keys as layout
from holdfast.backends.redis.script_calls import Calls, ScriptCall, script

PAGE = 1000
IDS_LOOKED_AT_AT_ONCE = 10_000
USAGE_PAGE = 1000
REMEMBERED = 50_000
# Bytes that the server takes for an entry and its index entries, besides its content (measured:
# docs/redis.md).
FIELDS = {"run": "segment"}  # names in the scripts' counts, with the field of `Usage`
OVERHEAD = {"record": 350, "run": 200, "blob": 250, "row": 220}

_HEX = frozenset("0123456789abcdef")


class StoreQueries:
    def __init__(self, calls: Calls, shards: int) -> None:
        self._calls = calls
        self.shards = shards
        self._shard_of: dict[int | bytes, int] = {}  # of logs and blobs, where they were seen last

    async def call_everywhere(self, name: str, asked: Sequence[Any]) -> list[Any]:
        """Return the answer of each shard."""
        return await self._calls.read_all([ScriptCall(shard, script(name), asked) for shard in range(self.shards)])

    # -- records -----------------------------------------------------------------------------------------------------

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        answers = await self._records({id_: layout.shard_of(id_, self.shards) for id_ in ids})
        elsewhere = {id_: int(note.partition(b":")[0]) for id_, note in answers.items() if isinstance(note, bytes)}
        if elsewhere:
            answers |= await self._records(elsewhere)
        found: list[Record | None] = []
        for id_ in ids:
            answer = answers[id_]
            found.append(layout.record_of(id_, *answer)[1] if isinstance(answer, list) else None)
        return found

    async def record_and_segments(self, id_: bytes) -> tuple[Record | None, dict[Span, list[Segment]]]:
        shard = layout.shard_of(id_, self.shards)
        found, spans = await self._calls.read("restored", [id_], shard)
        if isinstance(found, bytes):
            return (await self.records([id_]))[0], {}
        if found is None:
            return None, {}
        for log, *_ in spans:
            self.remember(int(log), shard)
        return layout.record_of(id_, *found)[1], {
            Span(int(log), int(first), int(end)): [Segment(*segment) for segment in segments]
            for log, first, end, segments in spans
        }

    async def _records(self, shards: dict[bytes, int]) -> dict[bytes, Any]:
        of_shard: dict[int, list[bytes]] = {}
        for id_, shard in shards.items():
            of_shard.setdefault(shard, []).append(id_)
        calls = [
            ScriptCall(shard, script("records"), [ids[start : start + PAGE]])
            for shard, ids in of_shard.items()
            for start in range(0, len(ids), PAGE)
        ]
        answers = await self._calls.read_all(calls)
        return {id_: answer for call, given in zip(calls, answers, strict=True)
                for id_, answer in zip(call.asked[0], given, strict=True)}  # fmt: skip

    async def session_records(self, session: bytes, *, before: int | None, limit: int | None) -> list[Record]:
        found: list[Record] = []
        while limit is None or len(found) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(found))
            below = b"+inf" if before is None else b"(%d" % before
            answers = await self.call_everywhere("session", [session, below, size])
            page = sorted(self._make_records(answers), key=lambda item: item.sequence, reverse=True)[:size]
            found += page
            if len(page) < size:
                break
            before = page[-1].sequence
        return found

    async def find_ids(self, ending: str, limit: int) -> list[bytes]:
        if len(ending) > 32 or not _HEX.issuperset(ending):
            return []
        tail = bytes.fromhex(ending[len(ending) % 2 :])
        half = int(ending[0], 16) if len(ending) % 2 else -1
        found: list[bytes] = []
        for shard in range(self.shards):
            after = b"-"
            while len(found) < limit:
                asked = [after, tail, half, IDS_LOOKED_AT_AT_ONCE, limit - len(found)]
                last, *ids = await self._calls.read("find_ids", asked, shard)
                found += ids
                if last is None:
                    break
                after = b"(" + last
        return found[:limit]

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        answers = await self.call_everywhere("page_records", [_format_lower_bound(after), limit])
        return sorted(self._make_records(answers), key=lambda record: record.id)[:limit]

    async def recent(self, before: int | None, limit: int) -> list[Change]:
        answers = await self.call_everywhere("recent", [b"+inf" if before is None else b"(%d" % before, limit])
        found = [Change(*layout.record_of(*item)) for answer in answers for item in answer]
        return sorted(found, key=lambda change: change.position, reverse=True)[:limit]

    @staticmethod
    def _make_records(answers: list[Any]) -> list[Record]:
        return [layout.record_of(*found)[1] for answer in answers for found in answer]

    # -- segments and blobs
    # ------------------------------------------------------------------------------------------

    def remember(self, key: int | bytes, shard: int) -> None:
        """Remember the shard of a log or a blob. It is a guess: on a miss, all shards are searched."""
        if len(self._shard_of) >= REMEMBERED:
            self._shard_of.clear()
        self._shard_of[key] = shard

    async def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        found: dict[Span, list[Segment]] = {}
        for shard, guessed in self._guesses(spans, [span.log for span in spans]).items():
            found |= await self._segments(guessed, [shard])
        left = [span for span in dict.fromkeys(spans) if not found.get(span)]
        if left and self.shards > 1:
            found |= await self._segments(left, range(self.shards))
        return [found[span] for span in spans]

    async def _segments(self, spans: Sequence[Span], shards: Sequence[int]) -> dict[Span, list[Segment]]:
        asked = [[(b"%d" % span.log, span.first, span.end) for span in spans]]
        answers = await self._calls.read_all([ScriptCall(shard, script("runs"), asked) for shard in shards])
        found: dict[Span, list[Segment]] = {}
        for at, span in enumerate(spans):
            for shard, answer in zip(shards, answers, strict=True):
                if answer[at]:
                    self.remember(span.log, shard)
                    found[span] = [Segment(*segment) for segment in answer[at]]
            found.setdefault(span, [])
        return found

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        found: dict[bytes, bytes] = {}
        for shard, guessed in self._guesses(hashes, hashes).items():
            found |= await self._blobs(guessed, [shard])
        left = [hash_ for hash_ in dict.fromkeys(hashes) if hash_ not in found]
        if left and self.shards > 1:
            found |= await self._blobs(left, range(self.shards))
        return [found.get(hash_) for hash_ in hashes]

    async def _blobs(self, hashes: Sequence[bytes], shards: Sequence[int]) -> dict[bytes, bytes]:
        answers = await self._calls.read_all([ScriptCall(shard, script("blobs"), [hashes]) for shard in shards])
        found: dict[bytes, bytes] = {}
        for shard, answer in zip(shards, answers, strict=True):
            for hash_, data in zip(hashes, answer, strict=True):
                if data is not None:
                    self.remember(hash_, shard)
                    found[hash_] = data
        return found

    def _guesses(self, keys: Sequence[Any], known_by: Sequence[int | bytes]) -> dict[int, list[Any]]:
        guesses: dict[int, dict[Any, None]] = {}
        for key, by in zip(keys, known_by, strict=True):
            shard = layout.FIRST_SHARD if self.shards == 1 else self._shard_of.get(by)
            if shard is not None:
                guesses.setdefault(shard, {})[key] = None
        return {shard: list(guessed) for shard, guessed in guesses.items()}

    async def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        log, first = after or (0, -1)
        answers = await self.call_everywhere("page_runs", [b"%d" % log, b"%d" % first, limit])
        return sorted(SegmentInfo(int(found[0]), *found[1:]) for answer in answers for found in answer)[:limit]

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        """Return a page of blobs; a blob in several shards is one, with the time of its last write.

        Several shards have a blob if trees in them wrote it. The last bits of the time name the
        shard that it is from; a deletion by that time means the copy of that shard.
        """
        answers = await self.call_everywhere("page_blobs", [_format_lower_bound(after), limit])
        newest: dict[bytes, BlobInfo] = {}
        for answer in answers:
            for hash_, size, written in answer:
                if hash_ not in newest or newest[hash_].written_at_us < int(written):
                    newest[hash_] = BlobInfo(hash_, size, int(written))
        return sorted(newest.values())[:limit]

    # -- rows --------------------------------------------------------------------------------------------------------

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        of_shard: dict[int, list[RowKey]] = {}
        for key in dict.fromkeys(keys):
            of_shard.setdefault(layout.shard_of(key.tree, self.shards), []).append(key)
        calls = [
            ScriptCall(shard, script("rows"), [[(key.space, layout.place(key)) for key in asked]])
            for shard, asked in of_shard.items()
        ]
        answers = await self._calls.read_all(calls)
        found: dict[RowKey, Row | None] = {}
        for asked, answer in zip(of_shard.values(), answers, strict=True):
            found |= {key: layout.row_of(stored, key) if stored is not None else None
                      for key, stored in zip(asked, answer, strict=True)}  # fmt: skip
        return [found[key] for key in keys]

    async def scan(
        self, space: str, *, tree: bytes | None, prefix: bytes, after: bytes | None, limit: int | None
    ) -> list[tuple[RowKey, Row]]:
        low, high = layout.bounds(tree, prefix, after)
        width = False if tree is None else 1 + len(tree)
        shards = range(self.shards) if tree is None else [layout.shard_of(tree, self.shards)]
        of_shards = [await self._scan(shard, [space, width, low, high], limit) for shard in shards]
        merged = merge(*of_shards, key=lambda found: (found[0].key, found[0].tree))
        return [found for at, found in enumerate(merged) if limit is None or at < limit]

    async def _scan(self, shard: int, asked: list[Any], limit: int | None) -> list[tuple[RowKey, Row]]:
        space, width, low, high = asked
        found: list[tuple[RowKey, Row]] = []
        while limit is None or len(found) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(found))
            page = await self._calls.read("scan", [space, width, low, high, size], shard)
            for place, stored in page:
                key = layout.key_of(space, place)
                found.append((key, layout.row_of(stored, key)))
            if len(page) < size:
                break
            last = found[-1][0]
            low = b"(" + (layout.place(last) if width is False else layout.place_in_tree(last))
        return found

    # -- usage -------------------------------------------------------------------------------------------------------

    async def usage(self) -> Usage:
        sums: dict[str, list[int]] = {kind: [0, 0] for kind in ("record", "run", "blob", "row")}
        for shard in range(self.shards):
            spaces = await self._calls.read("spaces", [], shard)
            for kind in ("record", "run", "blob", *(f"row:{space.decode()}" for space in spaces)):
                of_kind = sums[kind.partition(":")[0]]
                after: bytes | None = b"-inf" if kind == "run" else b"-"
                while after is not None:
                    *counted, last = await self._calls.read("usage", [kind, after, USAGE_PAGE], shard)
                    for at, number in enumerate(counted):
                        of_kind[at] += number
                    after = None if last is None else b"(" + last
        return Usage(
            **{f"{FIELDS.get(kind, kind)}s": count for kind, (count, _) in sums.items()},
            **{f"{FIELDS.get(kind, kind)}_bytes": size for kind, (_, size) in sums.items()},
            total_bytes=sum(size + count * OVERHEAD[kind] for kind, (count, size) in sums.items()),
        )


def _format_lower_bound(after: bytes | None) -> bytes:
    return b"-" if after is None else b"(" + after
