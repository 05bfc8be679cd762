"""The part of the client for export, import and copies of stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.client.factory import ClientBase
from holdfast.errors import UsageError
from holdfast.operations import validate

if TYPE_CHECKING:
    from holdfast.client.bundle_io import Place
    from holdfast.model.reports import ImportedReport
    from holdfast.model.transfer_report import CopyReport, ExportReport, ImportReport
    from holdfast.operations.imported_snapshot import IsForeign


class ClientTransfer(ClientBase):
    """The part of `Client` that moves checkpoints in and out."""

    async def import_checkpnt(self, path: str | os.PathLike[str], *, dry_run: bool = False) -> ImportedReport:
        """Imports the SQLite database of checkpnt 0.1, which stays as it is.

        Importing it again is a no-op; a session that has continued here since is never moved back.
        The source is read in this thread: import a large one with a `SyncClient`, or from the
        command line.
        """
        from holdfast.importers import checkpnt

        return await checkpnt.import_database(self._ctx, path, dry_run=dry_run)

    async def import_providerprotocol(
        self, directory: str | os.PathLike[str] = ".checkpoints", *, dry_run: bool = False
    ) -> ImportedReport:
        """Imports a `.checkpoints/` directory of @providerprotocol/agents or `FileCheckpoints`.

        It stays as it is; importing it again imports what is new there.
        """
        from holdfast.importers import providerprotocol

        return await providerprotocol.import_directory(self._ctx, directory, dry_run=dry_run)

    async def export(
        self,
        target: Place,
        session_id: str | Sequence[str] | None = None,
        *,
        whole_tree: bool = False,
        plain: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ExportReport:
        """Writes everything, or these sessions, to one portable file that `import_` reads.

        `target` is a path, or a file opened for binary writing. The same content gives the same
        bytes. Sessions come with those they were forked from; with `whole_tree` also with all
        others of their trees. `progress(done, of_all)` is called now and then.

        The file is not encrypted. A sealed store is exported with `plain=True` only.
        """
        from holdfast.client import bundle_io
        from holdfast.operations.bundle.export import Export

        if self._ctx.backend.capabilities.sealed and not plain:
            raise UsageError(
                "this store is sealed, and an exported file is not encrypted: pass plain=True (on the command line "
                "--plain) to write it all the same, or copy into another sealed store with copy_to"
            )
        given = [session_id] if isinstance(session_id, str) else session_id
        names = None if given is None else [validate.name("session_id", name) for name in given]
        return await bundle_io.write(
            self._ctx.backend,
            target,
            lambda: Export(self._ctx, names, whole_trees=whole_tree, progress=progress),
        )

    async def import_(
        self,
        source: Place,
        *,
        on_conflict: str = "error",
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportReport:
        """Imports a file that `export` wrote. Importing twice is safe.

        `source` is a path, or a file opened for binary reading. All of the file is checked first;
        a tree is imported whole or not at all. What is there already stays as it is. What is there
        with other content is a `ConflictError`; with `on_conflict="skip"` its tree is left out and
        reported. With `dry_run` nothing is written. Snapshots of files are marked as imported:
        `fork` and `restore` leave out of them what belongs to repositories, and set-id bits,
        unless these are asked for.
        """
        skip = validate.one_of("on_conflict", on_conflict, ("error", "skip")) == "skip"
        return await self._take_over(source, skip_conflicts=skip, dry_run=dry_run, progress=progress)

    async def _take_over(
        self,
        source: Place,
        *,
        skip_conflicts: bool,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
        is_foreign: IsForeign | None = None,
    ) -> ImportReport:
        from holdfast.client import bundle_io
        from holdfast.operations.bundle.import_ import import_bundle

        async with bundle_io.open_reader(self._ctx.backend, source) as opened:
            return await import_bundle(
                self._ctx,
                opened,
                skip_conflicts=skip_conflicts,
                dry_run=dry_run,
                progress=progress,
                is_foreign=is_foreign,
            )

    async def copy_to(
        self,
        target: ClientBase,
        *,
        on_conflict: str = "error",
        plain: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> CopyReport:
        """Copies everything into the store of another client of the same kind.

        Each tree is verified on the way, and is there whole or not at all. What is there already
        is not written again: after an interruption, copy again. `on_conflict` is as in `import_`.

        Copying a plain store into a sealed one encrypts it. A sealed store is copied into a plain one
        with `plain=True` only.
        """
        from holdfast.client import copy_store

        skip = validate.one_of("on_conflict", on_conflict, ("error", "skip")) == "skip"
        peer = self._peer(target)
        if self._ctx.backend.capabilities.sealed and not peer._ctx.backend.capabilities.sealed and not plain:
            raise UsageError(
                "this store is sealed, and the other one is not: open the other one with keys, or pass plain=True (on "
                "the command line --plain) to copy everything unencrypted"
            )
        return await copy_store.copy(self, peer, skip_conflicts=skip, progress=progress)

    def _peer(self, target: ClientBase) -> ClientTransfer:
        """Return the client to copy to, which must be of the same kind, awaiting or blocking."""
        if not isinstance(target, ClientTransfer):
            raise UsageError(f"a {type(self).__name__} copies to a Client, not to a {type(target).__name__}")
        return target
