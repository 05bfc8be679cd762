"""Making changes all at once: stage, commit, apply.

1. *Stage*: every new file is written and synced as `staged/<n>`, its folder is made, and room in `order`. Nobody looks
   there. All that needs space is done now, so that a full disk is met before the commit, not in the middle of it.
2. *Commit*: the list of moves, touches and removals is written to `staged/journal`, synced and renamed to `journal`,
   the directory synced. That rename is the commit: before it nothing has happened, after it everything has.
3. *Apply*: moves, touches and removals, in this order; the new records' places in `order` are filled in (`order.py`);
   the folders are synced, then `journal` is removed.

Whoever takes the lock and finds a `journal` applies it before doing anything else, so that what a dead process left
behind is never seen half done. Applying twice is harmless: a staged file that is gone has been moved already, and no
path is in the list twice. The removal of `journal` need not be durable: the next commit's journal takes its place.
"""

# Paths are text here, as in disk.py.
# ruff: noqa: PTH108, PTH120

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from typing import Any

from holdfast.backends.files import envelope, layout, order
from holdfast.backends.files.changes import Change, Changes, Put, Remove, Touch, Twin
from holdfast.backends.files.disk import Disk
from holdfast.errors import CorruptError

_ID = re.compile("[0-9a-f]{32}")
JOURNAL_STAGED = f"{layout.STAGED}/journal"


def _pass(point: str) -> None:
    """Tests put a crash here: `reached` is called with the name of each point that a commit has come to."""


class Journal:
    """To be used under the store's exclusive lock, but for `pending`, for which the shared one will do."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.reached: Callable[[str], None] = _pass

    def pending(self) -> bool:
        return self._disk.info(layout.JOURNAL) is not None

    def clear(self) -> None:
        """Removes what was staged and never committed. Must not be called while a journal is pending."""
        self._disk.empty(layout.STAGED)

    def commit(self, changes: Changes) -> None:
        """Makes all changes, or raises `OSError` and has made none."""
        if not changes.by_path:
            return
        self.clear()
        try:
            plan = self._stage(changes.by_path)
            if changes.new_records:
                last = changes.last_position()
                order.make_room(self._disk, last)
                ids = [id_.hex() for id_ in changes.new_records]
                plan["order"] = [last - len(ids) + 1, ids]
            self.reached("staged")
            self._disk.create(JOURNAL_STAGED, envelope.wrap("journal", plan))
            self._disk.sync_folder(layout.STAGED)
            self.reached("prepared")
            self._disk.move(JOURNAL_STAGED, layout.JOURNAL)
            self._disk.sync_folder("")
        except OSError:
            self._abandon()
            raise
        self.reached("committed")
        # From here on it is done, whatever happens: should applying fail now, whoever comes next tries again first.
        with contextlib.suppress(OSError):
            self._apply(plan)

    def _abandon(self) -> None:
        """We hold the lock and nothing has been applied: without its journal the commit has never been.

        If that can't be removed for good, what is staged must stay: then it is there to be applied after all.
        """
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._disk.at(layout.JOURNAL))
                self._disk.sync_folder("")
            self.clear()

    def replay(self) -> None:
        """Applies what a process that died has committed."""
        raw = self._disk.read(layout.JOURNAL)
        if raw is None:
            return
        plan, _ = envelope.unwrap("journal", raw, layout.JOURNAL)
        _check(plan)
        if plan.get("order") and plan["order"][0] > order.last_position(self._disk) + 1:
            raise _not_ours("gives records places that do not follow the others'")
        self._apply(plan)

    def _stage(self, by_path: dict[str, Change]) -> dict[str, Any]:
        staged = {path: f"{layout.STAGED}/{number}" for number, path in enumerate(by_path)}
        moves: list[list[str]] = []
        touches: list[list[Any]] = []
        removals: list[str] = []
        for path, change in by_path.items():
            match change:
                case Put(data=data, time_us=time_us):
                    self._disk.create(staged[path], data, time_us)
                    moves.append([staged[path], path])
                case Twin(of=of):
                    self._disk.twin(staged[of], staged[path])
                    moves.append([staged[path], path])
                case Touch(time_us=time_us):
                    touches.append([path, time_us])
                case Remove():
                    removals.append(path)
        for folder in {os.path.dirname(path) for _, path in moves}:
            self._disk.make_folder(folder)
        return {"moves": moves, "touches": touches, "removals": removals}

    def _apply(self, plan: dict[str, Any]) -> None:
        for source, path in plan["moves"]:
            self._move(source, path)
            self.reached("moved")
        for path, time_us in plan["touches"]:
            self._disk.touch(path, time_us)
        for path in plan["removals"]:
            self._disk.remove(path)
            self.reached("removed")
        if plan.get("order"):
            first, ids = plan["order"]
            order.put(self._disk, first, [bytes.fromhex(id_) for id_ in ids])
            self.reached("ordered")
        thinned = dict.fromkeys(os.path.dirname(path) for path in plan["removals"])
        for folder in thinned:
            self._disk.prune(folder)
        for folder in dict.fromkeys(os.path.dirname(path) for _, path in plan["moves"]) | thinned:
            self._disk.sync_folder(folder)
        self.reached("applied")
        os.unlink(self._disk.at(layout.JOURNAL))

    def _move(self, source: str, path: str) -> None:
        try:
            self._disk.move(source, path)
        except FileNotFoundError as error:  # moved already, by the process that has died
            if self._disk.info(path) is None:
                raise CorruptError(
                    f"the journal is to put a file at {path}, but the file ({source}) is gone: the copy of this store "
                    "is incomplete. Copy it again; or move the file 'journal' away to go on with half of a commit"
                ) from error


def _check(plan: dict[str, Any]) -> None:
    """A journal tells us to move and delete files: one from a stranger must not reach beyond the store's own."""
    try:
        sources = [source for source, _ in plan["moves"]]
        paths = [path for _, path in plan["moves"]] + [path for path, _ in plan["touches"]] + plan["removals"]
        first, ids = plan.get("order") or (1, [])
        sound = (
            all(_within(path, layout.CONTENT) for path in paths)
            and all(_within(source, (layout.STAGED,)) for source in sources)
            and isinstance(first, int)
            and first > 0
            and all(_ID.fullmatch(id_) for id_ in ids)
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        sound = False
    if not sound:
        raise _not_ours("names files that are not the store's own")


def _not_ours(why: str) -> CorruptError:
    return CorruptError(
        f"the journal {why}: it was not written by holdfast. "
        "Move the file 'journal' away to open the store without the commit it stands for"
    )


def _within(path: str, folders: tuple[str, ...]) -> bool:
    first, *rest = path.split("/")
    return first in folders and bool(rest) and not any(part in ("", ".", "..") for part in rest) and "\0" not in path
