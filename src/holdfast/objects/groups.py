"""Groups: the encodings of a long list's elements, in stretches that are quick to make again and to compare.

Comparing a list with what was saved of it means encoding it again. In stretches of `GROUP` elements the encodings are
small enough to stay in the processor's cache and out of the allocator's way: measured at twice the speed of encoding a
list of some megabytes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.codec.codec import Codec
from holdfast.objects.chain import Chain

if TYPE_CHECKING:
    from holdfast.objects.witness import Witness

GROUP = 64
OBJECT_BYTES = 1500  # what a witnessed element takes in memory beside its texts: an estimate
WATCHED_BYTES = 65_536  # of lists without plain classes: below it, encoding again is the cheaper way

Witnesses = tuple["Witness | None", ...]


class Groups(NamedTuple):
    """The elements' encodings, joined by `GROUP` elements; the last stretch may be shorter. Where the codec's types say
    which classes are plain, there is a witness for each stretch that can have one. Else there are witnesses once a long
    list was given twice with the very same elements in it: of elements that are made anew each time, they would say nothing."""

    length: int
    size: int
    stretches: tuple[bytes, ...]
    witnesses: Witnesses = ()
    places: tuple[int, ...] | None = ()
    """Where each stretch's first element was when they were compared last: a hint, no proof. None: memory ran short, and
    these are not to be watched again."""

    @property
    def kept_bytes(self) -> int:
        """About what remembering these takes."""
        return self.size + (self.size + self.length * OBJECT_BYTES if any(self.witnesses) else 0)

    def joined(self) -> bytes:
        return b"".join(self.stretches)

    def pieces(self) -> list[tuple[int, bytes]]:
        """Each stretch with the number of its elements."""
        firsts = range(0, self.length, GROUP)
        return [(min(GROUP, self.length - first), data) for first, data in zip(firsts, self.stretches, strict=True)]

    def followed_by(self, fresh: Sequence[bytes], witnesses: Witnesses = ()) -> Groups:
        """These elements and more. Full stretches are shared. `witnesses` are those of what is new, see `witnesses_from`."""
        if not fresh:
            return self
        stretches = list(self.stretches)
        room = -self.length % GROUP
        if room:
            stretches[-1] += b"".join(fresh[:room])
        stretches += [b"".join(fresh[start : start + GROUP]) for start in range(room, len(fresh), GROUP)]
        seen = self._witnesses_with(witnesses) if witnesses else ()
        return Groups(self.length + len(fresh), self.size + sum(map(len, fresh)), tuple(stretches), seen, self.places)

    def unwatched(self) -> Groups:
        """The same without witnesses, in a third of the memory."""
        return self._replace(witnesses=(), places=None) if self.witnesses else self

    def will_be_watched(self, value: list[Any], codec: Codec) -> bool:
        """Whether `begin` would look for witnesses: so those of what comes after these elements are wanted, too."""
        if codec.types.plain or self.witnesses:
            return True
        places = self.places
        if not places or self.size < WATCHED_BYTES or places != _places(value, len(places)):
            return False
        return _dicts_are_quick_to_watch()

    def _witnesses_with(self, new: Witnesses) -> Witnesses:
        before = self.witnesses or (None,) * len(self.stretches)
        if self.length % GROUP == 0:
            return (*before, *new)
        last, first = before[-1], new[0]  # of the same stretch
        return (*before[:-1], last.followed_by(first) if last and first else None, *new[1:])

    def begin(self, value: list[Any], codec: Codec, path: str, *, no_bytes: bool) -> Groups | None:
        """These, with witnesses of the value's elements, if the value's first ones encode to exactly them; else None.
        Of what has a witness, nothing is encoded."""
        if self.witnesses and _testify(self.witnesses, value[: self.length]):
            return self
        if not self.will_be_watched(value, codec):
            is_same = codec.encodes_to_all(value, self.length, self.stretches, GROUP, path, no_bytes=no_bytes)
            return self._now_at(value) if is_same else None
        before = self.witnesses or (None,) * len(self.stretches)
        after: list[Witness | None] = []
        for start, stretch, known in zip(range(0, self.length, GROUP), self.stretches, before, strict=True):
            elements = value[start : min(start + GROUP, self.length)]
            if known is not None and known.testifies(elements):
                after.append(known)
                continue
            # Made before the stretch is encoded: what changes meanwhile must not go unnoticed.
            is_wanted = known is None or bool(codec.types.plain) or known.is_of(elements)
            after.append(witness_of(elements, codec) if is_wanted else None)
            if not codec.encodes_to(elements, stretch, path, no_bytes=no_bytes):
                return None
        return self._replace(witnesses=tuple(after) if any(after) else ())._now_at(value)

    def _now_at(self, value: list[Any]) -> Groups:
        return self if self.places is None else self._replace(places=_places(value, len(self.stretches)))


EMPTY = Groups(0, 0, ())


def _testify(witnesses: Witnesses, elements: list[Any]) -> bool:
    global _testify  # noqa: PLW0603 - as in `_witness`
    from holdfast.objects.witness import all_testify

    _testify = all_testify
    return all_testify(witnesses, elements)


def witness_of(elements: list[Any], codec: Codec) -> Witness | None:
    return _witness(elements, codec.types.plain)


def _witness(elements: list[Any], plain: frozenset[type[Any]]) -> Witness | None:
    global _witness  # noqa: PLW0603 - looked up once: only who has long lists needs it, and what it imports
    from holdfast.objects.witness import witness

    _witness = witness
    return witness(elements, plain)


def witnesses_from(value: list[Any], first: int, codec: Codec) -> Witnesses:
    """Of the elements from `first` on, by stretches: the first one may be the rest of a stretch. To be taken before these elements
    are encoded: a change in between then shows as one."""
    starts = [first, *range(first // GROUP * GROUP + GROUP, len(value), GROUP)]
    return tuple(witness_of(value[start:end], codec) for start, end in pairwise([*starts, len(value)]))


def _places(value: list[Any], stretches: int) -> tuple[int, ...]:
    return tuple(map(id, value[: stretches * GROUP : GROUP]))


def _dicts_are_quick_to_watch() -> bool:
    from holdfast.objects.dictwatch import ARE_NUMBERED  # as in `witness_of`

    return ARE_NUMBERED


def encode(value: list[Any], length: int, codec: Codec, path: str, *, no_bytes: bool) -> tuple[Groups, Chain]:
    """The groups of the value's first `length` elements, and the chain over them. Not proven: see `Codec.encode_joined`."""
    chain = Chain()
    stretches = []
    seen: list[Witness | None] = []
    for start in range(0, length, GROUP):
        elements = value[start : min(start + GROUP, length)]
        if codec.types.plain:
            seen.append(witness_of(elements, codec))
        stretch = codec.encode_joined(elements, path, no_bytes=no_bytes)
        chain.update(stretch)
        stretches.append(stretch)
    witnesses = tuple(seen) if any(seen) else ()
    return Groups(length, sum(map(len, stretches)), tuple(stretches), witnesses), chain
