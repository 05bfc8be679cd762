"""The files of a large restore are made by several processes: the one that restores, and workers beside it.

Workers make new files in directories that nobody sees yet, and nothing else: all that can meet somebody else's file, and all that
comes in an order, the restore does itself. While they work there is a file in the root which is locked through a descriptor that
they have, too. If the process that restores is killed, whoever finishes the restore or takes it back can tell by this lock when the
last of them has ended (`is_at_work`), and touches nothing before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.model.restore_plan import Action
from holdfast.workspace import filling
from holdfast.workspace.apply import Applier
from holdfast.workspace.guards import TEMPORARY

if TYPE_CHECKING:
    from typing import Self

    from holdfast.workspace.workers import Outcome, Workers

# Below both, one process is through before another one has started.
LEAST_FILES = 3000
LEAST_BYTES = 48_000_000


class Sharing:
    """Hands files to workers. There are none for a small restore, nor where they can't be had: then it has no room for any."""

    def __init__(self, applier: Applier, actions: Sequence[Action], most_files: int, most_bytes: int) -> None:
        """At most so many files, and so many bytes of them, are handed over together."""
        self._applier = applier
        self._lock: int | None = None
        self._workers: Workers[list[Action]] | None = None
        sizes = [
            action.after.size
            for action in actions
            if action.doing == "create" and action.after is not None and action.after.is_one_blob
        ]
        self.is_worth_it = is_large(sizes)  # to make a large restore of it, with all that goes on beside one
        if not self.is_worth_it:
            return
        from holdfast.workspace import workers

        count = workers.worth_starting(max(len(sizes) // most_files, sum(sizes) // most_bytes))
        self._lock = _locked(applier.root, applier.token) if count else None
        if self._lock is None:
            return
        try:
            self._workers = workers.Workers(filling, None, [applier.root, self._lock], count)
        except BaseException:
            self._unlock()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._workers is not None:
                self._workers.close()
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            with suppress(FileNotFoundError):
                os.unlink(_name(self._applier.token), dir_fd=self._applier.root)
            os.close(self._lock)
            self._lock = None

    @property
    def is_on(self) -> bool:
        """Whether there are, or were, workers."""
        return self._workers is not None

    def has_room_for(self, portion: Sequence[Action]) -> bool:
        """Whether it can be handed over, and somebody is there who takes it."""
        return (
            self._workers is not None
            and self._workers.has_room
            and all(
                doing == "create"
                and after is not None
                and after.kind == "file"
                and not after.is_chunked
                and self._applier.place_of_own(path) is not None
                for doing, path, _, after in portion
            )
        )

    def give(self, portion: list[Action], frames: Mapping[bytes, bytes]) -> bool:
        """Hands files over, with their contents as the store has them; False if nobody takes them any more."""
        numbers = {hash_: number for number, hash_ in enumerate(frames)}
        places: dict[bytes, int] = {}
        files: list[filling.File] = []
        for _, path, _, after in portion:
            place = self._applier.place_of_own(path)
            assert place is not None
            assert after is not None
            _, _, mode, size, content = after
            of_place = places.setdefault(place, len(places))
            files.append((of_place, path.rpartition(b"/")[2], mode, size, numbers[content] if size else -1))
        request: filling.Request = (list(frames.items()), list(places), files)
        return self._workers is not None and self._workers.take(request, portion)

    def finished(self) -> list[Outcome[list[Action]]]:
        """What is done by now, and what was lost."""
        return [] if self._workers is None else [self._noted(one) for one in self._workers.finished()]

    def rest(self) -> list[Outcome[list[Action]]]:
        """The same for all that is still under way. It waits."""
        return [] if self._workers is None else [self._noted(one) for one in self._workers.rest()]

    def _noted(self, outcome: Outcome[list[Action]]) -> Outcome[list[Action]]:
        """What a worker had begun is removed if it was lost, so that it can be made again."""
        if outcome.is_done:
            for action, written in zip(outcome.portion, outcome.answer, strict=True):
                self._applier.note_written(action[1], tuple(written))
        else:
            for action in outcome.portion:
                self._applier.clear(action[1])
        return outcome


def is_large(sizes: Sequence[int]) -> bool:
    return len(sizes) >= LEAST_FILES or sum(sizes) >= LEAST_BYTES


def _name(token: str) -> bytes:
    return TEMPORARY + token.encode() + b"-at-work"


def _locked(root: int, token: str) -> int | None:
    """A new file in the root, locked; None where that can't be done."""
    import fcntl

    lock = os.open(_name(token), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.unlink(_name(token), dir_fd=root)
        os.close(lock)
        return None
    return lock


def is_at_work(root: int, token: str) -> bool:
    """Whether a worker of a restore is still there. If not, what told so is removed."""
    try:
        lock = os.open(_name(token), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except FileNotFoundError:
        return False
    try:
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        os.unlink(_name(token), dir_fd=root)
        return False
    finally:
        os.close(lock)
