"""The syntax of references to checkpoints. Pure: possible meanings of a text, not stored facts.

    SESSION@            the head of the session; with nothing before the @, of the session saved to last
    SESSION@-           the parent of that, SESSION@-- the one above, SESSION@~3 three up
    SESSION@{12}        the newest of its line at step 12
    SESSION@{plan}      the newest of its line whose step has that name
    SESSION@{2026-11-16 10:30}   the newest of its line at that time (UTC, unless it says otherwise)

Before the @ there may also be an id, the end of one, or a tag, with the line of that checkpoint. A
session may have an @ in its name: so the whole text is looked up first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast.model.checkpoint import Checkpoint

_PLACE = re.compile(r"(?P<base>.*)@(?:(?P<dashes>-*)|~(?P<up>\d{1,9})|\{(?P<named>.+)\})", re.DOTALL)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)?(?:Z|[+-]\d{2}:?\d{2})?")


class RelativeRef(NamedTuple):
    """A position on the line of descent that ends at `base`.

    It is `up` checkpoints above its end, or the newest that is `named` (a step's number, a step's
    name, a date).
    """

    base: str
    up: int = 0
    named: str | None = None


def parse(ref: str) -> RelativeRef | None:
    """Return the position that a text with an @ may mean; None if it is no such text."""
    found = _PLACE.fullmatch(ref)
    if found is None:
        return None
    if found["named"] is not None:
        return RelativeRef(found["base"], named=found["named"])
    return RelativeRef(found["base"], up=int(found["up"]) if found["up"] else len(found["dashes"] or ""))


def matcher(place: RelativeRef) -> Callable[[int, Checkpoint], bool]:
    """Return whether the checkpoint with this number of its line, given newest first, is at the position.

    The first one that fits is meant.
    """
    named = place.named
    if named is None:
        return lambda number, _: number == place.up
    if named.isdecimal():
        step = int(named)
        return lambda _, checkpoint: checkpoint.step_index == step
    moment = date(named)
    if moment is not None:
        return lambda _, checkpoint: checkpoint.created_at < moment
    return lambda _, checkpoint: checkpoint.step_name == named


def date(text: str) -> datetime | None:
    """Return the first moment after a date: for `10:30` that is 10:31. None if the text is no date."""
    if not _DATE.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    clock = re.search(r"[ T](\d{2}:\d{2})(:\d{2})?(\.\d+)?", text)
    if clock is None:
        length = timedelta(days=1)
    elif clock[3]:
        length = timedelta(microseconds=1)
    else:
        length = timedelta(seconds=1) if clock[2] else timedelta(minutes=1)
    return moment + length
