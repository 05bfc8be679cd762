"""Texts of a result that the turn has recorded as answers: only their places are stored.

Records stay in the journal. So a text is found there, whatever later turns do to the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.format.state.run_journal import EFFECT, OK, STEP, JournalRecord, RunJournal

SHORTEST = 64  # characters: a place takes about half of that


class RecordedTexts:
    """The texts that the journal of a run has from record `first` on.

    A place is the number of a record, and the path within its value.
    """

    def __init__(self, journal: RunJournal, codec: Codec, first: int = 0) -> None:
        self._journal = journal
        self._codec = codec
        self._first = first

    def find(self, text: Any) -> list[Any] | None:
        """Return the place of a long text; None if it is short, or no text, or not recorded."""
        if not isinstance(text, str) or len(text) < SHORTEST:
            return None
        for number in reversed(range(self._first, len(self._journal))):
            record = JournalRecord(*self._journal.entries[number])
            if record.kind in (STEP, EFFECT) and record.status == OK:
                path = next(_find_paths(text, self._codec.decode(record.payload)), None)
                if path is not None:
                    return [number, *path]
        return None

    def get(self, place: Sequence[Any]) -> Any:
        """Return the text at a place that was found; raise an error of Python's if there is none."""
        record = JournalRecord(*self._journal.entries[place[0]])
        return follow(self._codec.decode(record.payload), place[1:])


NO_TEXTS = RecordedTexts(RunJournal(), Codec())


def follow(value: Any, path: Sequence[Any]) -> Any:
    """Return the part of plain data at a path of keys and indexes."""
    for key in path:
        value = value[key]
    return value


def _find_paths(text: str, value: Any) -> Iterator[list[Any]]:
    if value == text:
        yield []
    elif isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from ([key, *path] for path in _find_paths(text, item))
