"""Checks of checkpoints' contents: the digests of their lists, blobs and files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.backends.port import Segment, Span
from holdfast.errors import CorruptError, HoldfastError
from holdfast.format.state import assemble
from holdfast.format.state.assemble import ElementCheck, Prefix
from holdfast.format.state.manifest import Manifest
from holdfast.format.state.record import StoredRecord
from holdfast.operations import snapshot_read
from holdfast.operations.context import StoreContext
from holdfast.operations.snapshot_reachability import SnapshotReachability

BLOBS_AT_ONCE = 64
READ_AHEAD_BYTES = 8 << 20


class ContentCheck:
    """A checker for the contents of checkpoints; of successive ones it checks only the additions.

    The part of a log that was hashed for the previous checkpoint is not hashed again. The segments
    of many checkpoints are read in one request.
    """

    def __init__(self, ctx: StoreContext) -> None:
        self._ctx = ctx
        self._hashed: dict[int, Prefix] = {}
        self._blobs: set[bytes] = set()
        self._files: set[bytes] = set()
        self._reach = SnapshotReachability(snapshot_read.make_loader(ctx))
        self._ahead: dict[Span, Sequence[Segment]] = {}

    async def read_ahead(self, checkpoints: Iterable[StoredRecord]) -> None:
        """Read the segments that checking these, one after the other, needs, up to `READ_AHEAD_BYTES`.

        Others are read when they are needed.
        """
        self._ahead = {}
        hashed = dict(self._hashed)
        spans: dict[Span, None] = {}
        size = 0
        for stored in checkpoints:
            try:
                manifest = stored.manifest()
            except HoldfastError:  # `check` reports it
                continue
            checks = assemble.checks(manifest, hashed)
            size += sum(_about_bytes(check, manifest) for check in checks)
            if size > READ_AHEAD_BYTES:
                break
            spans |= dict.fromkeys(_spans(checks))
            hashed |= assemble.ends_after(manifest)
        if spans:
            self._ahead = dict(zip(spans, await self._ctx.backend.segments(list(spans)), strict=True))

    async def check(self, stored: StoredRecord) -> None:
        manifest = stored.manifest()
        checks = assemble.checks(manifest, self._hashed)
        missing = [span for span in _spans(checks) if span not in self._ahead]
        read = await self._ctx.backend.segments(missing) if missing else []
        segments = self._ahead | dict(zip(missing, read, strict=True)) if missing else self._ahead
        assemble.check_lists(manifest, checks, segments, self._hashed)
        new = [blob for blob in manifest.blobs if blob.hash not in self._blobs]
        if new:
            found = await self._ctx.backend.blobs([blob.hash for blob in new])
            assemble.check_blobs(new, found)
            self._blobs.update(blob.hash for blob in new)
        reference = snapshot_read.reference_of(stored)
        if reference is not None:
            await self._check_files(reference)

    async def _check_files(self, reference: str) -> None:
        """Check that every object of the snapshot exists and is intact; each object is checked once."""
        await self._reach.learn(reference)
        new = [(hash_, size) for hash_, size in self._reach.blobs([reference]).items() if hash_ not in self._files]
        for start in range(0, len(new), BLOBS_AT_ONCE):
            batch = new[start : start + BLOBS_AT_ONCE]
            contents = await snapshot_read.objects_of(self._ctx, [hash_ for hash_, _ in batch])
            for (hash_, size), content in zip(batch, contents, strict=True):
                if len(content) != size:
                    raise CorruptError(f"the blob {hash_.hex()[:16]}… of its files is not as long as the snapshot says")
                self._files.add(hash_)


def _spans(checks: Iterable[ElementCheck]) -> list[Span]:
    return [check.span for check in checks if check.span.first < check.span.end]


def _about_bytes(check: ElementCheck, manifest: Manifest) -> int:
    """Return the approximate size of the elements of its span."""
    if check.entry is None:
        return manifest.skeleton.size
    return check.entry.size * (check.span.end - check.span.first) // max(check.entry.length, 1)
