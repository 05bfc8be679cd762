"""Assembling: a state from its manifest and what the store had for it. A wrong value is never returned."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.backends.port import Run, Span
from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError
from holdfast.objects import frame, runs, split
from holdfast.objects.manifest import Manifest


def assemble(
    codec: Codec, manifest: Manifest, stored: Sequence[Sequence[Run]], blobs: Sequence[bytes | None], *, verify: bool
) -> tuple[Any, Any]:
    """The two parts of the state. `stored` answers `manifest.spans()`, `blobs` its blobs, each in order."""
    inflate = frame.inflater()
    answers = iter(zip(manifest.spans(), stored, strict=True))
    skeleton = manifest.skeleton
    content = skeleton.inline
    if content is None:
        span, found = next(answers)
        content = runs.payload(span, found, inflate)
    _check("the skeleton", content, skeleton.size, skeleton.digest, verify=verify)
    lists: list[Any] = []
    for entry in manifest.lists:
        parts = [runs.payload(span, found, inflate) for _, (span, found) in zip(entry.spans, answers, strict=False)]
        payload = parts[0] if len(parts) == 1 else b"".join(parts)
        _check(f"the list {split.path_text(entry.path)}", payload, entry.size, entry.digest, verify=verify)
        lists.append(codec.decode_joined(entry.length, payload))
    contents = [
        _blob(blob.hash, blob.size, found, verify=verify) for blob, found in zip(manifest.blobs, blobs, strict=True)
    ]

    def resolve(kind: int, index: int) -> object:
        parts: Sequence[Any] = lists if kind == split.LIST else contents
        if not 0 <= index < len(parts):
            raise CorruptError("a state refers to a part that its manifest does not have: run `verify`")
        return parts[index] if kind == split.LIST else split.blob_value(kind, parts[index])

    execution_state, agent_context = codec.decode(content, resolve)
    return execution_state, agent_context


def check_content(manifest: Manifest, stored: Sequence[Sequence[Run]], blobs: Sequence[bytes | None]) -> None:
    """Checks every digest without decoding anything."""
    by_span: Mapping[Span, Sequence[Run]] = dict(zip(manifest.spans(), stored, strict=True))
    skeleton = manifest.skeleton
    content = skeleton.inline
    if skeleton.span is not None:
        content = runs.payload(skeleton.span, by_span[skeleton.span])
    _check("the skeleton", content or b"", skeleton.size, skeleton.digest, verify=True)
    for entry in manifest.lists:
        payload = b"".join(runs.payload(span, by_span[span]) for span in entry.spans)
        _check(f"the list {split.path_text(entry.path)}", payload, entry.size, entry.digest, verify=True)
    for blob, found in zip(manifest.blobs, blobs, strict=True):
        _blob(blob.hash, blob.size, found, verify=True)


def _blob(hash_: bytes, size: int, found: bytes | None, *, verify: bool) -> bytes:
    if found is None:
        raise CorruptError(f"the blob {hash_.hex()[:12]} is missing: the store is damaged. Run `verify`")
    content = frame.content(found)
    _check(f"the blob {hash_.hex()[:12]}", content, size, hash_, verify=verify)
    return content


def _check(what: str, content: bytes, size: int, digest: bytes, *, verify: bool) -> None:
    if len(content) != size or (verify and hashlib.sha256(content).digest() != digest):
        raise CorruptError(
            f"{what} is not what was saved: its digest does not match. The store was damaged or changed by another "
            "program; run `verify` to see what else is concerned, and restore an older checkpoint"
        )
