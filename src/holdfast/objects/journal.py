"""The journal of a run: what its steps, effects, tasks and sub-agents came to, as a list that only grows.

It is part of the session's checkpoints, under a key of the agent's context. So a rollback takes it back with the state, a
fork takes it along, and since the list only grows a save writes the new records only. Results are kept encoded: what a
program does with a result that it was given changes nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.errors import CorruptError, NewerVersionError, UsageError
from holdfast.model.runs import JOURNAL_KEY

KEY = JOURNAL_KEY
VERSION = 2
FLAT = 1
"""In the first version, what was asked for inside of a step or a task was known by the run alone. Such a journal is gone on with as it is."""
STEP, EFFECT, TASK, TRACE = "step", "effect", "task", "trace"
OK, FAILED, REOPENED = "ok", "failed", "reopened"


class Record(NamedTuple):
    """One thing that happened: where in the program, what kind of thing, how it ended, and an encoded value or failure.

    `place` names the path of sub-agents, the name and the occurrence. Of several records of a place the last one counts.
    `REOPENED` says that the failure before it ended the run: it is not raised again, but tried again.
    """

    place: str
    kind: str
    status: str
    payload: bytes
    attempts: int
    started_us: int
    ended_us: int
    # Of an effect: id, tool, digest of its identity, ordinal and, if it was approved with other arguments, the digest and the
    # ordinal of what was asked for; of a step: a digest of its arguments; of a task: its status and a note.
    about: list[Any]


class Journal:
    """The records of a run, and which of them are saved."""

    def __init__(self, stored: list[list[Any]] | None = None, version: int = VERSION) -> None:
        self.version = version
        self.entries: list[list[Any]] = stored if stored is not None else []
        self._last = {entry[0]: entry for entry in self.entries}
        self.saved = len(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Record]:
        """The records that count, in the order in which their places first came up."""
        return (Record(*entry) for entry in list(self._last.values()))

    def get(self, place: str) -> Record | None:
        found = self._last.get(place)
        return Record(*found) if found is not None else None

    def add(self, record: Record) -> int:
        """Returns how many there are then: once as many are saved, this one is."""
        entry = list(record)
        self.entries.append(entry)
        self._last[record.place] = entry
        return len(self.entries)


STEPS = "steps"
PATH = ("agent_context", KEY, STEPS)
"""Where a checkpoint has the journal's records."""


def own_part(version: int, tools: dict[str, str]) -> dict[str, Any]:
    """What a run has in the context beside the records."""
    return {"v": version, "tools": tools}


def into_context(
    context: dict[str, Any], version: int, journal: list[list[Any]] | None, tools: dict[str, str]
) -> dict[str, Any]:
    """The agent's context with the run's own part in it; without the records, where these are declared as an append."""
    own = own_part(version, tools)
    return {**context, KEY: own if journal is None else {**own, STEPS: journal}}


def from_context(context: Any, what: str) -> tuple[dict[str, Any], Journal, dict[str, str]]:
    """The developer's context, the journal and the tools' hashes of a checkpoint; empty ones, if no run made it."""
    if not isinstance(context, dict):
        raise UsageError(
            f"the agent_context of {what} is a {type(context).__name__}: a run keeps its journal in it, so it must be a "
            "dict. Save it once as a dict, then go on"
        )
    own = dict(context)
    kept = own.pop(KEY, None)
    if kept is None:
        return own, Journal(), {}
    check(kept, what)
    return own, Journal(kept["steps"], kept["v"]), dict(kept["tools"])


def check(kept: Any, what: str) -> None:
    """Raises if the run's part of a context can't be gone on from."""
    if not isinstance(kept, dict) or not isinstance(kept.get("v"), int):
        raise CorruptError(f"the journal in {what} is none: something else was saved under {KEY!r}")
    if kept["v"] > VERSION:
        raise NewerVersionError(
            f"the journal in {what} has version {kept['v']}, and this holdfast knows version {VERSION}: a newer holdfast "
            "has saved it. Upgrade to go on; nothing was changed"
        )


def check_context(context: Any, what: str) -> None:
    """Raises if there is a run's part in a context, and it can't be gone on from."""
    if isinstance(context, dict) and KEY in context:
        check(context[KEY], what)


def part(name: str) -> str:
    """A name as part of a place: no two places read the same."""
    return name.replace("%", "%25").replace("/", "%2F").replace("#", "%23").replace("!", "%21")


def name_of(place: str) -> str:
    """The name that a place was made from."""
    name = place.rpartition("/")[2].partition("#")[0]
    for sign in "!#/%":
        name = name.replace(f"%{ord(sign):02X}", sign)
    return name
