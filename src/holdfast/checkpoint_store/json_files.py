"""A `CheckpointStore` in a directory of plain JSON: the latest state of each session.

    {dir}/{session}/checkpoint.json    {"holdfast": 1, "metadata": {...}, "sha256": "...", "state": ...}
    {dir}/{session}/metadata.json      the same metadata by itself
    {dir}/.lock                        flock: one writer at a time

Each file is written under another name, synced, and renamed: readers take no lock and see the old
file or the new one, whole. The data comes first, and carries its own metadata: after a crash
between the two, `metadata.json` names another checkpoint, and `checkpoint.json` counts; the same
holds for a reader between the two. `sha256` is that of `[metadata, state]` as compact JSON in
UTF-8. Of two concurrent saves to a session, the one that started last stays; between processes, the
one that was written last.

A session's directory is named by its id if that is plain, else by its percent-encoding
(`backends/files/file_names.py`). A directory of another program that holds nothing but a state in
`checkpoint.json` is read, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from holdfast.backends import fork_safety
from holdfast.backends.files.disk import FOLDER_MODE, Disk, store_error
from holdfast.backends.files.file_names import key_of, name_of
from holdfast.backends.files.lock import StoreLock
from holdfast.backends.local_path import refuse_links
from holdfast.checkpoint_store.protocol import CheckpointMetadata, agent_of, step_of
from holdfast.coordination.id_generator import IdSource
from holdfast.errors import CorruptError, NewerVersionError, UnsupportedValueError, UsageError
from holdfast.format.rows.head import session_key, session_name
from holdfast.format.state.split import path_text
from holdfast.model import ids
from holdfast.operations.validate import name as checked_name

DIRECTORY = ".checkpoints"
DATA, METADATA, LOCK = "checkpoint.json", "metadata.json", ".lock"
FORMAT = 1
TIMEOUT = 30.0
MAX_DEPTH = 200
MAX_INT_BITS = 14_000  # Python reads no decimal number that is much longer
_HEAD_BYTES = 256  # as many hold the checkpoint's id, however long its session's is
_REMEDY = "`Client.files(...).as_store()` keeps it as it is"

T = TypeVar("T")
_OURS = re.compile(r'\s*\{\s*"holdfast"\s*:')
_ids = IdSource()
_tickets = itertools.count(1)


def _refuse_keys(keys: object) -> None:
    if keys is not None:
        raise UsageError(
            "FileCheckpoints writes JSON that anybody can read, and encrypts nothing: "
            "Client.files(directory, keys=...).as_store() has the same methods over a sealed store"
        )


class FileCheckpoints:
    """The latest state of each session, as plain JSON in a directory.

    `SyncFileCheckpoints` is the same without `await`. It keeps exactly what JSON can: dicts with
    str keys, lists, str, int, finite floats, bool, None; anything else is refused. For other
    types, history, forks and rollback use `Client.files(...)`, whose `as_store()` has these
    methods.
    """

    def __init__(
        self,
        dir: str | os.PathLike[str] = DIRECTORY,  # noqa: A002 - the name users know
        *,
        keys: None = None,
    ) -> None:
        _refuse_keys(keys)
        self._files = _Files(dir)

    async def save(self, session_id: str, state: Any) -> None:
        """Durable when it returns. The state may be changed as soon as the call has begun."""
        await _run_in_thread(self._files.begin_save(session_id, state))

    async def load(self, session_id: str) -> Any | None:
        """Return the last saved state, None if there is none."""
        return await _run_in_thread(lambda: self._files.load(session_id))

    async def load_metadata(self, session_id: str) -> CheckpointMetadata | None:
        return await _run_in_thread(lambda: self._files.load_metadata(session_id))

    async def delete(self, session_id: str) -> None:
        """Remove the session, if it exists."""
        await _run_in_thread(self._files.begin_delete(session_id))

    async def list(self) -> list[str]:
        """Return the ids of the sessions that have a checkpoint, sorted."""
        return await _run_in_thread(self._files.list)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._files.root}>"


class SyncFileCheckpoints:
    """`FileCheckpoints` without `await`."""

    def __init__(
        self,
        dir: str | os.PathLike[str] = DIRECTORY,  # noqa: A002 - the name users know
        *,
        keys: None = None,
    ) -> None:
        _refuse_keys(keys)
        self._files = _Files(dir)

    def save(self, session_id: str, state: Any) -> None:
        self._files.begin_save(session_id, state)()

    def load(self, session_id: str) -> Any | None:
        return self._files.load(session_id)

    def load_metadata(self, session_id: str) -> CheckpointMetadata | None:
        return self._files.load_metadata(session_id)

    def delete(self, session_id: str) -> None:
        self._files.begin_delete(session_id)()

    def list(self) -> list[str]:
        return self._files.list()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._files.root}>"


async def _run_in_thread(work: Callable[[], T]) -> T:
    import asyncio

    return await asyncio.to_thread(work)


class _Session:
    """The saves and deletions of one session in progress in this process; `done` is the newest that ended."""

    __slots__ = ("__weakref__", "done")

    def __init__(self) -> None:
        self.done = 0


_sessions: WeakValueDictionary[str, _Session] = WeakValueDictionary()
_sessions_lock = threading.Lock()


def _begin_again(_: object) -> None:
    global _sessions_lock  # noqa: PLW0603 - in a forked child, whose parent may have held it in another thread
    _sessions_lock = threading.Lock()


fork_safety.begin_again_in_child(_Session, _begin_again)


class _StoredState(NamedTuple):
    """The content of a `checkpoint.json`; another program's has no metadata."""

    metadata: CheckpointMetadata | None
    state: Any


class _Files:
    """All that is done, blocking."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        if sys.platform == "win32":
            raise UsageError("FileCheckpoints needs flock, which Windows does not have: use Client.sqlite().as_store()")
        if os.fspath(directory) == DIRECTORY:
            refuse_links(Path.cwd(), DIRECTORY)
        self.root = str(Path(directory).absolute())
        self._disk = Disk(self.root, durable=True)

    # -- writing -------------------------------------------------------------------------------------------------------

    def begin_save(self, session_id: str, state: Any) -> Callable[[], None]:
        """Check and encode the state now; return the write, which yields to a save that began later."""
        folder = self._folder(session_id)
        if state is None:
            raise UsageError("the state is None, which `load` returns where there is none: save a dict")
        _check(state, ("state",), 0)
        encoded = _compact(state)
        metadata = CheckpointMetadata(
            session_id=session_id,
            checkpoint_id=ids.to_text(_ids.new()),
            timestamp=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            step=step_of(state) or 0,
            agent_id=agent_of(state, "unknown"),
        )
        return self._skip_if_late(folder, lambda: self._write(folder, session_id, metadata, encoded))

    def begin_delete(self, session_id: str) -> Callable[[], None]:
        folder = self._folder(session_id)
        return self._skip_if_late(folder, lambda: self._delete(folder, session_id))

    def _skip_if_late(self, folder: str, change: Callable[[], None]) -> Callable[[], None]:
        """Return the change, which does nothing if a later one to the same session came before it."""
        key = f"{self.root}/{folder}"
        with _sessions_lock:
            session = _sessions.setdefault(key, _Session())
        ticket = next(_tickets)

        def carry_out() -> None:
            with self._translate_errors("written"):
                self._run_alone(change_unless_late)

        def change_unless_late() -> None:
            if session.done < ticket:
                change()
                session.done = ticket

        return carry_out

    def _write(self, folder: str, session_id: str, metadata: CheckpointMetadata, encoded: str) -> None:
        about = _order_metadata(metadata)
        data = {"holdfast": FORMAT, "metadata": about, "sha256": _digest(about, encoded), "state": json.loads(encoded)}
        self._disk.make_folder(folder)
        self._put(folder, DATA, data)
        self._put(folder, METADATA, {**about, "sha256": _digest(about)})
        foreign = self._foreign_folder(session_id)
        if foreign is not None:
            self._remove(foreign)  # it has become ours, under the name that is safe

    def _put(self, folder: str, name: str, content: Any) -> None:
        temporary = f"{folder}/.{name}.tmp"
        self._disk.remove(temporary)  # of a process that died
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        self._disk.create(temporary, text.encode("utf-8", "surrogatepass"))
        self._disk.move(temporary, f"{folder}/{name}")
        self._disk.sync_folder(folder)

    def _delete(self, folder: str, session_id: str) -> None:
        foreign = self._foreign_folder(session_id)
        if self._is_of(folder, session_id):
            self._remove(folder)
        if foreign is not None:
            self._remove(foreign)

    def _remove(self, folder: str) -> None:
        """Remove the data first: then the checkpoint is gone.

        A foreign file stays, and its directory with it.
        """
        for name in (DATA, METADATA, f".{DATA}.tmp", f".{METADATA}.tmp"):
            self._disk.remove(f"{folder}/{name}")
        with contextlib.suppress(OSError):  # something else is in it
            self._disk.remove_folder(folder)
        self._disk.sync_folder("")

    def _run_alone(self, change: Callable[[], None]) -> None:
        root = Path(self.root)
        if not root.is_dir():
            root.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            Disk(str(root.parent), durable=True).sync_folder("")
        lock = StoreLock(self._disk.tree, LOCK, TIMEOUT)
        try:
            lock.hold(change, exclusive=True)
        finally:
            lock.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    def load(self, session_id: str) -> Any | None:
        with self._translate_errors("read"):
            found = self._find_stored(session_id)
        return found.state if found else None

    def load_metadata(self, session_id: str) -> CheckpointMetadata | None:
        with self._translate_errors("read"):
            folder = self._folder(session_id)
            stored = self._own_metadata(folder, session_id)
            head = self._head(folder)
            if stored is not None and head is not None and f'"checkpoint_id": "{stored.checkpoint_id}"' in head:
                return stored
            found = self._find_stored(session_id)  # a save is between its two files, or was when it crashed
            return found.metadata if found else None

    def list(self) -> list[str]:
        with self._translate_errors("read"):
            return sorted({found for name in self._disk.names("") if (found := self._session_in(name)) is not None})

    def _session_in(self, name: str) -> str | None:
        if not self._disk.is_folder(name):
            return None
        head = self._head(name)
        if head is None:
            return None
        if not _is_ours(head):
            return name
        key = key_of(name)
        if key is None:  # a long id is cut in the name: the file says it
            found = self._read_data(name)
            return found.metadata.session_id if found and found.metadata else None
        return session_name(key)

    def _find_stored(self, session_id: str) -> _StoredState | None:
        """Return the session's checkpoint, as we keep it or as another program left it."""
        folder = self._folder(session_id)
        if not self._is_of(folder, session_id):
            foreign = self._foreign_folder(session_id)
            if foreign is None:
                return None
            folder = foreign
        has_our_metadata = self._has_our_metadata(folder)  # looked at first: it is written last
        found = self._read_data(folder)
        if found is None:
            return None
        if found.metadata is not None:
            if found.metadata.session_id != session_id:
                raise _make_damage_error(self._disk.resolve(f"{folder}/{DATA}"), "it belongs to another session")
            return found
        if has_our_metadata:
            raise _make_damage_error(self._disk.resolve(f"{folder}/{DATA}"), "it does not begin as one")
        fields = self._read_foreign_fields(folder)
        return _StoredState(self._foreign_metadata(folder, session_id, found.state, fields), found.state)

    def _is_of(self, folder: str, session_id: str) -> bool:
        """Return whether the folder holds this session: another program's folder may have the same name."""
        head = self._head(folder)
        return head is not None and (_is_ours(head) or folder == session_id or self._has_our_metadata(folder))

    def _has_our_metadata(self, folder: str) -> bool:
        return b'"session_id"' in (self._disk.read(f"{folder}/{METADATA}") or b"")

    def _foreign_folder(self, session_id: str) -> str | None:
        """Return the folder that another program made for the session, if it is not named as ours."""
        plain = session_id.isprintable() and "/" not in session_id and session_id not in ("", ".", "..")
        if not plain or session_id == self._folder(session_id) or len(session_id.encode()) > 255:
            return None
        head = self._head(session_id) if self._disk.is_folder(session_id) else None
        return session_id if head is not None and not _is_ours(head) else None

    def _read_foreign_fields(self, folder: str) -> dict[str, Any]:
        """Return the content of another program's `metadata.json`; empty if there is none."""
        fields = self._read_json(f"{folder}/{METADATA}")
        return fields if isinstance(fields, dict) else {}

    def _foreign_metadata(self, folder: str, session_id: str, state: Any, fields: dict[str, Any]) -> CheckpointMetadata:
        """Return the session's foreign metadata, completed from the state."""
        found = self._disk.info(f"{folder}/{DATA}")
        written = (
            datetime.fromtimestamp(found.time_us / 1e6 if found else 0, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        return CheckpointMetadata(
            session_id=session_id,
            checkpoint_id=str(fields.get("checkpointId", "")),
            timestamp=str(fields.get("timestamp", written)),
            step=step_of(fields) or step_of(state) or 0,
            agent_id=str(fields.get("agentId", agent_of(state, "unknown"))),
        )

    def _read_data(self, folder: str) -> _StoredState | None:
        path = f"{folder}/{DATA}"
        content = self._read_json(path)
        if content is _ABSENT:
            return None
        if not isinstance(content, dict) or "holdfast" not in content:
            return _StoredState(None, content)
        if isinstance(content["holdfast"], int) and content["holdfast"] > FORMAT:
            raise NewerVersionError(f"{self._disk.resolve(path)} was written by a newer holdfast. Upgrade to read it")
        try:
            metadata = CheckpointMetadata(**content["metadata"])
            whole = content["sha256"] == _digest(content["metadata"], _compact(content["state"]))
        except (KeyError, TypeError) as error:
            raise _make_damage_error(self._disk.resolve(path), "a part of it is missing") from error
        if not whole or len(content) != 4:
            raise _make_damage_error(self._disk.resolve(path), "its sha256 is another")
        return _StoredState(metadata, content["state"])

    def _own_metadata(self, folder: str, session_id: str) -> CheckpointMetadata | None:
        """Return our own `metadata.json`; None if there is none or it is another program's."""
        path = f"{folder}/{METADATA}"
        fields = self._read_json(path)
        if not isinstance(fields, dict) or "session_id" not in fields or fields["session_id"] != session_id:
            return None
        digest = fields.pop("sha256", None)
        try:
            metadata = CheckpointMetadata(**fields)
        except TypeError as error:
            raise _make_damage_error(self._disk.resolve(path), "a part of it is missing") from error
        if digest != _digest(fields):
            raise _make_damage_error(self._disk.resolve(path), "its sha256 is another")
        return metadata

    def _read_json(self, path: str) -> Any:
        raw = self._disk.read(path)
        if raw is None:
            return _ABSENT
        try:
            return json.loads(raw.decode("utf-8", "surrogatepass"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise _make_damage_error(self._disk.resolve(path), f"it can't be read as JSON ({error})") from error

    def _head(self, folder: str) -> str | None:
        """Return the first bytes of the folder's data, None if there are none."""
        with self._disk.open_to_read(f"{folder}/{DATA}") as file:
            return None if file is None else file.read_at(_HEAD_BYTES, 0).decode("utf-8", "replace")

    # -- both ----------------------------------------------------------------------------------------------------------

    def _folder(self, session_id: str) -> str:
        return name_of(session_key(checked_name("session_id", session_id)))

    @contextlib.contextmanager
    def _translate_errors(self, attempted: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise store_error(self.root, attempted, error) from error


_ABSENT = object()


def _is_ours(head: str) -> bool:
    return _OURS.match(head) is not None


def _order_metadata(metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return the metadata as it is written, the checkpoint's id first."""
    return {"checkpoint_id": metadata.checkpoint_id} | asdict(metadata)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _digest(about: dict[str, Any], encoded_state: str | None = None) -> str:
    text = _compact(about) if encoded_state is None else f"[{_compact(about)},{encoded_state}]"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _make_damage_error(path: str, why: str) -> CorruptError:
    return CorruptError(f"{path} is not what was saved: {why}. Put it back from a backup, or delete the session")


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _check(value: Any, path: tuple[str | int, ...], depth: int) -> None:
    """Raises unless the value comes back from JSON as it is, types included."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int:
        if value.bit_length() > MAX_INT_BITS:
            raise UnsupportedValueError(path_text(path), "an int of so many digits can't be read back", _REMEDY)
        return
    if kind is float:
        if not math.isfinite(value):
            raise UnsupportedValueError(path_text(path), f"JSON has no {value!r}", f"Store None or a str; {_REMEDY}")
        return
    if depth >= MAX_DEPTH:
        problem = f"it is nested deeper than {MAX_DEPTH} levels, or contains itself"
        raise UnsupportedValueError(path_text(path[:8]) + "...", problem, "Store it flatter")
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                problem = f"the key {key!r:.60} is a {type(key).__name__}, and JSON has only str keys"
                raise UnsupportedValueError(path_text(path), problem, f"Store str keys; {_REMEDY}")
            _check(item, (*path, key), depth + 1)
    elif kind is list:
        for number, item in enumerate(value):
            _check(item, (*path, number), depth + 1)
    else:
        remedy = f"Convert it (a tuple or set to a list, a datetime to its isoformat()); {_REMEDY}"
        raise UnsupportedValueError(path_text(path), f"a {kind.__qualname__} would not come back from JSON", remedy)
