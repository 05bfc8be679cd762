"""Import of a `.checkpoints/` directory of @providerprotocol/agents or `FileCheckpoints`.

It has one state for each session.

    {dir}/{session}/checkpoint.json    the state
    {dir}/{session}/metadata.json      {"sessionId", "checkpointId", "timestamp", "step", "agentId"}

The program writes the two files one after the other, in place: either may be truncated, or older
than the other. The state decides. The program keeps no history; importing again after it has saved
adds a checkpoint to the session.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.checkpoint_store.json_files import DATA, METADATA, _Files
from holdfast.checkpoint_store.protocol import CheckpointMetadata, agent_of, step_of
from holdfast.errors import CheckpointNotFoundError, CorruptError, HoldfastError, StoreError, UsageError
from holdfast.format.state.record import StoredRecord, microseconds
from holdfast.importers.import_target import ImportTarget
from holdfast.model import ids
from holdfast.model.reports import ImportedReport
from holdfast.model.state_migration import FIRST_VERSION
from holdfast.operations import validate
from holdfast.operations.context import StoreContext
from holdfast.operations.validate import SaveRequest

IMPORTED_FROM = "imported_from"
NAME = "providerprotocol"


async def import_directory(
    ctx: StoreContext, directory: str | os.PathLike[str], *, dry_run: bool = False
) -> ImportedReport:
    """Save the state of every readable session of a directory, which is only read.

    A second import adds the states that are new.
    """
    root = _root(directory)
    work = _Import(ctx, root, dry_run=dry_run)
    try:
        for folder in _folders(root):
            await work.take(folder)
    except OSError as error:
        raise StoreError(f"{root} could not be read: {error.strerror}") from error
    except RecursionError as error:
        raise UsageError(
            f"{root} has directories within each other without end: it is no directory of sessions"
        ) from error
    return work.target.report(str(root))


def _root(directory: str | os.PathLike[str]) -> Path:
    root = Path(directory)
    if not root.is_dir():
        raise CheckpointNotFoundError(f"there is no directory {root}")
    if (root / DATA).exists():
        raise UsageError(f"{root} is the folder of one session: name the directory that it is in")
    return root


class _Import:
    def __init__(self, ctx: StoreContext, root: Path, *, dry_run: bool) -> None:
        def was_imported(head: StoredRecord) -> bool:
            meta = head.header.get("meta")
            return meta is not None and ctx.codec.decode(meta).get(IMPORTED_FROM) == NAME

        self.target = ImportTarget(ctx, dry_run=dry_run, may_follow=was_imported)
        self._files = _Files(root)

    async def take(self, folder: str) -> None:
        remarks: list[str] = []
        try:
            metadata, state, id_ = self._read(folder, remarks)
            created_at = datetime.fromisoformat(metadata.timestamp)
            validate.name("session_id", metadata.session_id)
        except (HoldfastError, ValueError, OSError) as error:
            self.target.skip(folder, None, str(error))
            return
        except Exception as error:  # the files may hold anything: report it, and continue with the next folder
            self.target.skip(folder, None, f"it can't be taken over: {error!r:.200}")
            return
        theirs = metadata.checkpoint_id or None
        request = SaveRequest(
            agent_id=metadata.agent_id,
            session_id=metadata.session_id,
            execution_state=state,
            agent_context={},
            step_index=metadata.step,
            metadata={IMPORTED_FROM: NAME} | ({"providerprotocol_id": theirs} if theirs else {}),
            checkpoint_id=id_,
            created_at_us=microseconds(created_at),
            state_version=FIRST_VERSION,  # migrations upgrade it when it is read
        )
        await self.target.put(request, folder, theirs, remarks=remarks)

    def _read(self, folder: str, remarks: list[str]) -> tuple[CheckpointMetadata, Any, bytes]:
        """Return the content of a folder, and its id here; raise an error that says why it is refused."""
        if Path(self._files.root, folder).is_symlink():
            raise ValueError("it is a link, which is not followed")
        found = self._files._read_data(folder)
        if found is None:
            raise ValueError(f"it has no {DATA}")
        if found.metadata is not None:
            if self._files._folder(found.metadata.session_id) != folder:
                raise ValueError(f"its {DATA} belongs to session {found.metadata.session_id!r:.60}")
            return found.metadata, found.state, ids.from_text(found.metadata.checkpoint_id)
        if not isinstance(found.state, dict):
            raise ValueError(f"its {DATA} holds a {type(found.state).__name__}, not a state")  # noqa: TRY004 - as above
        fields = self._read_metadata(folder, found.state, remarks)
        metadata = self._files._foreign_metadata(folder, folder, found.state, fields)
        return metadata, found.state, _our_id(metadata, found.state, fields.get("timestamp"))

    def _read_metadata(self, folder: str, state: dict[str, Any], remarks: list[str]) -> dict[str, Any]:
        """Return the metadata of this state; nothing, with a remark, if `metadata.json` is unreliable."""
        instead = f"date, step and agent are taken from {DATA}"
        try:
            fields = self._files._read_foreign_fields(folder)
        except CorruptError:
            remarks.append(f"its {METADATA} can't be read: {instead}")
            return {}
        if not fields:
            remarks.append(f"it has no {METADATA}: {instead}")
            return {}
        named = fields.get("sessionId", folder)
        if named != folder:
            raise ValueError(f"its {METADATA} belongs to session {named!r:.60}: the two files may be of two sessions")
        is_whole = _is_moment(fields.get("timestamp")) and "session_id" not in fields
        # The program copies these from the state.
        is_of_state = fields.get("step") == step_of(state) and fields.get("agentId") == agent_of(state, "unknown")
        if not is_whole or not is_of_state:
            remarks.append(f"its {METADATA} was not written with this {DATA}: {instead}")
            return {}
        return fields


def _folders(root: Path) -> Iterator[str]:
    """Yield possible sessions: folders with one of the two files or with nothing below them, and links.

    The program makes nested folders for a session whose id has a slash.
    """
    for where, folders, files in os.walk(root):
        name = os.path.relpath(where, root)
        if name != "." and (not folders or DATA in files or METADATA in files):
            yield name
        folders.sort()
        yield from (os.path.relpath(path, root) for folder in folders if (path := Path(where, folder)).is_symlink())


def _is_moment(text: Any) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _our_id(metadata: CheckpointMetadata, state: Any, timestamp: str | None) -> bytes:
    """Return an id derived from the saved content, so that the same state is imported once.

    The program's own id is not used: it may belong to another state. Dates of files are left out: a
    copy has others.
    """
    text = json.dumps([NAME, metadata.session_id, metadata.checkpoint_id, state], sort_keys=True)
    ms = microseconds(datetime.fromisoformat(timestamp)) // 1000 if timestamp else 0
    return ids.make(ms & (1 << 48) - 1, 0, hashlib.sha256(text.encode()).digest()[:8])
