"""What a client does to move checkpoints between stores: export, import, copy, and what other programs saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.opening import Opening
from holdfast.operations import arguments

if TYPE_CHECKING:
    from holdfast.bundles import Place
    from holdfast.model.bundle import CopyReport, ExportReport, ImportReport
    from holdfast.model.reports import ImportedReport


class Moving(Opening):
    """The part of `Client` that moves checkpoints in and out."""

    async def import_checkpnt(self, path: str | os.PathLike[str], *, dry_run: bool = False) -> ImportedReport:
        """Takes over what checkpnt 0.1 has saved to its SQLite database, which stays as it is. Importing it again does
        nothing; a session that has gone on here since is never taken back. The source is read in this thread: import a
        large one with a `SyncClient`, or from the command line."""
        from holdfast.importers import checkpnt

        return await checkpnt.import_database(self._services, path, dry_run=dry_run)

    async def import_providerprotocol(
        self, directory: str | os.PathLike[str] = ".checkpoints", *, dry_run: bool = False
    ) -> ImportedReport:
        """Takes over the sessions of a `.checkpoints/` directory, as @providerprotocol/agents and `FileCheckpoints` write
        it. It stays as it is; importing it again takes over what is new there."""
        from holdfast.importers import providerprotocol

        return await providerprotocol.import_directory(self._services, directory, dry_run=dry_run)

    async def export(
        self,
        target: Place,
        session_id: str | Sequence[str] | None = None,
        *,
        whole_tree: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ExportReport:
        """Writes everything, or these sessions, to one portable file (a path, or a file opened for binary writing) that
        `import_` reads into any store. The same content gives the same bytes. Sessions come with those they were
        forked from; with `whole_tree` also with all others of their trees. `progress(done, of_all)` is called now
        and then."""
        from holdfast import bundles
        from holdfast.operations.export import Export

        given = [session_id] if isinstance(session_id, str) else session_id
        names = None if given is None else [arguments.name("session_id", name) for name in given]
        return await bundles.write(
            self._services.backend,
            target,
            lambda: Export(self._services, names, whole_trees=whole_tree, progress=progress),
        )

    async def import_(
        self,
        source: Place,
        *,
        on_conflict: str = "error",
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportReport:
        """Takes over what `export` wrote (a path, or a file opened for binary reading). All of the file is checked first;
        a tree is imported whole or not at all. What is there already stays as it is, so importing twice is safe. What is
        there with other content is a `ConflictError`; with `on_conflict="skip"` its tree is left out and reported.
        With `dry_run` nothing is written."""
        from holdfast import bundles
        from holdfast.operations.import_ import import_bundle

        skip = arguments.one_of("on_conflict", on_conflict, ("error", "skip")) == "skip"
        async with bundles.reading(self._services.backend, source) as opened:
            return await import_bundle(self._services, opened, skip_conflicts=skip, dry_run=dry_run, progress=progress)

    async def copy_to(
        self, target: Opening, *, on_conflict: str = "error", progress: Callable[[int, int], None] | None = None
    ) -> CopyReport:
        """Copies everything into the store of another client of the same kind. Each tree is checked on the way, and is
        there whole or not at all. What is there already is not written again: a copy that was interrupted is made again,
        and goes on. `on_conflict` is as in `import_`."""
        from holdfast import copying

        if not isinstance(target, Moving):
            raise UsageError(f"a {type(self).__name__} copies to a Client, not to a {type(target).__name__}")
        skip = arguments.one_of("on_conflict", on_conflict, ("error", "skip")) == "skip"
        return await copying.copy(self, target, skip_conflicts=skip, progress=progress)
