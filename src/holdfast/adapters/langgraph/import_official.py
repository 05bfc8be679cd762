"""The import of threads from LangGraph's own savers: all namespaces, with ids, metadata and writes.

Each checkpoint is saved as the saver itself would have put it, then read back and compared.
Existing checkpoints are left alone, so an interrupted import is simply repeated, and a thread that
has continued here keeps its checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from langgraph.checkpoint.serde.types import TASKS

from holdfast.adapters.langgraph import pending_writes
from holdfast.adapters.langgraph.official_source import FoundCheckpoint, OfficialSource, postgres_source, sqlite_source
from holdfast.adapters.langgraph.official_value import UnreadableError
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.thread_store import Threads, copy_as_dicts
from holdfast.client.client import Client
from holdfast.client.sync import SyncClient
from holdfast.errors import HoldfastError, StoreError
from holdfast.format.state.record import microseconds
from holdfast.format.state.split import Split
from holdfast.model.reports import ImportedReport, ImportRemark
from holdfast.operations import lookup

Progress = Callable[[int, int], None]
_SENDS_IN_CHANNEL = 4  # from this version of checkpoints on, sends have a channel of their own


def import_sqlite(
    client: Client | SyncClient,
    path: str | os.PathLike[str],
    *,
    allow: Iterable[type[Any]] = (),
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportedReport:
    """Import all threads of a database of LangGraph's SqliteSaver. The database is only read.

    `allow` are the program's own classes that its state holds; others are never imported or called.
    `progress` is called with the number of checkpoints that are done and their total. Repeating an
    import is a no-op.
    """
    classes = tuple(allow)
    with sqlite_source(Path(path), classes) as source:
        return _carried_out(client, source, str(path), classes, dry_run=dry_run, progress=progress)


def import_postgres(
    client: Client | SyncClient,
    dsn: str,
    *,
    allow: Iterable[type[Any]] = (),
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportedReport:
    """Import all threads of a database of LangGraph's PostgresSaver, as `import_sqlite` does."""
    classes = tuple(allow)
    with postgres_source(dsn, classes) as source:
        return _carried_out(client, source, "PostgreSQL", classes, dry_run=dry_run, progress=progress)


def _carried_out(
    client: Client | SyncClient,
    source: OfficialSource,
    name: str,
    allow: tuple[type[Any], ...],
    *,
    dry_run: bool,
    progress: Progress | None,
) -> ImportedReport:
    saver = HoldfastSaver(client, allow=allow)
    return saver._run(_Import(saver._threads, source, dry_run=dry_run).carry_out(name, progress))


class _Import:
    def __init__(self, threads: Threads, source: OfficialSource, *, dry_run: bool) -> None:
        self._threads = threads
        self._source = source
        self._dry_run = dry_run
        self._imported = self._already = 0
        self._sessions: dict[str, None] = {}
        self._skipped: list[ImportRemark] = []

    async def carry_out(self, name: str, progress: Progress | None) -> ImportedReport:
        places, odd = self._source.places()
        self._skipped += [ImportRemark(where=row.where, checkpoint_id=None, message=row.reason) for row in odd]
        for number, found in enumerate(places, 1):
            try:
                await self._take(found)
            except StoreError:
                raise  # the store is full, gone or locked: the next one would meet the same
            except (UnreadableError, HoldfastError) as error:
                self._skip(found, str(error))
            except Exception as error:  # a row may hold anything: it is reported, and the next one is taken
                self._skip(found, f"it can't be taken over: {error!r:.200}")
            if progress is not None:
                progress(number, len(places))
        return ImportedReport(
            source=name,
            dry_run=self._dry_run,
            imported=self._imported,
            already=self._already,
            sessions=tuple(self._sessions),
            skipped=tuple(self._skipped),
        )

    async def _take(self, found: FoundCheckpoint) -> None:
        threads = self._threads
        entry = await threads.find(found.place, found.id)
        if entry is None:
            checkpoint, metadata = self._source.checkpoint(found)
            tasks = self._source.tasks(found)
            self._check(found, checkpoint)
            self._add_sends(found, checkpoint)
            if self._dry_run:
                Split(threads.ctx.codec, lambda _: None).take(copy_as_dicts(checkpoint), {})
                threads.ctx.codec.encode(metadata, "metadata")
            else:
                kept = await threads.put(
                    found.place, checkpoint, metadata, found.parent, created_at_us=_moment(checkpoint.get("ts"))
                )
                await pending_writes.add(threads.ctx, found.place, found.id, kept, tasks)
                await self._compare(found, checkpoint, metadata)
            self._imported += 1
            self._sessions[found.place.session] = None
        else:
            self._already += 1
            if not self._dry_run and await threads.load_live([entry]):  # writes that an interrupted import has left out
                await pending_writes.add(
                    threads.ctx, found.place, found.id, entry.checkpoint, self._source.tasks(found)
                )

    def _check(self, found: FoundCheckpoint, checkpoint: dict[str, Any]) -> None:
        if checkpoint.get("id") != found.id:
            raise UnreadableError(f"its content is that of another checkpoint, {checkpoint.get('id')!r:.60}")
        for part in ("channel_values", "channel_versions", "versions_seen"):
            if not isinstance(checkpoint.get(part) or {}, dict):
                raise UnreadableError(f"its {part} is no map")

    def _add_sends(self, found: FoundCheckpoint, checkpoint: dict[str, Any]) -> None:
        """Add the sends of the parent's tasks: older checkpoints leave them among the parent's writes."""
        version = checkpoint.get("v")
        if found.parent is None or not isinstance(version, int) or version >= _SENDS_IN_CHANNEL:
            return
        tasks = self._source.tasks(found._replace(id=found.parent))
        sent = sorted(
            (path, task, index, value)
            for task, writes in tasks.items()
            for index, (channel, path, value) in writes.items()
            if channel == TASKS
        )
        if sent:
            versions = checkpoint["channel_versions"]
            checkpoint["channel_values"][TASKS] = [value for *_, value in sent]
            versions[TASKS] = max(versions.values(), default=f"{1:032}.{0:016}")

    async def _compare(self, found: FoundCheckpoint, checkpoint: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Read back the saved checkpoint: from the store, not from this process's cache."""
        entry = await self._threads.find(found.place, found.id)
        live = await self._threads.load_live([entry]) if entry is not None else []
        if not live:
            raise UnreadableError("it was saved, and is not there")
        [(_, stored, about)] = live
        encode, given = self._threads.ctx.codec.encode, copy_as_dicts(checkpoint)
        state, _ = await lookup.load_state(self._threads.ctx, stored.manifest(), verify=True)
        is_same = state == given or encode(state) == encode(given)  # a NaN equals nothing
        if not is_same or encode(about["metadata"]) != encode(metadata) or about["parent"] != found.parent:
            raise UnreadableError("what was saved is not what was read: this is a fault of holdfast's")

    def _skip(self, found: FoundCheckpoint, reason: str) -> None:
        where = f"thread {found.place.thread!r:.60}"
        if found.place.ns:
            where += f", namespace {found.place.ns!r:.60}"
        self._skipped.append(ImportRemark(where=where, checkpoint_id=found.id, message=reason))


def _moment(text: Any) -> int | None:
    """Return the creation time of the checkpoint; None, which means now, if it has none."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return microseconds(moment) if moment.tzinfo is not None else None
