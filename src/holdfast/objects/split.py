"""Splitting: which parts of a state are kept apart.

- A list of at least `MIN_ITEMS` elements whose encodings take at least `LONG_BYTES` is a *long list*: it is kept as a
  log of its elements, each encoded on its own. Elements are not looked into.
- Outside long lists, a `str` or `bytes` of at least `BLOB_LENGTH` is a *blob*.
- Everything else, with a `Ref` in the place of each of these, is the *skeleton*.

Dicts, shorter lists and registered objects are looked into at any depth. What is split off is a function of the value
alone, never of a cache, a history or a backend: so checksums are the same everywhere. What is known of the parent's
lists only spares work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import ormsgpack

from holdfast.codec.codec import Codec
from holdfast.codec.parts import Ref, Typed
from holdfast.errors import UnsupportedValueError
from holdfast.objects.chain import Chain, chain_of
from holdfast.objects.groups import EMPTY, Groups, Witnesses, witnesses_from
from holdfast.objects.groups import encode as encode_groups
from holdfast.objects.manifest import BlobEntry, ListEntry, Path

MIN_ITEMS = 8
LONG_BYTES = 4096
BLOB_LENGTH = 4096
MAX_WALKED = 1_000_000  # containers looked into; more are left in the skeleton, where the codec's limits apply

LIST, TEXT, BYTES = 0, 1, 2
ROOTS = ("execution_state", "agent_context")
_SMALL = min(LONG_BYTES, BLOB_LENGTH)
_PLAIN = frozenset((int, float, bool, type(None)))


class KnownList:
    """What is known of a list of the parent: its entry and, if they are remembered, its encodings and the chain over them; and
    whether it was appended to, so that its path is known to lead through dicts only."""

    __slots__ = ("chain", "entry", "groups", "was_appended_to")

    def __init__(
        self, entry: ListEntry, groups: Groups | None, chain: Chain | None, was_appended_to: bool = False
    ) -> None:
        self.entry = entry
        self.groups = groups
        self.chain = chain
        self.was_appended_to = was_appended_to


class Image:
    """A long list, encoded. `proven` is the parent's entry if its elements are this list's first ones, unchanged;
    `fresh` are then the elements that follow them, otherwise all. `groups` has all of them; it is None for a declared
    append, whose older elements were never given."""

    __slots__ = ("chain", "fresh", "groups", "has_bytes", "length", "path", "proven", "size")

    def __init__(
        self,
        *,
        path: Path,
        length: int,
        groups: Groups | None,
        fresh: Sequence[bytes],
        proven: ListEntry | None,
        chain: Chain | None,
        has_bytes: bool,
    ) -> None:
        self.path = path
        self.length = length
        self.groups = groups
        self.fresh = fresh
        self.proven = proven
        self.chain = chain  # None until that of a declared append was taken up where its parent's ended
        self.has_bytes = has_bytes
        self.size = (proven.size if proven else 0) + sum(map(len, fresh))


class Appended:
    """In the place of a list: the parent's list at this path, and these elements after it."""

    __slots__ = ("elements",)

    def __init__(self, elements: Sequence[Any]) -> None:
        self.elements = elements


def whole(codec: Codec, execution_state: Any, agent_context: Any) -> bytes | None:
    """The skeleton of a state that is too small for anything of it to be kept apart; None if it is larger than that. For who
    expects it to be small: of a larger one only the beginning is encoded, and in vain."""
    state = codec.encode_short(execution_state, ROOTS[0], _SMALL)
    if state is None:
        return None
    skeleton = b"\x92" + state + codec.encode(agent_context, ROOTS[1])
    return skeleton if len(skeleton) <= _SMALL else None


class Split:
    """A state in its parts, all encoded: nothing of it is the caller's any more. `skeleton` is that of a state that is
    `whole`; any other is to be taken."""

    def __init__(self, codec: Codec, known: Callable[[Path], KnownList | None], skeleton: bytes = b"") -> None:
        self.codec = codec
        self.lists: list[Image] = []
        self.blobs: list[BlobEntry] = []
        self.blob_contents: dict[bytes, bytes] = {}
        self.skeleton = skeleton
        self._known = known

    def take(self, execution_state: Any, agent_context: Any) -> Split:
        """Splits a state."""
        values = (execution_state, agent_context)
        self._walked = 0
        self._on_path: set[int] = set()
        self.skeleton = b"\x92" + b"".join(
            self.codec.encode(self._walk(value, (name,)), name, parts=True)
            for name, value in zip(ROOTS, values, strict=True)
        )
        return self

    def thaw(self) -> tuple[Any, Any]:
        """The state as it was given, from its parts: for splitting it anew against another parent."""

        def resolve(kind: int, index: int) -> object:
            if kind == LIST:
                image = self.lists[index]
                if image.groups is None:
                    return Appended(self.codec.decode_joined([(1, element) for element in image.fresh]))
                return self.codec.decode_joined(image.groups.pieces())
            return blob_value(kind, self.blob_contents[self.blobs[index].hash])

        execution_state, agent_context = self.codec.decode(self.skeleton, resolve)
        return execution_state, agent_context

    def _walk(self, value: Any, path: Path) -> Any:
        """The value with references in it, itself if there are none. It is never changed: what changes is copied."""
        kind = type(value)
        if kind is dict:
            return self._walk_items(value, value.items(), path, dict)
        if kind is list:
            if len(value) >= MIN_ITEMS:
                return self._walk_list(value, path)
            return self._walk_items(value, enumerate(value), path, list)
        if kind is str or kind is bytes:
            return value if len(value) < BLOB_LENGTH else self._blob(value)
        if kind is Appended:
            return self._declared(value, path)
        if kind is Ref or kind is Typed:
            raise UnsupportedValueError(path_text(path), f"a {kind.__name__} is holdfast's own", "Leave it out")
        taken = self.codec.take_apart(value, path_text(path)) if kind in self.codec.types.by_class else None
        if taken is not None and type(taken.fields) is dict:
            fields = self._walk_items(taken.fields, taken.fields.items(), path, dict)
            return value if fields is taken.fields else Typed(taken.name, fields)
        return value

    def _walk_items(self, container: Any, items: Any, path: Path, copy: Callable[[Any], Any]) -> Any:
        self._walked += 1
        identity = id(container)
        if self._walked > MAX_WALKED or identity in self._on_path or len(path) > self.codec.limits.max_depth:
            return container  # a cycle, or too much: the codec refuses it by name
        self._on_path.add(identity)
        changed = None
        for key, item in items:
            if type(item) in _PLAIN or (type(item) is str and len(item) < BLOB_LENGTH):
                continue
            if type(key) is not str and type(key) is not int:
                continue  # a path is made of strings and numbers
            replaced = self._walk(item, (*path, key))
            if replaced is not item:
                if changed is None:
                    changed = copy(container)
                changed[key] = replaced
        self._on_path.discard(identity)
        return container if changed is None else changed

    def _walk_list(self, value: list[Any], path: Path) -> Any:
        image = self._image(value, path)
        if image is None or not _can_be_stored(path):
            return value
        self.lists.append(image)
        return Ref(LIST, len(self.lists) - 1)

    def _image(self, value: list[Any], path: Path) -> Image | None:
        """The list, encoded; None if it is too small to be kept apart."""
        known = self._known(path)
        text = path_text(path)
        if known is not None and len(value) >= known.entry.length:
            seen = self._witnesses_of_the_rest(known, value)
            proof = self._proof(known, value, text)
            if proof is not None:
                groups, chain = proof
                fresh = self.codec.encode_each(value[groups.length :], text, groups.length)
                chain.update(b"".join(fresh))
                return self._made(path, len(value), groups.followed_by(fresh, seen), fresh, known.entry, chain)
        seen = witnesses_from(value, 0, self.codec) if self.codec.types.plain else ()
        elements = self.codec.encode_each(value, text, 0)
        if sum(map(len, elements)) < LONG_BYTES:
            return None
        groups = EMPTY.followed_by(elements, seen)
        return self._made(path, len(value), groups, elements, None, chain_of(groups.stretches))

    def _witnesses_of_the_rest(self, known: KnownList, value: list[Any]) -> Witnesses:
        """Of the elements that follow the parent's, where they are of use."""
        if len(value) == known.entry.length:
            return ()
        is_wanted = known.groups.will_be_watched(value, self.codec) if known.groups else bool(self.codec.types.plain)
        return witnesses_from(value, known.entry.length, self.codec) if is_wanted else ()

    def _proof(self, known: KnownList, value: list[Any], text: str) -> tuple[Groups, Chain] | None:
        """The encodings of the parent's elements and the chain over them, if the value begins with exactly these."""
        entry = known.entry
        no_bytes = not entry.has_bytes
        if known.groups is not None and known.chain is not None:
            begun = known.groups.begin(value, self.codec, text, no_bytes=no_bytes)
            return (begun, known.chain.copy()) if begun is not None else None
        groups, chain = encode_groups(value, entry.length, self.codec, text, no_bytes=no_bytes)
        return (groups, chain) if groups.size == entry.size and chain.digest() == entry.digest else None

    def _made(
        self,
        path: Path,
        length: int,
        groups: Groups | None,
        fresh: Sequence[bytes],
        proven: ListEntry | None,
        chain: Chain | None,
    ) -> Image:
        return Image(
            path=path,
            length=length,
            groups=groups,
            fresh=fresh,
            proven=proven,
            chain=chain,
            has_bytes=(proven is not None and proven.has_bytes) or any(map(self.codec.holds_bytes, fresh)),
        )

    def _declared(self, appended: Appended, path: Path) -> Ref:
        known = self._known(path)
        assert known is not None, "the operation puts whole lists in the place of those that are no logs yet"
        entry = known.entry
        fresh = self.codec.encode_each(appended.elements, path_text(path), entry.length)
        chain = known.chain.copy() if known.chain else None
        if chain is not None:
            chain.update(b"".join(fresh))
        self.lists.append(self._made(path, entry.length + len(fresh), None, fresh, entry, chain))
        return Ref(LIST, len(self.lists) - 1)

    def _blob(self, value: str | bytes) -> Ref:
        content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        hash_ = hashlib.sha256(content).digest()
        self.blobs.append(BlobEntry(hash_, len(content)))
        self.blob_contents[hash_] = content
        return Ref(TEXT if isinstance(value, str) else BYTES, len(self.blobs) - 1)


def blob_value(kind: int, content: bytes) -> str | bytes:
    return content.decode("utf-8", "surrogatepass") if kind == TEXT else content


def path_text(path: Path) -> str:
    """A path as people read it: `execution_state.values.messages`."""
    text = str(path[0])
    for key in path[1:]:
        text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text


def _can_be_stored(path: Path) -> bool:
    """A path with a lone surrogate in a key can't be written into a manifest: its list stays in the skeleton."""
    try:
        ormsgpack.packb(list(path))
    except TypeError:
        return False
    return True
