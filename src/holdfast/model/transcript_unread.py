"""Fields of a stored conversation that its transcript lacks.

Each framework's messages have fields of their own: citations, names of files, ids. A reader takes
those that it knows. Here every text of the stored state is looked up in the transcript, so that
fields which no reader has taken are reported.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from holdfast.model.conversation import Transcript
from holdfast.model.loss import Loss, make_loss
from holdfast.model.transcript_facets import OTHER_FIELDS, is_about

SHOWN = 80
_DEEPEST = 64
_SHORTEST_PART = 4  # characters: shorter texts are part of others by chance
_LONGEST_SEARCH = 200_000_000  # characters that are searched for texts that are part of others

# Keys whose texts are the form of a state, not what it says.
_FORM = frozenset(
    (
        *("type", "role", "kind", "part_kind", "block_type", "$type", "step", "object", "source_type", "class"),
        *("status", "outcome", "format", "mime_type", "media_type", "image_mimetype", "document_mimetype"),
        *("detail", "image_detail", "v", "version", "state_type", "state", "history", "qualified_name", ""),
    )
)
# Keys of a whole state that have a position, which the conversation does not keep.
_POSITION = frozenset(("turn", "channel_versions", "versions_seen", "updated_channels", "pending_sends", "next"))


class UnreadValue(NamedTuple):
    """A value that no reader has taken: its path in the state, and whether a model would read it."""

    path: str
    value: Any
    is_content: bool


def list_unread_losses(state: Any, transcript: Transcript, where: str = "state") -> list[Loss]:
    """Return the losses of what a stored state has and its transcript lacks.

    `where` begins their paths.
    """
    return [
        make_loss(
            OTHER_FIELDS if found.is_content else "message_data", f"{where}.{found.path}", _format_shown(found.value)
        )
        for found in find_unread(state, transcript)
    ]


def find_unread(state: Any, transcript: Transcript) -> Iterator[UnreadValue]:
    """Yield the texts and bytes of a state that its transcript lacks; a branch without any is one."""
    known = _KnownTexts(transcript)
    for path, value in _walk(state, (), known)[1]:
        yield UnreadValue(".".join(path), value, not any(map(is_about, path)))


_Found = list[tuple[tuple[str, ...], Any]]


def _walk(value: Any, path: tuple[str, ...], known: _KnownTexts) -> tuple[bool, _Found]:
    """Return whether a value has anything that was read, and what it has that was not."""
    if isinstance(value, str | bytes):
        is_read = not value or known.has(value, is_exact=bool(path) and is_about(path[-1]))
        return is_read and bool(value), [] if is_read else [(path, value)]
    children = _children(value)
    if children is None or len(path) > _DEEPEST:
        return False, []
    has_read = False
    unread: _Found = []
    for name, child in children:
        is_form = name in _FORM and isinstance(child, str)
        if is_form or (not path and (name in _POSITION or is_about(name))):  # these are facts about the session
            continue
        is_read, found = _walk(child, (*path, name), known)
        has_read |= is_read
        unread += found
    if len(unread) > 1 and not has_read and path:
        return False, [(path, value)]
    return has_read, unread


def _children(value: Any) -> Iterator[tuple[str, Any]] | None:
    """Return the parts of a dict, a list or an object, by name; None for a value without any."""
    if isinstance(value, Mapping):
        return ((str(name), item) for name, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ((str(number), item) for number, item in enumerate(value))
    parts = getattr(value, "parts", None)  # of an object whose class is not known here
    if isinstance(parts, Mapping | list | tuple):
        return _children(parts)
    kept = getattr(value, "__dict__", None)
    return _children(kept) if isinstance(kept, Mapping) else None


class _KnownTexts:
    """The texts of a transcript, to look up others in them."""

    def __init__(self, transcript: Transcript) -> None:
        self._texts: set[str] = set()
        self._digests: set[bytes] = set()
        self._whole: str | None = None
        self._left = _LONGEST_SEARCH
        for message in transcript.messages:
            self._add(message)
        for value in (transcript.state, transcript.interrupts, transcript.cursor, transcript.tools):
            self._add(value)

    def has(self, value: str | bytes, *, is_exact: bool) -> bool:
        """Return whether a value is in the transcript: as it is, decoded, or as a part of a text."""
        if isinstance(value, bytes):
            return _digest(value) in self._digests or base64.b64encode(value).decode() in self._texts
        text = value.strip()
        if not text or text in self._texts:
            return True
        parsed = _parse(text)
        if parsed is not None:
            return all(item.strip() in self._texts or self._is_part(item.strip()) for item in _leaves(parsed))
        data = _decode(text)
        if not {_digest(value.encode("utf-8", "surrogatepass")), _digest(data or b"")}.isdisjoint(self._digests):
            return True
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return all(line in self._texts for line in lines) or (
            not is_exact and len(text) >= _SHORTEST_PART and self._is_part(text)
        )

    def _is_part(self, text: str) -> bool:
        if self._whole is None:
            self._whole = "\n".join(sorted(self._texts))
        self._left -= len(self._whole)
        written = json.dumps(text, ensure_ascii=False)[1:-1]
        return self._left > 0 and (text in self._whole or (written != text and written in self._whole))

    def _add(self, value: Any, depth: int = 0) -> None:
        if isinstance(value, str):
            text = value.strip()
            self._texts.add(text)
            self._texts.update(line.strip() for line in text.splitlines())
            for item in _leaves(_parse(text)):
                self._texts.add(item.strip())
        elif isinstance(value, bytes):
            self._digests.add(_digest(value))
        elif depth > _DEEPEST:
            return
        elif is_dataclass(value):
            for column in fields(value):
                self._add(getattr(value, column.name), depth + 1)
        elif isinstance(value, Mapping):
            for name, inner in value.items():
                self._add(name, depth + 1)
                self._add(inner, depth + 1)
        else:
            for _, inner in _children(value) or ():
                self._add(inner, depth + 1)


def _leaves(value: Any) -> Iterator[str]:
    """Yield the texts in parsed JSON, which may be nested deeper than Python's stack."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            left += item.values()
        elif isinstance(item, list):
            left += item


def _parse(text: str) -> Any:
    """Return what a text has as JSON, if it is an object or a list."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _decode(text: str) -> bytes | None:
    """Return the data of a `data:` link, or of a text in base64."""
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _format_shown(value: Any) -> str:
    if not isinstance(value, str):
        value = next(_texts_of(value, 0), type(value).__name__)
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}…"


def _texts_of(value: Any, depth: int) -> Iterator[str]:
    """Yield the texts of a value, the first of which stands for it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield f"{len(value):,} bytes"
    elif depth <= _DEEPEST:
        children = [(name, item) for name, item in _children(value) or () if name not in _FORM]
        for _, item in sorted(children, key=lambda child: is_about(child[0])):
            yield from _texts_of(item, depth + 1)
