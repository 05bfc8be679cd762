"""Assembly of a state from its manifest and its stored parts. A wrong value is never returned."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from holdfast.backends.port import Segment, Span
from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError
from holdfast.format import frame
from holdfast.format.state import log_segment, split
from holdfast.format.state.list_digest import Chain
from holdfast.format.state.manifest import BlobEntry, ListEntry, Manifest


def assemble(
    codec: Codec,
    manifest: Manifest,
    stored: Sequence[Sequence[Segment]],
    blobs: Sequence[bytes | None],
    *,
    verify: bool,
) -> tuple[Any, Any]:
    """Return the two parts of the state.

    `stored` answers `manifest.spans()`, `blobs` its blobs, each in order.
    """
    answers = iter(zip(manifest.spans(), stored, strict=True))
    skeleton = manifest.skeleton
    content = skeleton.inline
    if content is None:
        span, found = next(answers)
        content = b"".join(data for _, data in log_segment.payload(span, found))
    _check("the skeleton", content, skeleton.size, skeleton.digest, verify=verify)
    lists = [list_of(codec, entry, [next(answers)[1] for _ in entry.spans], verify=verify) for entry in manifest.lists]
    return put_together(codec, manifest, content, lists, blobs, verify=verify)


def list_of(
    codec: Codec,
    entry: ListEntry,
    stored: Sequence[Sequence[Segment]],
    *,
    verify: bool = True,
) -> list[Any]:
    """Return a list. `stored` answers the entry's spans."""
    pieces: list[tuple[int, log_segment.Payload]] = []
    length = size = 0
    chain = Chain()
    for span, found in zip(entry.spans, stored, strict=True):
        for count, data in log_segment.payload(span, found):
            pieces.append((count, data))
            length += count
            size += len(data)
            if verify:
                chain.update(data)
    if length != entry.length or size != entry.size or (verify and chain.digest() != entry.digest):
        list_mismatch(entry)
    return codec.decode_joined(pieces, split.path_text(entry.path))


def skeleton_of(manifest: Manifest, stored: Sequence[Segment]) -> bytes:
    """Return the content of the skeleton, checked. `stored` answers its span, if it has one."""
    skeleton = manifest.skeleton
    content = skeleton.inline
    if content is None:
        assert skeleton.span is not None
        content = b"".join(data for _, data in log_segment.payload(skeleton.span, stored))
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
    """Return the two parts of the state, from its checked skeleton and lists, and its blobs."""
    blob_contents = [
        _blob(blob.hash, blob.size, found, verify=verify) for blob, found in zip(manifest.blobs, blobs, strict=True)
    ]

    def resolve(kind: int, index: int) -> object:
        parts: Sequence[Any] = lists if kind == split.LIST else blob_contents
        if not 0 <= index < len(parts):
            raise CorruptError("a state refers to a part that its manifest does not have: run `verify`")
        return parts[index] if kind == split.LIST else split.blob_value(kind, parts[index])

    execution_state, agent_context = codec.decode(skeleton, resolve, split.ROOTS)
    return execution_state, agent_context


class Prefix(NamedTuple):
    """The first elements of a log, hashed."""

    end: int
    size: int
    chain: Chain


class ElementCheck(NamedTuple):
    """The elements to read to check a list or a skeleton.

    Of a list whose first elements were hashed already, only the rest is read.
    """

    entry: ListEntry | None  # None: the skeleton
    span: Span
    before: Prefix | None


def checks(manifest: Manifest, hashed: Mapping[int, Prefix]) -> list[ElementCheck]:
    """Return the reads that checking the lists and the skeleton of a checkpoint needs."""
    found = [ElementCheck(None, manifest.skeleton.span, None)] if manifest.skeleton.span else []
    for entry in manifest.lists:
        if is_prefix_of_log(entry):
            span = entry.spans[0]
            before = hashed.get(span.log)
            if before is not None and before.end <= span.end:
                found.append(ElementCheck(entry, Span(span.log, before.end, span.end), before))
                continue
        found += [ElementCheck(entry, span, None) for span in entry.spans]
    return found


def ends_after(manifest: Manifest) -> dict[int, Prefix]:
    """Return up to where `check_lists` will have hashed each log, without the hashes."""
    spans = [entry.spans[0] for entry in manifest.lists if is_prefix_of_log(entry)]
    return {span.log: Prefix(span.end, 0, Chain()) for span in spans}


def check_lists(
    manifest: Manifest,
    checks: Sequence[ElementCheck],
    stored: Mapping[Span, Sequence[Segment]],
    hashed: dict[int, Prefix],
) -> None:
    """Check the digests of lists and skeleton without decoding anything; add to the hashed prefixes."""
    skeleton = manifest.skeleton
    content = skeleton.inline
    if skeleton.span is not None:
        content = b"".join(data for _, data in log_segment.payload(skeleton.span, stored[skeleton.span]))
    _check("the skeleton", content or b"", skeleton.size, skeleton.digest, verify=True, part=skeleton.span)
    for entry in manifest.lists:
        of_entry = [check for check in checks if check.entry is entry]
        before = of_entry[0].before
        chain = before.chain.copy() if before else Chain()
        size = before.size if before else 0
        for check in of_entry:
            for _, piece in log_segment.payload(check.span, stored[check.span]) if check.span in stored else ():
                chain.update(piece)
                size += len(piece)
        if size != entry.size or chain.digest() != entry.digest:
            list_mismatch(entry, entry.spans[0].log if entry.spans else None)
        if is_prefix_of_log(entry):
            hashed[entry.spans[0].log] = Prefix(entry.spans[0].end, size, chain)


def check_blobs(blobs: Sequence[BlobEntry], stored: Sequence[bytes | None]) -> list[bytes]:
    """Return the contents of the blobs, checked."""
    return [_blob(blob.hash, blob.size, found, verify=True) for blob, found in zip(blobs, stored, strict=True)]


def is_prefix_of_log(entry: ListEntry) -> bool:
    """Return whether the list is the first elements of one log."""
    return len(entry.spans) == 1 and entry.spans[0].first == 0


def _blob(hash_: bytes, size: int, found: bytes | None, *, verify: bool) -> bytes:
    if found is None:
        raise CorruptError(f"the blob {hash_.hex()[:12]} is missing: the store is damaged. Run `verify`")
    content = frame.content(found)
    _check(f"the blob {hash_.hex()[:12]}", content, size, hash_, verify=verify)
    return content


def _check(subject: str, content: bytes, size: int, digest: bytes, *, verify: bool, part: object = None) -> None:
    if len(content) != size or (verify and hashlib.sha256(content).digest() != digest):
        _mismatch(subject, part)


def list_mismatch(entry: ListEntry, part: object = None) -> NoReturn:
    _mismatch(f"the list {split.path_text(entry.path)}", part)


def _mismatch(subject: str, part: object = None) -> NoReturn:
    error = CorruptError(
        f"{subject} is not what was saved: its digest does not match. The store was damaged or changed by another "
        "program; run `verify` to see what else is concerned, and restore an older checkpoint"
    )
    error.part = part
    raise error
