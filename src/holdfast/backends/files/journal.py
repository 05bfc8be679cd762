"""The journal that makes a commit atomic: stage, commit, apply.

- *Stage*: every new file is written and synced as `staged/<n>`, its folder is created, and space in
  `order` is allocated. Readers never look there. Everything that needs space happens now, so a full
  disk shows before the commit, not in the middle of it.
- *Commit*: the list of moves, touches and removals is written to `staged/journal`, synced and
  renamed to `journal`, and the directory is synced. That rename is the commit: before it nothing
  has happened, after it everything has.
- *Apply*: moves, touches and removals, in this order; then the new records' entries in `order`
  (`change_log.py`); the folders are synced, then `journal` is removed.

A writer that takes the lock and finds a `journal` applies it before anything else. A reader applies
nothing: it reads as if the journal had been applied (`pending_view.py`). So a reader never sees
half of a dead process's commit, and only writers write. Applying twice is harmless: a missing
staged file has been moved already, and no path is in the list twice. The removal of `journal` need
not be durable: the next commit's journal replaces it.

A journal may come from a stranger: `journal_plan.py` refuses any name that the store does not give
itself, and every target is checked before the first file is moved.
"""

# Paths are text here, as in disk.py.
# ruff: noqa: PTH120

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from holdfast.backends.files import change_log, layout
from holdfast.backends.files.disk import Disk
from holdfast.backends.files.journal_plan import JournalPlan, make_foreign_error, read_plan
from holdfast.backends.files.pending_view import PendingView
from holdfast.backends.files.write_set import (
    Change,
    Changes,
    HardLink,
    Remove,
    StagedPut,
    StoreView,
    Touch,
)
from holdfast.errors import CorruptError

JOURNAL_STAGED = f"{layout.STAGED}/journal"


def _pass(point: str) -> None:
    """Tell tests which point a commit has reached; they inject a crash by setting `reached`."""


class CommitJournal:
    """The journal of a store. Its users hold the exclusive lock; for `view` the shared one is enough."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.reached: Callable[[str], None] = _pass

    def view(self) -> StoreView:
        """Return the store as readers see it: with a pending commit carried out."""
        plan = self._pending()
        return self._disk if plan is None else PendingView(self._disk, plan)

    def _pending(self) -> JournalPlan | None:
        """Return the plan of a pending commit, None if there is none; raise `CorruptError` if it is invalid."""
        raw = self._disk.read(layout.JOURNAL)
        if raw is None:
            return None
        plan = read_plan(raw)
        for source, path in plan.moves:
            info = self._disk.info(path)  # raises if a link is on the way
            if self._disk.info(source) is None and info is None:
                raise _incomplete(source, path)
        for path in (*(path for path, _ in plan.touches), *plan.removals):
            self._disk.info(path)
        if plan.ids:
            last = change_log.last_position(self._disk)
            if plan.first > last + 1 or plan.first + len(plan.ids) - 1 < last:
                raise make_foreign_error("gives records places that do not follow the others'")
        return plan

    def clear(self) -> None:
        """Remove files that were staged and never committed. Must not be called while a journal is pending."""
        self._disk.empty(layout.STAGED)

    def commit(self, changes: Changes) -> None:
        """Make all changes, or raise `OSError` and make none."""
        if not changes.by_path:
            return
        self.clear()
        try:
            plan = self._stage(changes.by_path)
            if changes.new_records:
                last = changes.last_position()
                change_log.make_room(self._disk, last)
                ids = tuple(changes.new_records)
                plan = plan._replace(first=last - len(ids) + 1, ids=ids)
            self.reached("staged")
            self._disk.create(JOURNAL_STAGED, plan.pack())
            self._disk.sync_folder(layout.STAGED)
            self.reached("prepared")
            self._disk.move(JOURNAL_STAGED, layout.JOURNAL)
            self._disk.sync_folder("")
        except (OSError, CorruptError):  # the latter: a link where a folder should be
            self._abandon()
            raise
        self.reached("committed")
        # From here on the commit is done: if applying fails now, the next writer first tries again.
        with contextlib.suppress(OSError, CorruptError):
            self._apply(plan)

    def _abandon(self) -> None:
        """Abandon a commit: without its journal it has never been, as we hold the lock and applied nothing.

        If the journal can't be removed for good, the staged files must stay, so that it can be
        applied after all.
        """
        with contextlib.suppress(OSError):
            if self._disk.info(layout.JOURNAL) is not None:
                self._disk.remove(layout.JOURNAL)
                self._disk.sync_folder("")
            self.clear()

    def replay(self) -> None:
        """Apply the commit of a process that died."""
        plan = self._pending()
        if plan is not None:
            self._apply(plan)

    def _stage(self, by_path: dict[str, Change]) -> JournalPlan:
        staged = {path: layout.staged_path(number) for number, path in enumerate(by_path)}
        moves: list[tuple[str, str]] = []
        touches: list[tuple[str, int]] = []
        removals: list[str] = []
        for path, change in by_path.items():
            match change:
                case StagedPut(data=data, time_us=time_us):
                    self._disk.create(staged[path], data, time_us)
                    moves.append((staged[path], path))
                case HardLink(of=of):
                    self._disk.link(staged[of], staged[path])
                    moves.append((staged[path], path))
                case Touch(time_us=time_us):
                    touches.append((path, time_us))
                case Remove():
                    removals.append(path)
        for folder in {os.path.dirname(path) for _, path in moves}:
            self._disk.make_folder(folder)
        return JournalPlan(moves, touches, removals)

    def _apply(self, plan: JournalPlan) -> None:
        for source, path in plan.moves:
            self._move(source, path)
            self.reached("moved")
        for path, time_us in plan.touches:
            self._disk.touch(path, time_us)
        for path in plan.removals:
            self._disk.remove(path)
            self.reached("removed")
        if plan.ids:
            change_log.put(self._disk, plan.first, plan.ids)
            self.reached("ordered")
        thinned = dict.fromkeys(os.path.dirname(path) for path in plan.removals)
        for folder in thinned:
            self._disk.prune(folder)
        for folder in dict.fromkeys(os.path.dirname(path) for _, path in plan.moves) | thinned:
            self._disk.sync_folder(folder)
        self.reached("applied")
        self._disk.remove(layout.JOURNAL)

    def _move(self, source: str, path: str) -> None:
        try:
            self._disk.move(source, path)
        except FileNotFoundError as error:  # moved already, by the process that died
            if self._disk.info(path) is None:
                raise _incomplete(source, path) from error


def _incomplete(source: str, path: str) -> CorruptError:
    return CorruptError(
        f"the journal is to put a file at {path}, but the file ({source}) is gone: the copy of this store "
        "is incomplete. Copy it again; or move the file 'journal' away to go on with half of a commit"
    )
