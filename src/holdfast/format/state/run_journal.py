"""The journal of a run: an append-only list of what its steps, effects, tasks and sub-agents did.

It is part of the session's checkpoints, under a key of the agent's context. So a rollback takes it back with the
state, a fork copies it, and a save writes the new records only. Results are stored encoded: a program that changes
a result does not change the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.errors import CorruptError, NewerVersionError, UsageError
from holdfast.model.run_policy import JOURNAL_KEY

KEY = JOURNAL_KEY
VERSION = 2
FLAT = 1
"""In the first version, calls within a step or a task had the path of the run. Such a journal keeps that version."""
STEP, EFFECT, TASK, TRACE = "step", "effect", "task", "trace"
OK, FAILED, REOPENED, UNKEPT = "ok", "failed", "reopened", "unkept"
CARRIED_OUT = (OK, UNKEPT)


class JournalRecord(NamedTuple):
    """One record: the place in the program, the kind, the status, and an encoded value or failure.

    `place` names the path of sub-agents, the name and the occurrence. Of several records of a place the last one
    counts. `REOPENED` says that the failure before it ended the run: it is not raised again, but tried again.
    `UNKEPT` says that an effect was carried out, and that its result could not be kept.
    """

    place: str
    kind: str
    status: str
    payload: bytes
    attempts: int
    started_us: int
    ended_us: int
    # Of an effect: id, tool, digest of its identity, ordinal and, if it was approved with other arguments, the digest
    # and the ordinal of the requested call; of a step: a digest of its arguments; of a task: its status and a note.
    about: list[Any]


class RunJournal:
    """The records of a run, and how many of them are saved."""

    def __init__(self, stored: list[list[Any]] | None = None, version: int = VERSION) -> None:
        self.version = version
        self.entries: list[list[Any]] = stored if stored is not None else []
        self._last = {entry[0]: entry for entry in self.entries}
        self.saved = len(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[JournalRecord]:
        """Yield the records that count, in the order in which their places first occurred."""
        return (JournalRecord(*entry) for entry in self.last())

    def last(self) -> list[list[Any]]:
        """Return the records that count as they are stored, in the same order."""
        return list(self._last.values())

    def get(self, place: str) -> JournalRecord | None:
        found = self._last.get(place)
        return JournalRecord(*found) if found is not None else None

    def add(self, record: JournalRecord) -> int:
        """Add a record, and return its number: it is saved once that many are."""
        entry = list(record)
        self.entries.append(entry)
        self._last[record.place] = entry
        return len(self.entries)


STEPS = "steps"
_TYPES = (str, str, str, bytes, int, int, int, list)  # of the fields of a record
PATH = ("agent_context", KEY, STEPS)
"""Where a checkpoint has the journal's records."""


def own_part(version: int, tools: dict[str, str]) -> dict[str, Any]:
    """Return the run's part of the context, without the records."""
    return {"v": version, "tools": tools}


def into_context(
    context: dict[str, Any], version: int, journal: list[list[Any]] | None, tools: dict[str, str]
) -> dict[str, Any]:
    """Return the agent's context with the run's part; without the records if `journal` is None."""
    own = own_part(version, tools)
    return {**context, KEY: own if journal is None else {**own, STEPS: journal}}


def from_context(context: Any, owner: str) -> tuple[dict[str, Any], RunJournal, dict[str, str]]:
    """Return the developer's context, the journal and the tools' hashes of a checkpoint."""
    if not isinstance(context, dict):
        raise UsageError(
            f"the agent_context of {owner} is a {type(context).__name__}: a run keeps its journal in it, so it must be "
            "a dict. Save it once as a dict, then go on"
        )
    own = dict(context)
    kept = own.pop(KEY, None)
    if kept is None:
        return own, RunJournal(), {}
    check(kept, owner)
    steps, tools = kept.get(STEPS), kept.get("tools")
    if type(steps) is not list or type(tools) is not dict or not all(map(_is_record, steps)):
        raise CorruptError(f"the journal in {owner} is damaged, or something else was saved under {KEY!r}")
    return own, RunJournal(steps, kept["v"]), dict(tools)


def _is_record(entry: Any) -> bool:
    return type(entry) is list and tuple(map(type, entry)) == _TYPES


def check(kept: Any, owner: str) -> None:
    """Raise if the run's part of a context is damaged, or of a newer version."""
    if not isinstance(kept, dict) or not isinstance(kept.get("v"), int):
        raise CorruptError(f"the journal in {owner} is none: something else was saved under {KEY!r}")
    if kept["v"] > VERSION:
        raise NewerVersionError(
            f"the journal in {owner} has version {kept['v']}, and this holdfast knows version {VERSION}: a newer "
            "holdfast has saved it. Upgrade to go on; nothing was changed"
        )


def check_context(context: Any, owner: str) -> None:
    """Raise if a context has a run's part that is damaged, or of a newer version."""
    if isinstance(context, dict) and KEY in context:
        check(context[KEY], owner)


def part(name: str) -> str:
    """Return a name as part of a place, escaped so that no two places read the same."""
    return name.replace("%", "%25").replace("/", "%2F").replace("#", "%23").replace("!", "%21")


def name_of(place: str) -> str:
    """Return the name that a place was made from."""
    name = place.rpartition("/")[2].partition("#")[0]
    for sign in "!#/%":
        name = name.replace(f"%{ord(sign):02X}", sign)
    return name
