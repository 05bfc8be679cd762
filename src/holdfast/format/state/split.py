"""The split of a state into parts that are stored separately.

- A list of at least `MIN_ITEMS` elements whose encodings take at least `LONG_BYTES` is a *long
  list*: it is stored as a log of its elements, each encoded on its own. Its elements are not split.
- Outside long lists, a `str` or `bytes` of at least `BLOB_LENGTH` is a *blob*.
- Everything else, with a `Ref` instead of each of these, is the *skeleton*.

Dicts, shorter lists and registered objects are split at any depth. The split is a function of the
value alone, never of a cache, a history or a backend: so checksums are the same everywhere.
Knowledge of the parent's lists only saves work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import ormsgpack

from holdfast.codec.codec import Codec
from holdfast.codec.placeholders import Ref, TypedObject
from holdfast.errors import UnsupportedValueError
from holdfast.format.state.encoded_list import EMPTY, Groups, encode_groups
from holdfast.format.state.list_digest import Chain, chain_of
from holdfast.format.state.manifest import BlobEntry, ListEntry, Path

MIN_ITEMS = 8
LONG_BYTES = 4096
BLOB_LENGTH = 4096
MAX_WALKED = 1_000_000  # containers visited; more are left in the skeleton, where the codec's limits apply

LIST, TEXT, BYTES = 0, 1, 2
ROOTS = ("execution_state", "agent_context")
_SMALL = min(LONG_BYTES, BLOB_LENGTH)
_PLAIN = frozenset((int, float, bool, type(None)))


class KnownList:
    """A list of the parent: its entry and, if they are cached, its encodings and the chain over them.

    It also says whether the list was appended to: then its path is known to lead through dicts
    only.
    """

    __slots__ = ("chain", "entry", "groups", "was_appended_to")

    def __init__(
        self, entry: ListEntry, groups: Groups | None, chain: Chain | None, was_appended_to: bool = False
    ) -> None:
        self.entry = entry
        self.groups = groups
        self.chain = chain
        self.was_appended_to = was_appended_to


class Image:
    """A long list, encoded.

    `proven` is the parent's entry if its elements are this list's first ones, unchanged. `fresh`
    are then the elements after them, otherwise all. `groups` has all elements; it is None for a
    declared append, whose older elements were never given.
    """

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
        self.chain = chain  # None until a declared append has resumed its parent's chain
        self.has_bytes = has_bytes
        self.size = (proven.size if proven else 0) + sum(map(len, fresh))


class ListAppend:
    """A declared append instead of a list: the parent's list at this path, and these elements after it."""

    __slots__ = ("elements",)
    STANDS_FOR = list

    def __init__(self, elements: Sequence[Any]) -> None:
        self.elements = elements


def encode_whole(codec: Codec, execution_state: Any, agent_context: Any) -> bytes | None:
    """Return the skeleton of a state that is too small to be split; None for a larger state.

    For callers that expect a small state: of a larger one the beginning is encoded in vain.
    """
    state = codec.encode_short(execution_state, ROOTS[0], _SMALL)
    if state is None:
        return None
    skeleton = b"\x92" + state + codec.encode(agent_context, ROOTS[1])
    return skeleton if len(skeleton) <= _SMALL else None


class Split:
    """A state in its parts, all encoded: it shares nothing with the caller's objects.

    `skeleton` is that of a state that is `whole`; any other state must be split by `take`.
    """

    def __init__(self, codec: Codec, known: Callable[[Path], KnownList | None], skeleton: bytes = b"") -> None:
        self.codec = codec.internal  # for values that are redacted already
        self._given_codec = codec
        self.lists: list[Image] = []
        self.blobs: list[BlobEntry] = []
        self.blob_contents: dict[bytes, bytes] = {}
        self.skeleton = skeleton
        self._known = known

    def take(self, execution_state: Any, agent_context: Any) -> Split:
        """Split a state."""
        values = (
            self._given_codec.redact(execution_state, ROOTS[0]),
            self._given_codec.redact(agent_context, ROOTS[1]),
        )
        self._walked = 0
        self._on_path: set[int] = set()
        self.skeleton = b"\x92" + b"".join(
            self.codec.encode(self._walk(value, (name,)), name, parts=True)
            for name, value in zip(ROOTS, values, strict=True)
        )
        return self

    def thaw(self) -> tuple[Any, Any]:
        """Return the state as it was given, from its parts, to split it again against another parent."""

        def resolve(kind: int, index: int) -> object:
            if kind == LIST:
                image = self.lists[index]
                if image.groups is None:
                    return ListAppend(self.codec.decode_joined([(1, element) for element in image.fresh]))
                return self.codec.decode_joined(image.groups.pieces())
            return blob_value(kind, self.blob_contents[self.blobs[index].hash])

        execution_state, agent_context = self.codec.decode(self.skeleton, resolve)
        return execution_state, agent_context

    def _walk(self, value: Any, path: Path) -> Any:
        """Return the value with references in it, or the value itself if there are none.

        The given value is never changed: containers that change are copied.
        """
        kind = type(value)
        if kind is dict:
            return self._walk_items(value, value.items(), path, dict)
        if kind is list:
            if len(value) >= MIN_ITEMS:
                return self._walk_list(value, path)
            return self._walk_items(value, enumerate(value), path, list)
        if kind is str or kind is bytes:
            return value if len(value) < BLOB_LENGTH else self._blob(value)
        if kind is ListAppend:
            return self._add_declared(value, path)
        if kind is Ref or kind is TypedObject:
            raise UnsupportedValueError(path_text(path), f"a {kind.__name__} is holdfast's own", "Leave it out")
        if not self.codec.takes_apart(kind):
            return value
        taken = self.codec.take_apart(value, path_text(path))
        if type(taken) is not TypedObject:
            walked = self._walk(taken, path)
            return value if walked is taken else walked
        if type(taken.fields) is dict:
            fields = self._walk_items(taken.fields, taken.fields.items(), path, dict)
            return value if fields is taken.fields else TypedObject(taken.name, fields)
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
        """Return the list, encoded; None if it is too small to be stored separately."""
        known = self._known(path)
        text = path_text(path)
        if known is not None and len(value) >= known.entry.length:
            proof = self._proof(known, value, text)
            if proof is not None:
                groups, chain = proof
                fresh = self.codec.encode_each(value[groups.length :], text, groups.length)
                chain.update(b"".join(fresh))
                return self._make_image(path, len(value), groups.followed_by(fresh), fresh, known.entry, chain)
        elements = self.codec.encode_each(value, text, 0)
        if sum(map(len, elements)) < LONG_BYTES:
            return None
        groups = EMPTY.followed_by(elements)
        return self._make_image(path, len(value), groups, elements, None, chain_of(groups.stretches))

    def _proof(self, known: KnownList, value: list[Any], text: str) -> tuple[Groups, Chain] | None:
        """Return the encodings of the parent's elements and their chain if the value begins with these."""
        entry = known.entry
        no_bytes = not entry.has_bytes
        if known.groups is not None and known.chain is not None:
            is_same = known.groups.is_start_of(value, self.codec, text, no_bytes=no_bytes)
            return (known.groups, known.chain.copy()) if is_same else None
        groups, chain = encode_groups(value, entry.length, self.codec, text, no_bytes=no_bytes)
        return (groups, chain) if groups.size == entry.size and chain.digest() == entry.digest else None

    def _make_image(
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

    def _add_declared(self, appended: ListAppend, path: Path) -> Ref:
        known = self._known(path)
        assert known is not None, "the operation puts whole lists where they are no logs yet"
        entry = known.entry
        fresh = self._given_codec.encode_each(appended.elements, path_text(path), entry.length)
        chain = known.chain.copy() if known.chain else None
        if chain is not None:
            chain.update(b"".join(fresh))
        self.lists.append(self._make_image(path, entry.length + len(fresh), None, fresh, entry, chain))
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
    """Return a path as text: `execution_state.values.messages`."""
    text = str(path[0])
    for key in path[1:]:
        text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text


def _can_be_stored(path: Path) -> bool:
    """Return whether a manifest can hold the path: not if a key has a lone surrogate.

    The list of such a path stays in the skeleton.
    """
    try:
        ormsgpack.packb(list(path))
    except TypeError:
        return False
    return True
