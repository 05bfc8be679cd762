"""Deltas for blobs of a snapshot: writing them, and finding their bases.

A commit that writes a delta writes its base again, too, which costs no space if it is unchanged. So
the base is newer than the listing of any garbage collection, and exists, like any blob that a
commit writes itself; from then on it is marked through the delta. A reader looks for the whole blob
first: one that is written whole later, since it is not inherited, wins.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import zstandard

from holdfast.errors import CorruptError, HoldfastError
from holdfast.format import frame
from holdfast.format.files import blob_delta
from holdfast.format.files.file_tree import Load
from holdfast.operations.context import StoreContext

AT_ONCE = 64
MOST_KEPT = 256  # of the contents written or read last, each up to this size
KEPT_BYTES = 32 * 1024
MOST = 256  # blobs that a snapshot stores as deltas: with more, reading the replaced ones takes too long

Kept = TypeVar("Kept")


class _DeltaBase(NamedTuple):
    hash: bytes
    framed: bytes
    content: bytes


class _Tools(NamedTuple):
    """Compressors for one user at a time. Making them takes as long as using them on a node."""

    inflate: frame.Inflater
    deflate: zstandard.ZstdCompressor


class RecentContents:
    """The contents written or read last, and the bases for deltas from them.

    They are identified by their hashes, so nothing is ever out of date. A base is written again
    whenever it is used.
    """

    def __init__(self) -> None:
        self.contents: dict[bytes, bytes] = {}
        self.bases: dict[bytes, _DeltaBase] = {}
        self._tools: list[_Tools] = []  # those not in use

    def make_loader(self, ctx: StoreContext, load: Load) -> Load:
        """Return a loader that reads blobs that are not in this cache.

        A blob that is read is often the next one to be replaced, so the bases for deltas from it
        are cached, too. `load` raises the error for blobs that can't be read.
        """

        async def load_others(hashes: Sequence[bytes]) -> list[bytes]:
            others = [hash_ for hash_ in hashes if hash_ not in self.contents]
            loaded = await self._learn(ctx, others) if others else {}
            left = [hash_ for hash_ in others if hash_ not in loaded]
            loaded |= dict(zip(left, await load(left), strict=True)) if left else {}
            found = [loaded[hash_] if hash_ in loaded else self.contents[hash_] for hash_ in hashes]
            self.keep(loaded)
            return found

        return load_others

    async def _learn(self, ctx: StoreContext, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the contents of those of these blobs that exist and are undamaged."""
        bases, differences = await self._read(ctx, hashes)
        contents: dict[bytes, bytes] = {}
        for hash_, base in bases.items():
            if base.hash == hash_:
                contents[hash_] = base.content
                continue
            with contextlib.suppress(CorruptError):
                content = blob_delta.unpack(differences[hash_], base.content)
                if hashlib.sha256(content).digest() == hash_:
                    contents[hash_] = content
        self.replace(bases)
        return contents

    async def _read(
        self, ctx: StoreContext, hashes: Sequence[bytes]
    ) -> tuple[dict[bytes, _DeltaBase], dict[bytes, bytes]]:
        """Return the bases for deltas from these blobs, and the contents of the blobs.

        The base is the blob itself if it is whole, else its own base with the delta. Damaged and
        missing blobs are left out.
        """
        stored = dict(zip(hashes, await ctx.backend.blobs(hashes), strict=True))
        made = [hash_ for hash_, framed in stored.items() if framed is None]
        origin = {hash_: hash_ for hash_ in stored}
        differences: dict[bytes, bytes] = {}
        if made:
            found = await ctx.backend.blobs([blob_delta.key_of(hash_) for hash_ in made])
            differences = {
                hash_: difference for hash_, difference in zip(made, found, strict=True) if difference is not None
            }
            origin |= {hash_: difference[1 : 1 + blob_delta.HASH_BYTES] for hash_, difference in differences.items()}
            below = list({origin[hash_] for hash_ in made} - stored.keys())
            stored |= dict(zip(below, await ctx.backend.blobs(below), strict=True))
        bases: dict[bytes, _DeltaBase] = {}
        tools = self.borrow()
        for hash_, of in origin.items():
            framed = stored[of]
            if framed is None or len(framed) > blob_delta.MOST_BYTES:
                continue
            try:
                content = frame.content(framed, tools.inflate, limit=frame.MAX_OF_SNAPSHOT)
            except HoldfastError:
                continue
            if hashlib.sha256(content).digest() == of:
                bases[hash_] = _DeltaBase(of, framed, content)
        self.give_back(tools)
        return bases, differences

    def borrow(self) -> _Tools:
        """Return tools for exclusive use, across threads and event loops.

        Tools that are not returned are forgotten.
        """
        try:
            return self._tools.pop()
        except IndexError:
            return _Tools(frame.inflater(), frame.deflater())

    def give_back(self, tools: _Tools) -> None:
        self._tools.append(tools)

    def keep(self, contents: Mapping[bytes, bytes]) -> None:
        _keep(self.contents, {hash_: content for hash_, content in contents.items() if len(content) <= KEPT_BYTES})

    async def bases_of(self, ctx: StoreContext, hashes: Collection[bytes]) -> dict[bytes, _DeltaBase]:
        known = {hash_: self.bases[hash_] for hash_ in hashes if hash_ in self.bases}
        others = [hash_ for hash_ in hashes if hash_ not in known]
        return known | (await self._read(ctx, others))[0] if others else known

    def replace(self, bases: Mapping[bytes, _DeltaBase]) -> None:
        """Replace the bases for deltas from blobs that were written now."""
        _keep(self.bases, {hash_: base for hash_, base in bases.items() if len(base.content) <= KEPT_BYTES})


def _keep(kept: dict[bytes, Kept], more: Mapping[bytes, Kept]) -> None:
    for hash_ in more:
        kept.pop(hash_, None)
    kept.update(more)
    for hash_ in list(kept)[: max(len(kept) - MOST_KEPT, 0)]:
        del kept[hash_]


async def pack_blobs(
    ctx: StoreContext,
    framed: Mapping[bytes, bytes],
    contents: Mapping[bytes, bytes],
    replaced: Mapping[bytes, bytes],
    recent: RecentContents,
) -> dict[bytes, bytes]:
    """Return the writes that store these blobs, some given framed and others raw.

    Some become deltas from the blobs that they replace, by hash.
    """
    wanted = {
        hash_: replaced[hash_]
        for hash_, data in itertools.chain(framed.items(), contents.items())
        if hash_ in replaced and blob_delta.LEAST_BYTES <= len(data) <= blob_delta.MOST_BYTES
    }
    if len(wanted) > MOST:
        wanted = {}
    old = await recent.bases_of(ctx, set(wanted.values())) if wanted else {}
    bases = {
        hash_: None if base is None or base.hash in framed or base.hash in contents else base
        for hash_, base in ((hash_, old.get(of)) for hash_, of in wanted.items())
    }
    found, next_bases = await ctx.backend.run_in_thread(lambda: _pack_writes(framed, contents, bases, recent))
    recent.replace(next_bases)
    return found


def _pack_writes(
    framed: Mapping[bytes, bytes],
    contents: Mapping[bytes, bytes],
    bases: Mapping[bytes, _DeltaBase | None],
    recent: RecentContents,
) -> tuple[dict[bytes, bytes], dict[bytes, _DeltaBase]]:
    """Return the writes, and the next bases for deltas from those blobs that `bases` names."""
    found: dict[bytes, bytes] = {}
    next_bases: dict[bytes, _DeltaBase] = {}
    tools = recent.borrow()
    inflate, deflate = tools
    for hash_, data in itertools.chain(framed.items(), contents.items()):
        whole = data if hash_ in framed else None
        if hash_ not in bases:
            found[hash_] = whole or frame.compress(data, deflate)
            continue
        content = data if whole is None else frame.content(whole, inflate)
        base = bases[hash_]
        difference = b"" if base is None else blob_delta.pack(content, base.hash, base.content)
        if whole is None and not (difference and blob_delta.is_surely_worth_it(difference, content)):
            whole = frame.compress(content, deflate)
        if base is not None and (whole is None or blob_delta.is_worth_it(difference, whole)):
            found[blob_delta.key_of(hash_)] = difference
            found[base.hash] = base.framed
            next_bases[hash_] = base
        else:
            assert whole is not None
            found[hash_] = whole
            next_bases[hash_] = _DeltaBase(hash_, whole, content)
    recent.give_back(tools)
    return found, next_bases


async def load_whole(ctx: StoreContext, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the contents, checked, of blobs that are stored as deltas and not whole."""
    keys = [blob_delta.key_of(hash_) for hash_ in hashes]
    stored = zip(hashes, await ctx.backend.blobs(keys), strict=True)
    differences = {hash_: difference for hash_, difference in stored if difference is not None}
    origin = {hash_: blob_delta.base_of(hash_, difference) for hash_, difference in differences.items()}
    asked = list(dict.fromkeys(origin.values()))
    bases = dict(zip(asked, await ctx.backend.blobs(asked), strict=True)) if asked else {}
    contents: dict[bytes, bytes] = {}
    inflate = frame.inflater()
    for hash_, difference in differences.items():
        of = origin[hash_]
        base = bases[of]
        names = f"the blob {hash_.hex()[:16]}… of a snapshot, a difference from the blob {of.hex()[:16]}…,"
        if base is None:
            raise CorruptError(f"{names} can't be read: the latter is missing. Run `verify`")
        try:
            content = blob_delta.unpack(difference, frame.content(base, inflate, limit=frame.MAX_OF_SNAPSHOT))
        except CorruptError as error:
            raise CorruptError(f"{names} can't be read: {error}") from error
        if hashlib.sha256(content).digest() != hash_:
            raise CorruptError(f"{names} is damaged, or the latter is: run `verify`")
        contents[hash_] = content
    return contents


async def find_delta_parts(
    ctx: StoreContext, hashes: Iterable[bytes], listed: Container[bytes]
) -> dict[bytes, tuple[bytes, ...]]:
    """Return, for blobs listed as deltas, the keys that they are made from: the delta and its base.

    This includes blobs that are also stored whole: a concurrent gc, which listed them before they
    came into use, may be about to remove the whole blob.
    """
    keys = {hash_: key for hash_ in hashes if (key := blob_delta.key_of(hash_)) in listed}
    found: dict[bytes, tuple[bytes, ...]] = {}
    waiting = list(keys.items())
    for start in range(0, len(waiting), AT_ONCE):
        batch = waiting[start : start + AT_ONCE]
        for (hash_, key), difference in zip(batch, await ctx.backend.blobs([key for _, key in batch]), strict=True):
            # `verify` reports a damaged one.
            found[hash_] = (key, difference[1 : 1 + blob_delta.HASH_BYTES]) if difference else (key,)
    return found
