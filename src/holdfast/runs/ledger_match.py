"""The match of a call with its ledger entry, and the possible duplicates of a call.

A call matches the entry that was made at the same place; or else the first one of the same tool and
identity, unless that was made under another key, in another task or by another sub-agent (rule 9 of
`call_sites.py`).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.backends import fork_safety
from holdfast.errors import EffectBlockedError, UnsupportedValueError
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.format.state import run_journal
from holdfast.format.state.run_journal import CARRIED_OUT, EFFECT, OK, STEP, TASK, TRACE, JournalRecord, RunJournal
from holdfast.model import effect, ids
from holdfast.model.effect import HAPPENED, EffectKind, EffectState
from holdfast.model.task import TaskStatus
from holdfast.operations import ledger, lineage
from holdfast.runs.call_sites import (
    are_for_other_messages,
    are_two,
    has_key,
    is_same_key,
    key_of,
    may_be_same_call,
    named_key,
    scope,
)

if TYPE_CHECKING:
    from holdfast.runs.call_sites import EffectCall
    from holdfast.runs.engine import RunEngine


class EffectIndex:
    """An index of the tree's effects: recorded, in the ledger, and requested by the program.

    A resumed program runs from the top and requests the same effects as before. A recorded effect
    that it has not requested yet is *unclaimed*: a call for another one may be a call for that,
    with other arguments. Threads may share it.
    """

    def __init__(self, recorded: RunJournal | None = None) -> None:
        # -- of this line of execution
        self.on_path: set[bytes] = set()  # effects that it has a record of
        self.in_flight: set[bytes] = set()
        self._requested_places: set[str] = set()  # places of effects that this life has requested
        self._reached: set[str] = set()  # paths that it has come by: of steps, lists of tasks, sub-agents
        self._recorded: defaultdict[bytes, dict[str, bytes]] = defaultdict(dict)  # of earlier lives, by identity
        self._unclaimed: defaultdict[str, dict[str, bytes]] = defaultdict(dict)  # by tool: places and ids
        self._under_key: defaultdict[str, list[str]] = defaultdict(list)  # places by name and key
        # Finished paths, whose calls are not made again unless the path is begun; and the effects
        # in them.
        self._finished: set[str] = set()
        self._resting: defaultdict[str, list[JournalRecord]] = defaultdict(list)
        # -- of the ledger, on all branches
        self.foreign: dict[bytes, LedgerEntry] | None = None  # not requested when the ledger was read; None before that
        self.is_continued: dict[tuple[bytes | None, int | None], bool] = {}  # see `is_of_this_line`
        self._ordinals: defaultdict[tuple[str, bytes], dict[str, int]] = defaultdict(dict)  # by tool and identity
        self._in_ledger: defaultdict[tuple[str, bytes], dict[int, str | None]] = defaultdict(
            dict
        )  # ordinals and places
        self._keys_in_ledger: defaultdict[tuple[str, str], dict[bytes, str]] = defaultdict(dict)  # by tool and key
        self._make_lock()
        fork_safety.begin_again_in_child(self, EffectIndex._make_lock)
        if recorded is not None:
            self._add_all(recorded)

    def _make_lock(self) -> None:
        """Make the lock, again in a forked child: another thread of its parent may have held it."""
        self._lock = threading.Lock()

    def _add_all(self, recorded: RunJournal) -> None:
        # Most records are of steps, and a long session has many: no object is made for each of them.
        self._finished = {f"{entry[0]}/" for entry in recorded.last() if entry[1] == STEP and entry[2] in CARRIED_OUT}
        others = [JournalRecord(*entry) for entry in recorded.last() if entry[1] != STEP]
        self._finished |= {path for path in map(_finished_path, others) if path is not None}
        for record in others:
            if record.kind != EFFECT:
                continue
            self.on_path.add(record.about[0])
            if record.status in CARRIED_OUT:
                self.note_record(record)
                _, tool, digest, ordinal, *requested = record.about
                self._ordinals[tool, digest][record.place] = ordinal
                self._recorded[digest][record.place] = record.about[0]
                if requested:
                    self._ordinals[tool, requested[0]][record.place] = requested[1]
                    self._recorded[requested[0]][record.place] = record.about[0]
                self._rest_or_wait(record)

    def _rest_or_wait(self, record: JournalRecord) -> None:
        """Add an effect that was not requested again: to its finished path, or else to the unclaimed ones."""
        around = next((path for path in _enclosing_paths(record.place) if path in self._finished), None)
        if around is not None:
            self._resting[around].append(record)
        else:
            self._unclaimed[record.about[1]][record.place] = record.about[0]

    def note_record(self, record: JournalRecord) -> None:
        """Note that an effect is recorded as done."""
        if has_key(record.place):
            self._under_key[named_key(record.place)].append(record.place)

    def other_under_key(self, name: str, place: str) -> str | None:
        """Return the place of another effect of that name and key, in the same task and sub-agent."""
        if not has_key(place):
            return None
        found = self._under_key.get(f"{run_journal.part(name)}#{key_of(place)}", ())
        return next((at for at in found if at != place and scope(at) == scope(place)), None)

    def note_path(self, path: str) -> None:
        """Note that the program has reached a step, a list of tasks or a sub-agent."""
        self._reached.add(path)

    def claim(self, tool: str, place: str) -> None:
        """Note that the program asks for the effect at that place."""
        self._requested_places.add(place)
        if tool in self._unclaimed:
            with self._lock:
                self._unclaimed[tool].pop(place, None)

    def unclaim(self, tool: str, place: str, id_: bytes) -> None:
        """Note that an effect's result reached no caller: the program will ask for it again."""
        with self._lock:
            self._unclaimed[tool][place] = id_

    def expect_calls_in(self, path: str) -> None:
        """Note that a task or sub-agent is begun: the program asks again for its effects."""
        with self._lock:
            if path in self._finished:
                self._finished.discard(path)
                for record in self._resting.pop(path, ()):
                    self._rest_or_wait(record)

    def pass_over(self, path: str) -> None:
        """Note that the program skips a finished sub-agent: it does not ask again for its effects."""
        with self._lock:
            self._finished.add(path)
            for unclaimed in self._unclaimed.values():
                for place in [item for item in unclaimed if item.startswith(path)]:
                    del unclaimed[place]

    def abandon(self, path: str, entries: Sequence[list[Any]], *, with_threads: bool = False) -> None:
        """Note that a path has failed, or is run again: the program will ask again for the effects in it.

        They are those among the records `entries`. With `with_threads`, so are effects of threads
        that it may have started, whose calls have no frame.
        """
        records = [JournalRecord(*entry) for entry in entries if entry[0].startswith(path) or entry[1] == EFFECT]
        with self._lock:
            self._finished |= {item for item in map(_finished_path, records) if item is not None}
            for record in records:
                is_inside = record.place.startswith(path) or (with_threads and record.place.count("/") == 1)
                if is_inside and record.kind == EFFECT and record.status == OK:
                    self._rest_or_wait(record)

    def is_accounted_for(self, at: str) -> bool:
        """Return whether this life has requested the effect at that place, or passed it over as finished.

        A task or sub-agent that runs again must ask for its effects: what it does not ask for may
        have been renamed.
        """
        return at in self._requested_places or (
            self._is_reached(at) and any(path in self._finished for path in _enclosing_paths(at))
        )

    def _is_reached(self, at: str) -> bool:
        return any(path in self._reached for path in _enclosing_paths(at))

    def are_two(self, at: str, place: str) -> bool:
        """Return whether calls at two places are certainly two effects.

        Those of two lists of tasks are, if this life has reached the first: otherwise the list may
        have been renamed.
        """
        return are_two(at, place) or self.is_elsewhere(at, place)

    def is_elsewhere(self, at: str, place: str) -> bool:
        """Return whether two calls are in other tasks or sub-agents, and this life has reached the first."""
        return scope(at) != scope(place) and (at in self._requested_places or self._is_reached(at))

    def find_unasked(self, digest: bytes, place: str) -> list[bytes]:
        """Return the recorded effects of that identity that this life has neither requested nor reached."""
        found = self._recorded.get(digest, {})
        return [id_ for at, id_ in found.items() if not self.is_accounted_for(at) and not are_two(at, place)]

    def unclaimed_ids(self) -> set[bytes]:
        with self._lock:
            return {id_ for of_tool in self._unclaimed.values() for id_ in of_tool.values()}

    def unclaimed_of(self, tool: str) -> Mapping[bytes, str]:
        """Return the unclaimed effects of that tool, and their places."""
        with self._lock:
            return {id_: place for place, id_ in self._unclaimed[tool].items()} if tool in self._unclaimed else {}

    def assign_ordinal(self, tool: str, digest: bytes, place: str, *, is_named: bool = True) -> int:
        """Return which of the effects of that tool and identity the call at that place is for.

        It is the one that was made there, or else the lowest free number. A number is free if this
        line of execution has no record of it, and no other call has it that is another for sure.
        With `is_named` False the place makes no difference. The same key in the same task and
        sub-agent is the same effect.
        """
        with self._lock:
            taken, made_at = self._ordinals[tool, digest], self._in_ledger.get((tool, digest), {})
            if place not in taken:
                used = set(taken.values())
                at_key = [n for at, n in taken.items() if is_named and is_same_key(at, place)]
                own = [number for number, at in made_at.items() if is_named and at == place and number not in used]
                others = {
                    number for number, at in made_at.items() if is_named and at is not None and self.are_two(at, place)
                }
                free = (n for n in count() if n not in used and n not in others)
                taken[place] = min(at_key or own) if at_key or own else next(free)
            return taken[place]

    def forget_ordinal(self, place: str, tool: str, digests: Iterable[bytes]) -> None:
        """Free the ordinal: the next call for an equal effect gets it."""
        with self._lock:
            for digest in digests:
                self._ordinals[tool, digest].pop(place, None)

    def take_entry(self, entry: LedgerEntry, place: str) -> None:
        """Note that the call at that place is for this entry."""
        with self._lock:
            self._ordinals[entry.tool, entry.identity][place] = entry.ordinal

    def note_entry(self, entry: LedgerEntry) -> None:
        """Note that the ledger has this entry, on any branch."""
        with self._lock:
            self._in_ledger[entry.tool, entry.identity][entry.ordinal] = entry.place
            if entry.place is not None and (key := key_of(entry.place)) is not None:
                self._keys_in_ledger[entry.tool, key][entry.identity] = entry.place

    def is_in_ledger(self, tool: str, digest: bytes) -> bool:
        return (tool, digest) in self._in_ledger

    def identities_under_key(self, tool: str, place: str) -> list[bytes]:
        """Return the identities under a key: in older entries the arguments are the identity."""
        found = self._keys_in_ledger.get((tool, key_of(place) or ""), {})
        return [digest for digest, at in found.items() if not self.are_two(at, place)]


def _finished_path(record: JournalRecord) -> str | None:
    """Return the path that a record finishes: its calls are not made again."""
    if record.kind in (STEP, EFFECT):
        return f"{record.place}/" if record.status in CARRIED_OUT else None
    if record.kind == TASK:
        return f"{record.place}/" if TaskStatus(record.about[0]).is_over else None
    return record.place.removesuffix("trace") if record.kind == TRACE and record.status == OK else None


def _enclosing_paths(place: str) -> Iterable[str]:
    """Return the paths around a place."""
    return (place[: at + 1] for at, sign in enumerate(place) if sign == "/")


async def match_entry(core: RunEngine, call: EffectCall) -> tuple[bytes, LedgerEntry | None]:
    """Return the id of the effect that the call is for, and its entry.

    The call gets its ordinal and, if an earlier version knew it otherwise, the name and identity of
    the entry.
    """
    await load_ledger(core)
    found = await _match(core, call, call.tool, call.digest)
    formers = _former_identities(core, call)
    if found[1] is not None or not formers:
        return found
    for tool, digest in formers:
        before = await _match(core, call, tool, digest)
        if before[1] is not None:
            call.tool, call.digest = tool, digest
            return before
        core.index.forget_ordinal(call.place, tool, (digest,))
    return await _match(core, call, call.tool, call.digest)


async def _match(core: RunEngine, call: EffectCall, tool: str, digest: bytes) -> tuple[bytes, LedgerEntry | None]:
    index = core.index
    while True:
        call.ordinal = index.assign_ordinal(tool, digest, call.place, is_named=call.is_named)
        id_ = effect.effect_id(core.tree, tool, digest, call.ordinal)
        entry = await ledger.find(core.ctx, id_, core.tree)
        if entry is None or not is_of_another(core, entry, call):
            return id_, entry
        index.note_entry(entry)  # another run of the tree was there first
        index.forget_ordinal(call.place, tool, (digest,))


def _former_identities(core: RunEngine, call: EffectCall) -> list[tuple[str, bytes]]:
    """Return the former identities of a call that the ledger has.

    It is read once in a run: older versions write no more entries.
    """
    index = core.index
    found = [(former.tool, former.digest) for former in call.formers]
    if call.key is not None:
        for tool in dict.fromkeys((call.name, *(former.tool for former in call.formers))):
            found += [(tool, digest) for digest in index.identities_under_key(tool, call.place)]
    own = (call.tool, call.digest)
    return [item for item in dict.fromkeys(found) if item != own and index.is_in_ledger(*item)]


def is_of_another(core: RunEngine, entry: LedgerEntry, call: EffectCall) -> bool:
    """Return whether the entry is certainly another call's, despite the same tool and identity."""
    return call.is_named and entry.place is not None and core.index.are_two(entry.place, call.place)


async def is_of_this_line(core: RunEngine, entry: LedgerEntry) -> bool:
    """Return whether the session was not rolled back, forked or replayed since the entry was made."""
    if entry.session != core.options.session_id or entry.rolled_back:
        return False
    if entry.token == core.lease.token:
        return True
    tip, sequence = core.opened_at
    stood_at = (entry.anchor, entry.sequence)
    if stood_at not in core.index.is_continued:  # once: no rollback moves a session that is leased
        core.index.is_continued[stood_at] = await lineage.has_only_gone_on(
            core.ctx,
            core.tree,
            entry.session,
            anchor=entry.anchor,
            since=entry.sequence,
            tip=tip,
            sequence=sequence,
        )
    return core.index.is_continued[stood_at]


async def load_ledger(core: RunEngine) -> None:
    """Read the ledger's entries of the tree, once in a run."""
    if core.index.foreign is not None:
        return
    of_tree = await ledger.load_entries(core.ctx, core.tree)
    with core.lock:
        if core.index.foreign is None:
            known = core.index.on_path - core.index.unclaimed_ids()
            core.index.foreign = {
                ledger_entry.id: ledger_entry for ledger_entry in of_tree if ledger_entry.id not in known
            }
            for ledger_entry in of_tree:
                core.index.note_entry(ledger_entry)


# -- possible duplicates ----------------------------------------------------------------------------------------------


class Reason(StrEnum):
    """Why an effect is a possible duplicate, as the error words it."""

    BRANCH = "was carried out (or may have been) on another branch or before a rollback,"
    IN_DOUBT = (
        "was started at the same place of the program, and whether it was carried out is not known (there was no "
        "rollback: the program crashed, or the call failed),"
    )
    NOT_ASKED = (
        "this session has carried out, and the program has not asked for again since it was resumed or tried again,"
    )
    RENAMED = (
        "was carried out (or may have been) under another name or in another list of tasks, and the program has not "
        "asked for it in this life,"
    )


class PossibleDuplicate(NamedTuple):
    """An effect that a call may repeat, and why."""

    entry: LedgerEntry
    reason: Reason


async def possible_duplicates(core: RunEngine, call: EffectCall, entry: LedgerEntry | None) -> list[PossibleDuplicate]:
    """Return the effects that the call may repeat.

    `entry` is the call's own: if that says that it was carried out, or may have been, `decide` has
    decided about it.
    """
    is_new = entry is None or entry.state is EffectState.FAILED
    if call.kind is not EffectKind.IRREVERSIBLE or call.is_new_decision or not is_new:
        return []
    await load_ledger(core)
    assert core.index.foreign is not None
    unclaimed = core.index.unclaimed_of(call.tool)
    moved = {id_ for digest in call.identities for id_ in core.index.find_unasked(digest, call.place)}
    for id_ in (
        unclaimed.keys() | moved
    ) - core.index.foreign.keys():  # of an attempt that has failed since, or passed over
        if (found := await ledger.find(core.ctx, id_, core.tree)) is not None:
            core.index.foreign[id_] = found
    duplicates = []
    for ledger_entry in list(core.index.foreign.values()):
        reason = await _reason(
            core, call, entry, ledger_entry, unclaimed.get(ledger_entry.id), is_moved=ledger_entry.id in moved
        )
        if reason is None:
            continue
        now = await ledger.find(core.ctx, ledger_entry.id, core.tree)  # a person may have decided about it since
        if now is not None and now.state in HAPPENED and not now.acknowledged:
            duplicates.append(PossibleDuplicate(now, reason))
        else:
            core.index.foreign.pop(ledger_entry.id, None)
    return duplicates


async def _reason(
    core: RunEngine,
    call: EffectCall,
    own: LedgerEntry | None,
    entry: LedgerEntry,
    unclaimed_at: str | None,
    *,
    is_moved: bool,
) -> Reason | None:
    """Return why that effect could be the call's; None if it could not.

    `own` is the call's entry, which says that it was certainly not carried out.
    """
    if entry.kind is not EffectKind.IRREVERSIBLE or entry.state not in HAPPENED or entry.id in core.index.in_flight:
        return None
    if entry.tool != call.tool:
        return Reason.RENAMED if _is_renamed(core, call, entry, is_moved=is_moved) else None
    if entry.id in core.index.on_path:
        if unclaimed_at is not None and _may_be_call(call, entry, unclaimed_at, is_in_doubt=False):
            return Reason.NOT_ASKED
        return Reason.RENAMED if is_moved else None
    if entry.place is not None and are_for_other_messages(entry.place, call.place):
        return None
    if not await is_of_this_line(core, entry):
        return Reason.BRANCH
    if own is not None and (own.tool, own.identity) == (entry.tool, entry.identity):
        return None  # an equal call that was made beside it: each has an entry of its own
    if entry.place is not None and core.index.is_elsewhere(entry.place, call.place):
        return None
    return Reason.IN_DOUBT if _may_be_call(call, entry, entry.place, is_in_doubt=True) else None


def _may_be_call(call: EffectCall, entry: LedgerEntry, at: str | None, *, is_in_doubt: bool) -> bool:
    """Return whether an effect of the same tool, made on this line at that place, could be the call's."""
    if call.is_declared and entry.declared:
        return False  # their identities differ, and the program has declared them
    is_alike = entry.loose in call.loose
    if at is None:
        return is_alike
    return may_be_same_call(call.place, at, is_alike=is_alike, for_any_agent=is_in_doubt)


def _is_renamed(core: RunEngine, call: EffectCall, entry: LedgerEntry, *, is_moved: bool) -> bool:
    """Return whether the effect may be the call's, under another name.

    It calls the same function for the same identity, and this life has not requested it.
    """
    if entry.function is None or entry.function != call.function or entry.identity not in call.identities:
        return False
    if call.key is not None and core.ctx.codec.decode(entry.arguments) != call.arguments:
        return False  # one function does several things for one order: the key is the same, the arguments are not
    if entry.id in core.index.on_path:
        return is_moved
    at = entry.place
    return at is None or not (core.index.is_accounted_for(at) or are_two(at, call.place))


def duplicate_error(core: RunEngine, call: EffectCall, duplicates: list[PossibleDuplicate]) -> EffectBlockedError:
    codec = core.ctx.codec
    equal = [
        duplicate
        for duplicate in duplicates
        if duplicate.entry.identity in call.identities or _has_same_arguments(core, call, duplicate)
    ]
    alike = [duplicate for duplicate in duplicates if duplicate.entry.loose in call.loose]
    first, reason = (equal or alike or duplicates)[0]
    how = "has other arguments"
    if equal or alike:
        how = "has the same arguments" if equal else "differs only in what is new in every call"
    name = "" if first.tool == call.name else f" ({first.tool!r:.60})"
    short = ids.short(ids.to_text(first.id))
    remedy = "key=... says which effect a call is"
    if reason is Reason.RENAMED:
        remedy = (
            f"If it was renamed, was={first.tool!r:.60} (of an effect) or was= (of tasks) says so. Otherwise {remedy}"
        )
    return EffectBlockedError(
        f"effect {call.name!r:.60} is irreversible, and one{name} that {reason} {how}: {ids.to_text(first.id)}. This "
        f"call is a possible duplicate of it, so it is not carried out. Look at both; then `holdfast resolve {short} "
        f"--acknowledge` lets this one go on. {remedy}",
        tuple(duplicate.entry.effect(codec) for duplicate in duplicates),
    )


def _has_same_arguments(core: RunEngine, call: EffectCall, duplicate: PossibleDuplicate) -> bool:
    try:
        return duplicate.entry.arguments == core.ctx.codec.encode(dict(call.arguments), "arguments")
    except UnsupportedValueError:
        return False
