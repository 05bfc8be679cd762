"""Events: a new checkpoint or handoff, and the cursor to continue from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint

START = "start"  # the cursor before everything

_TEXT = re.compile(r"([0-9]{1,19})(?:-([0-9a-f]{8}))?")


class Cursor(NamedTuple):
    """A position between two events. To callers it is an opaque text.

    `ending` is the end of the id of the record at that position, if it is known: it tells a cursor
    of this store from one of another.
    """

    position: int
    ending: str | None = None

    @classmethod
    def of(cls, position: int, id_: bytes) -> Cursor:
        return cls(position, id_.hex()[-8:])

    @classmethod
    def from_text(cls, text: Any) -> Cursor:
        if text == START:
            return cls(0)
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise UsageError(
                f"{text!r:.60} is no cursor: give the `cursor` of an event as it is, {START!r} for all events from the "
                "first one on, or nothing for those from now on"
            )
        return cls(int(found[1]), found[2])

    @property
    def text(self) -> str:
        return f"{self.position}-{self.ending}" if self.ending else str(self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A saved `checkpoint`, without its state, a `handoff` to another agent, or a `message` to a topic.

    Reading on from `cursor` returns the events after it.
    """

    kind: Literal["checkpoint", "handoff", "message"]
    checkpoint: Checkpoint
    cursor: str
    topic: str | None = None

    def __repr__(self) -> str:
        return f"<Event {self.kind} {self.cursor} {self.checkpoint!r}>"
