"""The content of a journal: moves, touches and removals of one commit, and the entries of `order`.

A journal is data from outside. Every name in it must be one that `layout.py` makes, and no path may
be in it twice; anything else is `CorruptError` before any of it is done.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from holdfast.backends.files import envelope, layout
from holdfast.errors import CorruptError

_ID = re.compile(f"[0-9a-f]{{{2 * layout.ID_BYTES}}}")
_KEYS = {"moves", "touches", "removals"}
_LATEST_US = (2**63 - 1) // 1000  # the latest time that a file can have


class JournalPlan(NamedTuple):
    moves: list[tuple[str, str]]  # staged file, path
    touches: list[tuple[str, int]]  # path, time in µs
    removals: list[str]
    first: int = 0  # position of the first of `ids`
    ids: tuple[bytes, ...] = ()  # new records, in their order

    def pack(self) -> bytes:
        """Return the bytes of the journal."""
        plan: dict[str, Any] = {"moves": self.moves, "touches": self.touches, "removals": self.removals}
        if self.ids:
            plan["order"] = [self.first, [id_.hex() for id_ in self.ids]]
        return envelope.wrap("journal", plan)


def read_plan(raw: bytes) -> JournalPlan:
    """Return the plan of a journal; raise `CorruptError` for anything that no commit can have written."""
    fields, _ = envelope.unwrap("journal", raw, layout.JOURNAL)
    try:
        plan = _parse(fields)
    except (KeyError, TypeError, ValueError):
        plan = None
    if plan is None or not _is_ours(plan):
        raise make_foreign_error("names files that are not the store's own")
    return plan


def make_foreign_error(why: str) -> CorruptError:
    return CorruptError(
        f"the journal {why}: it was not written by holdfast, and nothing of it was done. "
        "Move the file 'journal' away to open the store without the commit it stands for"
    )


def _parse(fields: dict[str, Any]) -> JournalPlan | None:
    if not _KEYS <= fields.keys() <= _KEYS | {"order"} or any(type(fields[key]) is not list for key in _KEYS):
        return None
    moves = [(source, path) for source, path in fields["moves"]]
    touches = [(path, time_us) for path, time_us in fields["touches"]]
    removals = list(fields["removals"])
    texts = [*(part for move in moves for part in move), *(path for path, _ in touches), *removals]
    if any(type(text) is not str for text in texts) or any(type(time_us) is not int for _, time_us in touches):
        return None
    if fields.get("order") is None:
        return JournalPlan(moves, touches, removals)
    first, ids = fields["order"]
    if (
        type(first) is not int
        or first < 1
        or not ids
        or not all(type(id_) is str and _ID.fullmatch(id_) for id_ in ids)
    ):
        return None
    return JournalPlan(moves, touches, removals, first, tuple(map(bytes.fromhex, ids)))


def _is_ours(plan: JournalPlan) -> bool:
    sources = [source for source, _ in plan.moves]
    paths = [*(path for _, path in plan.moves), *(path for path, _ in plan.touches), *plan.removals]
    return (
        all(map(layout.is_staged_path, sources))
        and all(map(layout.is_content_path, paths))
        and all(layout.is_blob_path(path) and 0 <= time_us <= _LATEST_US for path, time_us in plan.touches)
        and len({*sources}) == len(sources)
        and len({*paths}) == len(paths)
    )
