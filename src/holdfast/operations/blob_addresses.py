"""Addresses of blobs: a listing has addresses, a manifest has hashes. They differ on a sealed store."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from holdfast.backends.port import Backend, BlobInfo


class ListedHashes:
    """The hashes of listed blobs, to ask whether one is among them."""

    def __init__(self, backend: Backend, blobs: Iterable[BlobInfo]) -> None:
        self._address = backend.address
        self._listed = {blob.hash for blob in blobs}

    def __contains__(self, hash_: object) -> bool:
        return isinstance(hash_, bytes) and self._address(hash_) in self._listed


def listed_hashes(backend: Backend, blobs: Sequence[BlobInfo]) -> Container[bytes]:
    """Return a container of the hashes of these blobs."""
    return ListedHashes(backend, blobs) if backend.capabilities.sealed else {blob.hash for blob in blobs}


def resolve_hashes(backend: Backend, blobs: Sequence[BlobInfo], known: Iterable[bytes]) -> list[BlobInfo]:
    """Return listed blobs under their hashes, as far as these are known, else under their addresses."""
    if not backend.capabilities.sealed:
        return list(blobs)
    hashes = {backend.address(hash_): hash_ for hash_ in known}
    return [blob._replace(hash=hashes.get(blob.hash, blob.hash)) for blob in blobs]
