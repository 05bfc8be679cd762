"""Assembling: a state from its manifest and what the store had for it. A wrong value is never returned."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from holdfast.backends.port import Run, Span
from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError
from holdfast.objects import frame, runs, split
from holdfast.objects.chain import Chain
from holdfast.objects.inflating import Inflating
from holdfast.objects.manifest import BlobEntry, ListEntry, Manifest


def assemble(
    codec: Codec,
    manifest: Manifest,
    stored: Sequence[Sequence[Run]],
    blobs: Sequence[bytes | None],
    inflating: Inflating | None = None,
    *,
    verify: bool,
) -> tuple[Any, Any]:
    """The two parts of the state. `stored` answers `manifest.spans()`, `blobs` its blobs, each in order."""
    inflating = inflating or Inflating()
    answers = iter(zip(manifest.spans(), stored, strict=True))
    skeleton = manifest.skeleton
    content = skeleton.inline
    if content is None:
        span, found = next(answers)
        content = b"".join(data for _, data in runs.payload(span, found, inflating))
    _check("the skeleton", content, skeleton.size, skeleton.digest, verify=verify)
    lists = [
        list_of(codec, entry, [next(answers)[1] for _ in entry.spans], inflating, verify=verify)
        for entry in manifest.lists
    ]
    return put_together(codec, manifest, content, lists, blobs, verify=verify)


def list_of(
    codec: Codec,
    entry: ListEntry,
    stored: Sequence[Sequence[Run]],
    inflating: Inflating | None = None,
    *,
    verify: bool = True,
) -> list[Any]:
    """A list. `stored` answers the entry's spans."""
    inflating = inflating or Inflating()
    pieces: list[tuple[int, runs.Payload]] = []
    length = size = 0
    chain = Chain()
    for span, found in zip(entry.spans, stored, strict=True):
        for count, data in runs.pieces(span, found, inflating):
            pieces.append((count, data))
            length += count
            size += len(data)
            if verify:
                chain.update(data)
    if length != entry.length or size != entry.size or (verify and chain.digest() != entry.digest):
        list_mismatch(entry)
    return codec.decode_joined(pieces)


def skeleton_of(manifest: Manifest, stored: Sequence[Run]) -> bytes:
    """The content of the skeleton, checked. `stored` answers its span, if it has one."""
    skeleton = manifest.skeleton
    content = skeleton.inline
    if content is None:
        assert skeleton.span is not None
        content = b"".join(data for _, data in runs.payload(skeleton.span, stored))
    _check("the skeleton", content, skeleton.size, skeleton.digest, verify=True)
    return content


def put_together(
    codec: Codec,
    manifest: Manifest,
    skeleton: bytes,
    lists: Sequence[Any],
    blobs: Sequence[bytes | None],
    *,
    verify: bool,
) -> tuple[Any, Any]:
    """The two parts of the state, from its skeleton and lists, which were checked, and its blobs."""
    blob_contents = [
        _blob(blob.hash, blob.size, found, verify=verify) for blob, found in zip(manifest.blobs, blobs, strict=True)
    ]

    def resolve(kind: int, index: int) -> object:
        parts: Sequence[Any] = lists if kind == split.LIST else blob_contents
        if not 0 <= index < len(parts):
            raise CorruptError("a state refers to a part that its manifest does not have: run `verify`")
        return parts[index] if kind == split.LIST else split.blob_value(kind, parts[index])

    execution_state, agent_context = codec.decode(skeleton, resolve)
    return execution_state, agent_context


class Prefix(NamedTuple):
    """The first elements of a log, hashed."""

    end: int
    size: int
    chain: Chain


class Check(NamedTuple):
    """What has to be read to check a list or a skeleton: of a list that begins with what was hashed already, the rest."""

    entry: ListEntry | None  # None: the skeleton
    span: Span
    before: Prefix | None


def checks(manifest: Manifest, hashed: Mapping[int, Prefix]) -> list[Check]:
    """What has to be read to check the lists and the skeleton of a checkpoint."""
    found = [Check(None, manifest.skeleton.span, None)] if manifest.skeleton.span else []
    for entry in manifest.lists:
        if _is_prefix_of_log(entry):
            span = entry.spans[0]
            before = hashed.get(span.log)
            if before is not None and before.end <= span.end:
                found.append(Check(entry, Span(span.log, before.end, span.end), before))
                continue
        found += [Check(entry, span, None) for span in entry.spans]
    return found


def check_lists(
    manifest: Manifest, checks: Sequence[Check], stored: Mapping[Span, Sequence[Run]], hashed: dict[int, Prefix]
) -> None:
    """Checks the digests of lists and skeleton without decoding anything; adds to what was hashed."""
    skeleton = manifest.skeleton
    content = skeleton.inline
    if skeleton.span is not None:
        content = b"".join(data for _, data in runs.payload(skeleton.span, stored[skeleton.span]))
    _check("the skeleton", content or b"", skeleton.size, skeleton.digest, verify=True)
    for entry in manifest.lists:
        of_entry = [check for check in checks if check.entry is entry]
        before = of_entry[0].before
        chain = before.chain.copy() if before else Chain()
        size = before.size if before else 0
        for check in of_entry:
            for _, piece in runs.payload(check.span, stored[check.span]) if check.span in stored else ():
                chain.update(piece)
                size += len(piece)
        if size != entry.size or chain.digest() != entry.digest:
            list_mismatch(entry)
        if _is_prefix_of_log(entry):
            hashed[entry.spans[0].log] = Prefix(entry.spans[0].end, size, chain)


def check_blobs(blobs: Sequence[BlobEntry], stored: Sequence[bytes | None]) -> list[bytes]:
    """The contents of the blobs, checked."""
    return [_blob(blob.hash, blob.size, found, verify=True) for blob, found in zip(blobs, stored, strict=True)]


def _is_prefix_of_log(entry: ListEntry) -> bool:
    return len(entry.spans) == 1 and entry.spans[0].first == 0


def _blob(hash_: bytes, size: int, found: bytes | None, *, verify: bool) -> bytes:
    if found is None:
        raise CorruptError(f"the blob {hash_.hex()[:12]} is missing: the store is damaged. Run `verify`")
    content = frame.content(found)
    _check(f"the blob {hash_.hex()[:12]}", content, size, hash_, verify=verify)
    return content


def _check(what: str, content: bytes, size: int, digest: bytes, *, verify: bool) -> None:
    if len(content) != size or (verify and hashlib.sha256(content).digest() != digest):
        _mismatch(what)


def list_mismatch(entry: ListEntry) -> NoReturn:
    _mismatch(f"the list {split.path_text(entry.path)}")


def _mismatch(what: str) -> NoReturn:
    raise CorruptError(
        f"{what} is not what was saved: its digest does not match. The store was damaged or changed by another "
        "program; run `verify` to see what else is concerned, and restore an older checkpoint"
    )
