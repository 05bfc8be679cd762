"""Copies of the lists that `langgraph dev` keeps in memory, as rows of the store.

The lists have threads, assistants, crons and runs. The server writes them to a file every ten
seconds, and loses what is newer when it is killed. Here each entry has a row. At the next start,
entries that the server has lost are put back into its lists before it serves anything.

The server has no interface for that: its lists are read ten times a second, and with each
checkpoint of a thread.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.adapters.langgraph import row_keys
from holdfast.adapters.langgraph.thread_list import threads_of
from holdfast.backends.port import STORE, Backend, Commit, RowKey, RowWrite
from holdfast.errors import HoldfastError
from holdfast.format import frame
from holdfast.format.rows import head
from holdfast.operations import timeline as listing
from holdfast.operations.context import StoreContext

logger = logging.getLogger("holdfast.langgraph")
SPACE = row_keys.SERVER
INTERVAL = 0.1
SHARE_OF_TIME = 20  # looking takes at most one part in so many
PAGE = 200
RUNTIME = "langgraph_runtime_inmem.database"
NOT_KEPT = (
    "holdfast keeps threads, assistants, crons and runs of this server through a hard kill. It does not keep: what "
    "was changed in the last tenth of a second before it, unless a checkpoint was saved since; the streams of runs; "
    "runs that were cut off (their threads stand at the last checkpoint: run them with input null); the server's "
    "/store, unless langgraph.json "
    'names "store": {"path": "holdfast.langgraph.dev_store"}'
)

Entry = dict[str, Any]
# Of each list what names an entry, and which of its fields are not kept: the values of a thread are
# in its checkpoint.
LISTS: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "threads": (("thread_id",), frozenset({"values"})),
    "assistants": (("assistant_id",), frozenset()),
    "assistant_versions": (("assistant_id", "version"), frozenset()),
    "crons": (("cron_id",), frozenset()),
    "runs": (("run_id",), frozenset()),
}
_FIRST = datetime.min.replace(tzinfo=UTC)
_UNFINISHED = ("pending", "running")
_CHANGING = ("updated_at", "status", "next_run_date", "version")


def server_lists() -> Mapping[str, list[Entry]] | None:
    """Return the lists of the server that runs in this process.

    None if there is none, or if its version is unknown.
    """
    database = sys.modules.get(RUNTIME)
    lists = getattr(database, "GLOBAL_STORE", None)
    if database is None:
        return None
    if lists is None or not all(isinstance(lists.get(name), list) for name in LISTS):
        logger.warning(
            "holdfast does not know the lists of this version of langgraph-runtime-inmem: after a hard kill, put "
            "threads back with `holdfast langgraph threads --restore URL`"
        )
        return None
    return lists  # type: ignore[no-any-return]  # its type is the server's


class ServerRecords:
    """Copies a server's lists to the store, and back at its start."""

    def __init__(self, ctx: StoreContext, lists: Mapping[str, list[Entry]]) -> None:
        self._ctx = ctx
        self._lists = lists
        self._seen: dict[bytes, tuple[Any, ...]] = {}  # by key, how an entry was when its row was written
        self._unfit: set[bytes] = set()

    async def restore(self) -> None:
        """Restore the entries that the server's lists have lost."""
        counts: dict[str, int] = {}
        kept = await self._read()
        begun = await self._find_begun(
            {str(run["run_id"]) for run in kept["runs"].values() if run["status"] == "pending"}
        )
        for name in LISTS:
            existing = {_key(name, list_): list_ for list_ in self._lists[name]}
            for key, entry in sorted(kept[name].items(), key=lambda item: item[1].get("created_at") or _FIRST):
                known = existing.get(key)
                if known is None:
                    self._lists[name].append({**_format_beginning(name, entry, begun), **dict.fromkeys(LISTS[name][1])})
                    counts[name] = counts.get(name, 0) + 1
                elif _is_outdated(name, known, entry):
                    known.update(_format_beginning(name, entry, begun))
        counts["threads"] = counts.get("threads", 0) + await self._restore_from_checkpoints()
        waiting = {run["thread_id"] for run in self._lists["runs"] if run.get("status") == "pending"}
        for thread in self._lists["threads"]:
            if thread["thread_id"] in waiting:
                thread["status"] = "busy"
        if any(counts.values()):
            words = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
            logger.warning("holdfast put back what this server had lost: %s", words)

    async def _restore_from_checkpoints(self) -> int:
        """Restore the threads that have checkpoints and no row: an older version saved them."""
        existing = {str(item["thread_id"]) for item in self._lists["threads"]}
        restored = 0
        for thread in threads_of(await listing.sessions(self._ctx, agent_id=None, limit=None)):
            if thread.thread_id in existing or thread.graph_id is None or (named := _uuid(thread.thread_id)) is None:
                continue
            metadata = {"graph_id": thread.graph_id}
            if thread.assistant_id is not None:
                metadata["assistant_id"] = thread.assistant_id
            times = dict.fromkeys(("created_at", "updated_at", "state_updated_at"), thread.saved)
            self._lists["threads"].append(
                {"thread_id": named, **times, "metadata": metadata, "status": "idle", "config": {}, "values": None}
            )
            restored += 1
        return restored

    async def _find_begun(self, runs: set[str]) -> set[str]:
        """Return the runs that have saved a checkpoint."""
        if not runs:
            return set()
        found = await self._ctx.backend.scan(row_keys.INDEX)
        return {run for key, row in found if (run := row_keys.unpack_entry(key, row).run) in runs and run is not None}

    async def _read(self) -> dict[str, dict[bytes, Entry]]:
        kept: dict[str, dict[bytes, Entry]] = {name: {} for name in LISTS}
        after: bytes | None = None
        while page := await self._ctx.backend.scan(SPACE, tree=STORE, after=after, limit=PAGE):
            after = page[-1][0].key
            for key, row in page:
                try:
                    entry = self._ctx.codec.decode(frame.content(head.content(key, row)))
                except HoldfastError as error:
                    logger.warning("holdfast can't put back an entry of the server's lists: %s", error)
                    continue
                name = key.key.partition(b"\0")[0].decode()
                if name in kept:
                    kept[name][key.key] = entry
                    self._seen[key.key] = ()
        return {name: dict(sorted(entries.items())) for name, entries in kept.items()}  # a sealed store sorts nothing

    # -- while the server runs ---------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Copies what changes, until it is cancelled."""
        while True:
            began = time.monotonic()
            try:
                await self.copy_changes()
            except HoldfastError as error:
                logger.warning("holdfast could not copy the server's lists: %s. It tries again", error)
            await asyncio.sleep(max(INTERVAL, SHARE_OF_TIME * (time.monotonic() - began)))

    async def copy_changes(self) -> None:
        """Write the rows of changed entries, and remove those of entries that are gone."""
        known = list(self._seen)  # before the lists are read: entries that another loop adds meanwhile are in neither
        entries = {
            _key(name, entry): (name, entry)
            for name in LISTS
            for entry in list(self._lists[name])
            if _is_kept(name, entry)
        }
        await self._copy(entries, self._ctx.backend)
        gone = [key for key in known if key not in entries]
        if gone:
            removals = [RowWrite(RowKey(SPACE, key), None) for key in gone]
            await self._ctx.backend.commit(Commit(tree=STORE, rows=removals))
        for key in gone:
            self._seen.pop(key, None)

    async def copy_thread(self, thread_id: str, backend: Backend) -> None:
        """Write the rows of a thread and of its runs, if they have changed.

        The caller may belong to another event loop: it has its own way to the store.
        """
        wanted = _uuid(thread_id)
        entries = {
            _key(name, entry): (name, entry)
            for name in ("threads", "runs")
            for entry in list(self._lists[name])
            if entry["thread_id"] == wanted
        }
        await self._copy(entries, backend)

    async def _copy(self, entries: Mapping[bytes, tuple[str, Entry]], backend: Backend) -> None:
        marks = {key: _fingerprint(entry) for key, (_, entry) in entries.items()}
        changed = [key for key, mark in marks.items() if self._seen.get(key) != mark]
        for start in range(0, len(changed), PAGE):
            part = changed[start : start + PAGE]
            writes = [write for key in part if (write := self._write(key, *entries[key])) is not None]
            if writes:
                await backend.commit(Commit(tree=STORE, rows=writes))
            self._seen.update({key: marks[key] for key in part})

    def _write(self, key: bytes, name: str, entry: Entry) -> RowWrite | None:
        kept = {item: entry[item] for item in entry if item not in LISTS[name][1]}
        if name == "runs":
            kept["kwargs"] = _without_internals(entry.get("kwargs") or {})
        try:
            content = self._ctx.codec.encode(kept, name)
        except HoldfastError as error:
            if key not in self._unfit:
                self._unfit.add(key)
                logger.warning("holdfast can't keep an entry of the server's %s: %s", name, error)
            return None
        row = RowKey(SPACE, key)
        return RowWrite(row, head.protect(row, frame.compress(content)))


class Recording:
    """The one copy of the lists that a process makes, however many of its event loops have a saver."""

    records: ServerRecords | None = None
    task: asyncio.Task[None] | None = None

    async def begin(self, ctx: StoreContext) -> Callable[[], Any] | None:
        """Restore, begin to watch, and return what ends that.

        None if another loop does it, or if this is no dev server.
        """
        lists = server_lists()
        if lists is None or self.records is not None:
            return None
        self.records = ServerRecords(ctx, lists)
        await self.records.restore()
        await self.records.copy_changes()
        logger.info(NOT_KEPT)
        self.task = asyncio.get_running_loop().create_task(self.records.watch())
        return self.end

    async def end(self) -> None:
        task, records = self.task, self.records
        self.task = self.records = None
        if task is not None and records is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await records.copy_changes()


def _key(name: str, entry: Entry) -> bytes:
    return "\0".join([name, *(str(entry[field]) for field in LISTS[name][0])]).encode()


def _fingerprint(entry: Entry) -> tuple[Any, ...]:
    """Return a value that differs once the entry was changed.

    The server replaces an entry, or sets one of these fields, with each change.
    """
    return (id(entry), *(entry.get(field) for field in _CHANGING), repr(entry.get("metadata")))


def _is_kept(name: str, entry: Entry) -> bool:
    """Return whether an entry is stored: all but the assistants that the server makes at every start."""
    return not (name.startswith("assistant") and (entry.get("metadata") or {}).get("created_by") == "system")


def _without_internals(kwargs: Entry) -> Entry:
    """Return the arguments of a run without the functions that the server adds while it runs."""
    config = kwargs.get("config") or {}
    configurable = {
        name: value for name, value in (config.get("configurable") or {}).items() if not name.startswith("__")
    }
    return {**kwargs, "config": {**config, "configurable": configurable}}


def _format_beginning(name: str, entry: Entry, begun: set[str]) -> Entry:
    """Return an entry as the server's next start finds it: nothing runs yet.

    A run that was cut off is not repeated: its thread knows what its nodes did.
    """
    if name == "threads":
        status = entry.get("status")
        return {**entry, "status": "idle" if status == "busy" else status}
    if name == "runs" and (
        entry["status"] == "running" or (entry["status"] == "pending" and str(entry["run_id"]) in begun)
    ):
        logger.warning("holdfast: run %s was cut off; its thread stands at its last checkpoint", entry["run_id"])
        return {**entry, "status": "interrupted", "updated_at": datetime.now(UTC)}
    return entry


def _is_outdated(name: str, known: Entry, kept: Entry) -> bool:
    """Return whether an entry of the server's own list is older than its row.

    The list may be ten seconds old. Of a run that was under way then, the row always knows more:
    the server would carry it out again.
    """
    if name == "runs" and known.get("status") in _UNFINISHED:
        return True
    times = known.get("updated_at"), kept.get("updated_at")
    return times[0] is not None and times[1] is not None and times[0] < times[1]


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
