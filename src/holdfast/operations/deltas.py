"""Storing blobs of a snapshot as differences from what they replace, and finding what these are made from.

A commit that writes a difference writes its base again, too, which costs no room where it is the same. So the base is newer than
whatever a collection has listed, and is there, like any blob that a commit writes itself; from then on it is marked through
the difference. Who looks for a blob looks for it whole first: one that is written whole later, since it is not inherited,
wins.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import zstandard

from holdfast.errors import CorruptError, HoldfastError
from holdfast.objects import delta, frame
from holdfast.objects.filetree import Load
from holdfast.operations.services import Services

AT_ONCE = 64
MOST_KEPT = 256  # of what was written or read last, and each of so many bytes at most
KEPT_BYTES = 32 * 1024
MOST = 256  # blobs that a snapshot stores as differences: with more, reading what they replace takes too long

Kept = TypeVar("Kept")


class _Base(NamedTuple):
    hash: bytes
    framed: bytes
    content: bytes


class _Tools(NamedTuple):
    """For one at a time. To make them takes as long as to use them on a node."""

    inflate: frame.Inflater
    deflate: zstandard.ZstdCompressor


class Recent:
    """What was written or read last: contents, and what differences from them are made from. They are known by their hashes,
    so that nothing is ever out of date; and a base is written again whenever it is used."""

    def __init__(self) -> None:
        self.contents: dict[bytes, bytes] = {}
        self.bases: dict[bytes, _Base] = {}
        self._tools: list[_Tools] = []  # that nobody uses now

    def loader(self, services: Services, load: Load) -> Load:
        """Loads what is not known here. What it reads is what is replaced next, mostly: so what differences from it are made
        from is remembered, too. `load` says what is wrong with what can't be had so."""

        async def load_others(hashes: Sequence[bytes]) -> list[bytes]:
            others = [hash_ for hash_ in hashes if hash_ not in self.contents]
            loaded = await self._learned(services, others) if others else {}
            left = [hash_ for hash_ in others if hash_ not in loaded]
            loaded |= dict(zip(left, await load(left), strict=True)) if left else {}
            found = [loaded[hash_] if hash_ in loaded else self.contents[hash_] for hash_ in hashes]
            self.keep(loaded)
            return found

        return load_others

    async def _learned(self, services: Services, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """The contents of those of these blobs that are there and undamaged."""
        bases, differences = await self._read(services, hashes)
        contents: dict[bytes, bytes] = {}
        for hash_, base in bases.items():
            if base.hash == hash_:
                contents[hash_] = base.content
                continue
            with contextlib.suppress(CorruptError):
                content = delta.unpack(differences[hash_], base.content)
                if hashlib.sha256(content).digest() == hash_:
                    contents[hash_] = content
        self.replace(bases)
        return contents

    async def _read(self, services: Services, hashes: Sequence[bytes]) -> tuple[dict[bytes, _Base], dict[bytes, bytes]]:
        """What differences from these blobs can be made from: themselves if they are whole, else what they are made from, and how.
        What is damaged or missing is left out."""
        stored = dict(zip(hashes, await services.backend.blobs(hashes), strict=True))
        made = [hash_ for hash_, framed in stored.items() if framed is None]
        origin = {hash_: hash_ for hash_ in stored}
        differences: dict[bytes, bytes] = {}
        if made:
            found = await services.backend.blobs([delta.key_of(hash_) for hash_ in made])
            differences = {
                hash_: difference for hash_, difference in zip(made, found, strict=True) if difference is not None
            }
            origin |= {hash_: difference[1 : 1 + delta.HASH_BYTES] for hash_, difference in differences.items()}
            below = list({origin[hash_] for hash_ in made} - stored.keys())
            stored |= dict(zip(below, await services.backend.blobs(below), strict=True))
        bases: dict[bytes, _Base] = {}
        tools = self.borrowed()
        for hash_, of in origin.items():
            framed = stored[of]
            if framed is None or len(framed) > delta.MOST_BYTES:
                continue
            try:
                content = frame.content(framed, tools.inflate)
            except HoldfastError:
                continue
            if hashlib.sha256(content).digest() == of:
                bases[hash_] = _Base(of, framed, content)
        self.give_back(tools)
        return bases, differences

    def borrowed(self) -> _Tools:
        """Nobody else has them, whichever thread or event loop asks. What is not given back is forgotten."""
        try:
            return self._tools.pop()
        except IndexError:
            return _Tools(frame.inflater(), frame.deflater())

    def give_back(self, tools: _Tools) -> None:
        self._tools.append(tools)

    def keep(self, contents: Mapping[bytes, bytes]) -> None:
        _keep(self.contents, {hash_: content for hash_, content in contents.items() if len(content) <= KEPT_BYTES})

    async def bases_of(self, services: Services, hashes: Collection[bytes]) -> dict[bytes, _Base]:
        known = {hash_: self.bases[hash_] for hash_ in hashes if hash_ in self.bases}
        others = [hash_ for hash_ in hashes if hash_ not in known]
        return known | (await self._read(services, others))[0] if others else known

    def replace(self, bases: Mapping[bytes, _Base]) -> None:
        """What differences from blobs that were written now are made from next."""
        _keep(self.bases, {hash_: base for hash_, base in bases.items() if len(base.content) <= KEPT_BYTES})


def _keep(kept: dict[bytes, Kept], more: Mapping[bytes, Kept]) -> None:
    for hash_ in more:
        kept.pop(hash_, None)
    kept.update(more)
    for hash_ in list(kept)[: max(len(kept) - MOST_KEPT, 0)]:
        del kept[hash_]


async def packed(
    services: Services,
    framed: Mapping[bytes, bytes],
    contents: Mapping[bytes, bytes],
    replaced: Mapping[bytes, bytes],
    recent: Recent,
) -> dict[bytes, bytes]:
    """What to write so that these blobs are stored, of which some are given framed and others as they are: some become differences
    from those that they replace, by hash."""
    wanted = {
        hash_: replaced[hash_]
        for hash_, data in itertools.chain(framed.items(), contents.items())
        if hash_ in replaced and delta.LEAST_BYTES <= len(data) <= delta.MOST_BYTES
    }
    if len(wanted) > MOST:
        wanted = {}
    old = await recent.bases_of(services, set(wanted.values())) if wanted else {}
    bases = {
        hash_: None if base is None or base.hash in framed or base.hash in contents else base
        for hash_, base in ((hash_, old.get(of)) for hash_, of in wanted.items())
    }
    found, next_bases = await services.backend.apart(lambda: _written(framed, contents, bases, recent))
    recent.replace(next_bases)
    return found


def _written(
    framed: Mapping[bytes, bytes], contents: Mapping[bytes, bytes], bases: Mapping[bytes, _Base | None], recent: Recent
) -> tuple[dict[bytes, bytes], dict[bytes, _Base]]:
    """What to write, and what differences from those of these blobs that `bases` names are made from next."""
    found: dict[bytes, bytes] = {}
    next_bases: dict[bytes, _Base] = {}
    tools = recent.borrowed()
    inflate, deflate = tools
    for hash_, data in itertools.chain(framed.items(), contents.items()):
        whole = data if hash_ in framed else None
        if hash_ not in bases:
            found[hash_] = whole or frame.compressed(data, deflate)
            continue
        content = data if whole is None else frame.content(whole, inflate)
        base = bases[hash_]
        difference = b"" if base is None else delta.pack(content, base.hash, base.content)
        if whole is None and not (difference and delta.is_surely_worth_it(difference, content)):
            whole = frame.compressed(content, deflate)
        if base is not None and (whole is None or delta.is_worth_it(difference, whole)):
            found[delta.key_of(hash_)] = difference
            found[base.hash] = base.framed
            next_bases[hash_] = base
        else:
            assert whole is not None
            found[hash_] = whole
            next_bases[hash_] = _Base(hash_, whole, content)
    recent.give_back(tools)
    return found, next_bases


async def whole(services: Services, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
    """Of blobs that are not there whole, those that are there as differences: their contents, checked."""
    keys = [delta.key_of(hash_) for hash_ in hashes]
    stored = zip(hashes, await services.backend.blobs(keys), strict=True)
    differences = {hash_: difference for hash_, difference in stored if difference is not None}
    origin = {hash_: delta.base_of(hash_, difference) for hash_, difference in differences.items()}
    asked = list(dict.fromkeys(origin.values()))
    bases = dict(zip(asked, await services.backend.blobs(asked), strict=True)) if asked else {}
    contents: dict[bytes, bytes] = {}
    inflate = frame.inflater()
    for hash_, difference in differences.items():
        of = origin[hash_]
        base = bases[of]
        names = f"the blob {hash_.hex()[:16]}… of a snapshot, a difference from the blob {of.hex()[:16]}…,"
        if base is None:
            raise CorruptError(f"{names} can't be read: the latter is missing. Run `verify`")
        try:
            content = delta.unpack(difference, frame.content(base, inflate))
        except CorruptError as error:
            raise CorruptError(f"{names} can't be read: {error}") from error
        if hashlib.sha256(content).digest() != hash_:
            raise CorruptError(f"{names} is damaged, or the latter is: run `verify`")
        contents[hash_] = content
    return contents


async def made_from(
    services: Services, hashes: Iterable[bytes], listed: Collection[bytes]
) -> dict[bytes, tuple[bytes, ...]]:
    """For those of these blobs that are listed as differences: the keys of what they are made from, the difference and its
    base. Also if they are there whole: somebody may be about to remove that, who has looked before they came into use."""
    keys = {hash_: key for hash_ in hashes if (key := delta.key_of(hash_)) in listed}
    found: dict[bytes, tuple[bytes, ...]] = {}
    waiting = list(keys.items())
    for start in range(0, len(waiting), AT_ONCE):
        batch = waiting[start : start + AT_ONCE]
        for (hash_, key), difference in zip(
            batch, await services.backend.blobs([key for _, key in batch]), strict=True
        ):
            # A damaged one is for `verify` to report.
            found[hash_] = (key, difference[1 : 1 + delta.HASH_BYTES]) if difference else (key,)
    return found
