"""The files of a checkpoint's snapshot: listed, shown as text, and sent as attachments."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

from starlette.responses import StreamingResponse

from holdfast.errors import CheckpointNotFoundError
from holdfast.json_form.difference import encode_path, snapshot_fields
from holdfast.model.snapshot import FileEntry, Snapshot
from holdfast.operations import snapshot_read
from holdfast.web.answer import RefusedRequest
from holdfast.web.endpoint import AFTER, LIMIT, Endpoint
from holdfast.web.request import Ask, Parameter
from holdfast.web.routes.checkpoints import files_from
from holdfast.web.site import Site
from holdfast.workspace.limits import is_secret

TEXT = 256 * 1024  # bytes of a file that are shown at once
SNIFFED = 8000  # a NUL among so many first bytes makes a file binary


def encode_name(path: str) -> bytes:
    """Return a path of the API as bytes; lone surrogates are bytes that are no UTF-8."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError as error:
        raise RefusedRequest(400, "bad_request", "the path has surrogates that stand for no byte") from error


def open_snapshot(site: Site, ref: str) -> tuple[str, str, Snapshot] | None:
    """Return a checkpoint, the source of its snapshot, and the snapshot; None without one."""
    id_ = site.client.resolve(ref)
    source = files_from(site, id_)
    found = None if source is None else site.client.snapshot_of(source)
    return None if source is None or found is None else (id_, source, found)


def find_file(site: Site, ref: str, path: str) -> tuple[str, FileEntry]:
    opened = open_snapshot(site, ref)
    entry = None
    if opened is not None and opened[2].tree is not None:
        entry = site.run(snapshot_read.find(site.client._ctx, opened[2], encode_name(path)))
    if opened is None or entry is None or entry.kind != "file":
        raise CheckpointNotFoundError(f"there is no file {path!r:.200} in the snapshot of {ref!r:.60}")
    return opened[0], entry


def entry_fields(entry: FileEntry) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "path": encode_path(entry.path),
        "name": encode_path(entry.path.rpartition(b"/")[2]),
        "kind": entry.kind,
        "mode": f"{entry.mode:04o}",
        "size": entry.size,
    }
    if entry.kind == "file":
        fields["content"] = entry.content.hex()
    elif entry.kind == "symlink":
        fields["target"] = encode_path(entry.content)
    return fields


def list_files(site: Site, ask: Ask) -> dict[str, Any]:
    under, limit = ask.query["under"], ask.query["limit"]
    opened = open_snapshot(site, ask.path["ref"])
    if opened is None:
        id_ = site.client.resolve(ask.path["ref"])
        empty = {"checkpoint_id": id_, "files_from": None, "snapshot": None, "under": under, "entries": []}
        return {**empty, "next": None}
    id_, source, snapshot = opened
    after = encode_name(ask.query["after"]) if ask.query["after"] is not None else None
    prefix = encode_name(under).strip(b"/")
    entries: list[FileEntry] = []
    if snapshot.tree is not None:
        entries = site.run(_entries(site, snapshot, prefix, after, limit + 1, is_deep=ask.query["recursive"]))
    following = encode_path(entries[limit - 1].path) if len(entries) > limit else None
    return {
        "checkpoint_id": id_,
        "files_from": source,
        "snapshot": snapshot_fields(snapshot),
        "under": under,
        "entries": [entry_fields(entry) for entry in entries[:limit]],
        "next": following,
    }


async def _entries(
    site: Site, snapshot: Snapshot, prefix: bytes, after: bytes | None, count: int, *, is_deep: bool
) -> list[FileEntry]:
    found: list[FileEntry] = []
    start = prefix + b"/" if prefix else b""
    listed: AsyncIterator[FileEntry] = snapshot_read.entries(site.client._ctx, snapshot)
    async for entry in listed:
        name = entry.path.removeprefix(start)
        if not entry.path.startswith(start) or not name or (not is_deep and b"/" in name):
            continue
        if after is None or entry.path > after:
            found.append(entry)
            if len(found) == count:
                break
    return found


def send_file(site: Site, ask: Ask) -> StreamingResponse:
    """Send the bytes of a file. Browsers store them; nothing they hold is ever shown as a page."""
    _, entry = find_file(site, ask.path["ref"], ask.path["path"])
    name = quote(entry.path.rpartition(b"/")[2])
    return StreamingResponse(
        _pieces(site, entry),
        media_type="application/octet-stream",
        headers={
            "content-disposition": f"attachment; filename*=UTF-8''{name}",
            "content-length": str(entry.size),
        },
    )


def _pieces(site: Site, entry: FileEntry) -> Iterator[bytes]:
    pieces = snapshot_read.content(site.client._ctx, entry)
    while True:
        try:
            yield site.run(pieces.__anext__())
        except StopAsyncIteration:
            return


def show_text(site: Site, ask: Ask) -> dict[str, Any]:
    path, offset, most = ask.query["path"] or "", ask.query["offset"], ask.query["text"]
    id_, entry = find_file(site, ask.path["ref"], path)
    fields: dict[str, Any] = {"checkpoint_id": id_, "path": path, "size": entry.size, "offset": offset}
    secret = is_secret(entry.path.rpartition(b"/")[2])
    data = b"" if secret else site.run(_part(site, entry, offset + most))
    is_binary = b"\0" in data[:SNIFFED]
    shown = data[offset : offset + most]
    return {
        **fields,
        "is_binary": is_binary,
        "is_secret": secret,
        "text": None if is_binary or secret else shown.decode("utf-8", "replace"),
        "cut": offset > 0 or entry.size > offset + len(shown),
    }


async def _part(site: Site, entry: FileEntry, end: int) -> bytes:
    found = bytearray()
    async for piece in snapshot_read.content(site.client._ctx, entry):
        found += piece
        if len(found) >= end:
            break
    return bytes(found[:end])


def whole_text(site: Site, entry: FileEntry, most: int) -> bytes:
    data: bytes = site.run(_part(site, entry, most))
    return data


ROUTES = (
    Endpoint(
        "/checkpoints/{ref}/files",
        list_files,
        "List the files of a checkpoint's snapshot, or of the nearest one before it.",
        (
            Parameter("under", "text", "The directory.", default=""),
            Parameter("recursive", "flag", "Everything below it.", default=False),
            AFTER,
            LIMIT._replace(default=1000),
        ),
    ),
    Endpoint("/checkpoints/{ref}/files/{path}", send_file, "The bytes of a file, as an attachment."),
    Endpoint(
        "/checkpoints/{ref}/text",
        show_text,
        "A file as text.",
        (
            Parameter("path", "text", "The path of the file."),
            Parameter("offset", "number", "First byte to show.", default=0, most=2**30),
            Parameter("text", "number", "Bytes to show.", default=TEXT, least=1, most=TEXT),
        ),
    ),
)
