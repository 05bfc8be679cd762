"""The identity of a call: where in the program a step or effect is called, and which effect that is.

The rules, which must live in this file:

1. A call is known by its *place*: the path, the name, and the occurrence (`name#0`) or the key (`name#key!`).
2. The path is that of the step, effect or task whose function makes the call. Frames say which one that is.
   They follow context variables: into coroutines, their tasks and `asyncio.to_thread`. A thread that the
   program starts has no frame, so its calls belong to the run or the sub-agent itself.
3. The occurrence counts the calls of one path and name, in the order in which they are made, not awaited.
4. A call that ends without a result returns its occurrence: the next call of that path and name gets it.
5. When a path is run again (a retry, a failed task or sub-agent), its occurrences begin at 0.
6. An effect's identity is its key. Without a key it is the arguments: those that `identity` names, or all but
   the `volatile` ones. Arguments at their defaults are left out: a new parameter with a default changes no
   identity.
7. The name in an effect's place has the digest of its identity, so calls with other arguments do not shift
   occurrences.
8. `was=` and earlier ways to compute the digest give *former* places and identities of the same call.
9. Two places are two calls for sure if their keys differ, or if they are in other tasks of one list or in
   sub-agents with other ids. Otherwise the program may have been edited, and the same call be made elsewhere.
   Calls in turns of different messages are two on any branch: a rollback or a fork does not give them again.

Which entry of the ledger a call matches is decided in `ledger_match.py`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast.backends import fork_safety
from holdfast.errors import UnsupportedValueError, UsageError
from holdfast.format.rows import ledger as entries
from holdfast.format.state import run_journal
from holdfast.model.effect import EffectKind, OnRepeat
from holdfast.runs import call_binding, effect_options

if TYPE_CHECKING:
    from holdfast.runs.engine import RunEngine

_TURN = re.compile(r"/receive [^/]*//([0-9a-f-]{36})/")  # `/receive TOPIC GROUP//MESSAGE/`: see receive.py
_DIGEST = len("%21") + 32  # of an effect's identity, at the end of its name in a place


# -- frames: rule 2 ---------------------------------------------------------------------------------------------------


class Frame:
    """A step, effect or task that is at work; the places of calls in it begin with `path`."""

    __slots__ = ("is_over", "outer", "path", "run")

    outer: Frame | None

    def __init__(self, run: RunEngine, path: str) -> None:
        self.run = run
        self.path = path
        self.is_over = False
        outer = _inside.get()
        while outer is not None and outer.is_over:
            outer = outer.outer
        self.outer = outer


_inside: ContextVar[Frame | None] = ContextVar("holdfast_frame", default=None)


class CallFrame(Frame):
    """The frame of a step's or an effect's function: `with CallFrame(run, place + "/"):`.

    If the function raises, the effects that were carried out in it become unclaimed.
    """

    __slots__ = ("_since", "_token")

    _token: Token[Frame | None]

    def __enter__(self) -> Self:
        self._since = len(self.run.journal.entries)
        self._token = _inside.set(self)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            _inside.reset(self._token)
        except ValueError:  # an abandoned coroutine is closed in any context
            self.is_over = True
        if error is not None:
            self.run.index.abandon(self.path, self.run.journal.entries[self._since :], with_threads=True)


class LoopFrame(Frame):
    """The frame of one turn of a loop over tasks, from now on.

    Python does not say when a loop is left, so the frame is marked as over rather than removed.
    """

    __slots__ = ()

    def __init__(self, run: RunEngine, path: str) -> None:
        super().__init__(run, path)
        _inside.set(self)

    def end(self) -> None:
        self.is_over = True
        if _inside.get() is self:
            outer = self.outer
            while outer is not None and outer.is_over:
                outer = outer.outer
            _inside.set(outer)

    def is_around(self) -> bool:
        """Return whether the code that asks runs within the turn, or was begun there."""
        frame = _inside.get()
        while frame is not None and frame is not self:
            frame = frame.outer
        return frame is self


def find_path(run: RunEngine, own: str) -> str:
    """Return the path of a call that the run or sub-agent with the path `own` makes here."""
    frame = _inside.get()
    while frame is not None and (frame.is_over or frame.run is not run):
        frame = frame.outer
    if frame is None or own.startswith(frame.path):  # of a sub-agent that was begun inside
        return own
    if frame.path.startswith(own):
        return frame.path
    return f"{frame.path}{nested_path(own)}"


def nested_path(own: str) -> str:
    """Return the part of a path that names a sub-agent which was begun outside of that path."""
    return f"@{run_journal.part(own)}/"


# -- occurrences: rules 1, 3, 4 and 5 ---------------------------------------------------------------------------------


class CallSites:
    """The occurrences of calls, and the paths that this life of the program has begun (thread-safe)."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}  # by place without its occurrence: how many there were
        self._given_back: dict[str, list[int]] = {}  # the same: occurrences that ended without a result
        self._begun: set[str] = set()  # paths of tasks and sub-agents that were begun in this life
        self._failed: set[str] = set()  # of these, those that failed
        self._interrupted: set[str] = set()  # places of results that were recorded, and perhaps not saved
        self._make_lock()
        fork_safety.begin_again_in_child(self, CallSites._make_lock)

    def _make_lock(self) -> None:
        """Make the lock, again in a forked child: another thread of its parent may have held it."""
        self._lock = threading.Lock()

    def place(self, path: str, name: str, key: str | None) -> str:
        """Return the place of a call: its path, its name, and its occurrence or key."""
        start = f"{path}{run_journal.part(name)}#"
        if key is not None:
            return f"{start}{run_journal.part(key)}!"
        with self._lock:
            if self._given_back and (again := self._given_back.get(start)):
                again.sort(reverse=True)
                return f"{start}{again.pop()}"
            number = self._counted.get(start, 0)
            self._counted[start] = number + 1
        return f"{start}{number}"

    def give_back(self, place: str) -> None:
        """Return the occurrence of a call that ended without a result to its caller."""
        if not has_key(place):
            start, _, number = place.rpartition("#")
            with self._lock:
                self._given_back.setdefault(f"{start}#", []).append(int(number))

    def forget_interruption(self, place: str) -> bool:
        """Return whether a result was recorded there that reached no caller; from now on it has."""
        if place not in self._interrupted:
            return False
        self._interrupted.discard(place)
        return True

    def mark_interrupted(self, place: str) -> None:
        self._interrupted.add(place)

    def begin(self, path: str) -> bool:
        """Note that a task or sub-agent is begun; return whether this life has begun it before."""
        with self._lock:
            was_begun = path in self._begun
            self._begun.add(path)
            return was_begun

    def mark_failed(self, path: str) -> None:
        self._failed.add(path)

    def forget_failure(self, path: str) -> bool:
        """Return whether a sub-agent failed in this life; from now on it is begun again."""
        if path not in self._failed:
            return False
        self._failed.discard(path)
        return True

    def restart(self, path: str) -> None:
        """Restart the occurrences of this path at 0."""
        with self._lock:
            for counted in (self._counted, self._given_back):
                for start in [item for item in counted if item.startswith(path)]:
                    del counted[start]
            self._begun = {item for item in self._begun if item == path or not item.startswith(path)}


# -- effects: rules 6, 7 and 8 ----------------------------------------------------------------------------------------


class Former(NamedTuple):
    """The identity of the same call in an earlier version of the program, or of holdfast."""

    tool: str
    digest: bytes
    place: str


@dataclass(slots=True, kw_only=True)
class EffectCall:
    """A call of an effect, with its identity.

    `tool` and `digest` are its name and identity in the ledger, which those of `formers` may
    replace. `ordinal` tells equal ones apart. All three are final once the call is matched to an
    entry.
    """

    place: str
    name: str
    tool: str
    fn: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    kind: EffectKind
    arguments: dict[str, Any]
    identified: dict[str, Any]
    digest: bytes
    chosen: dict[str, Any]  # `identified`, with the arguments that are at their defaults
    loose: tuple[bytes, ...] = ()  # digests of the arguments without the parts that are usually new in every call
    ordinal: int = 0
    key: str | None = None  # the identity, unless the call is not named
    is_declared: bool = False  # by `key` or `identity`: another identity is another effect
    is_named: bool = True  # by its place; False: every call for an equal one means this one
    is_new_decision: bool = False  # of a caller that saw the earlier calls: it is no possible duplicate
    function: str | None = None
    formers: tuple[Former, ...] = ()
    probe: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    approve: Any = None
    on_repeat: OnRepeat | None = None
    not_done: tuple[type[Exception], ...] = ()
    raises: tuple[type[Exception], ...] = ()

    @property
    def identities(self) -> set[bytes]:
        return {self.digest, *(former.digest for former in self.formers)}


def build_effect_call(
    core: RunEngine,
    path: str,
    name: str,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    kind: str,
    key: str | None,
    identity: Sequence[str] | str | None,
    volatile: Sequence[str] | str,
    on_repeat: str | None,
    was: Sequence[str],
    is_named: bool = True,
    **others: Any,
) -> EffectCall:
    """Return the call, checked and with its identity.

    It is made when `effect` is called: parallel calls are distinguished by the order in which they
    were made.
    """
    of_kind = _check_choice("kind", kind, EffectKind)
    wanted = None if on_repeat is None else _check_choice("on_repeat", on_repeat, OnRepeat)
    effect_options.refuse_wrong_values(f"effect {name!r:.60}", others)
    named = call_binding.bind_arguments(fn, args, kwargs)
    if (probe := others.get("probe")) is not None:
        _check_probe(name, probe, args, kwargs)
    identity = (identity,) if isinstance(identity, str) else identity
    volatile = (volatile,) if isinstance(volatile, str) else volatile
    chosen = call_binding.choose_arguments(named, identity, volatile, f"effect {name!r:.60}")
    codec, sites = core.ctx.codec, core.sites
    is_known_by_key = is_named and key is not None
    digests: list[bytes] = []
    loose: tuple[bytes, ...] = ()
    given = call_binding.without_defaults(fn, chosen)
    try:
        digests, loose = [entries.digest(codec, given)], (entries.loose_digest(codec, given),)
    except UnsupportedValueError as error:
        if not is_known_by_key:
            raise UsageError(
                f"effect {name!r:.60}: its arguments are its identity, and can't be written down: {error}. Say which "
                "effect it is by key=..., or name the arguments that can be, by identity=(...)"
            ) from error
    if len(given) < len(chosen):
        with suppress(UnsupportedValueError):  # digests from before defaults were left out
            digests.append(entries.digest(codec, chosen))
            loose += (entries.loose_digest(codec, chosen),)
    if is_known_by_key and key is not None:
        digests, given = [entries.key_digest(key)], {"key": key}
    places_of = {
        (tool, digest): sites.place(path, f"{tool}!{digest[:16].hex()}", key)
        for tool in (name, *was)
        for digest in digests
    }
    for (tool, _), place in places_of.items():
        core.index.claim(tool, place)
    (_, digest), place = next(iter(places_of.items()))
    return EffectCall(
        place=place, name=name, tool=name, fn=fn, args=args, kwargs=kwargs, kind=of_kind, arguments=named,
        identified=given, digest=digest, chosen=chosen, loose=loose, key=key if is_named else None, is_named=is_named,
        on_repeat=wanted, is_declared=is_known_by_key or identity is not None, function=call_binding.function_name(fn),
        formers=tuple(Former(*known, at) for known, at in places_of.items() if at != place), **others,
    )  # fmt: skip


def _check_probe(name: str, probe: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise now if the probe does not fit: it is called when something has gone wrong."""
    try:
        call_binding.bind_arguments(probe, args, kwargs)
    except UsageError as error:
        raise UsageError(f"effect {name!r:.60}: its probe is asked with the effect's arguments, and {error}") from None


def _check_choice(parameter: str, given: Any, choices: Any) -> Any:
    names = [str(choice) for choice in choices]
    if given not in names:
        raise UsageError(f"{parameter} is {given!r:.60}: it must be one of {', '.join(map(repr, names))}")
    return choices(given)


# -- places: rule 9 ---------------------------------------------------------------------------------------------------


def may_be_same_call(first: str, second: str, *, is_alike: bool, for_any_agent: bool = False) -> bool:
    """Return whether calls of one tool at two places could be one call, with other arguments.

    `is_alike` says that they differ only in parts that are new in every call, `for_any_agent` that
    the agent may be renamed.
    """
    if (has_key(first) and has_key(second)) or are_other_scopes(first, second):
        return False  # the program says that they are two
    first_path, second_path = (
        _path(place).partition("/")[2] if for_any_agent else _path(place) for place in (first, second)
    )
    return is_alike or (not has_key(first) and not has_key(second) and first_path == second_path)


def are_two(first: str, second: str) -> bool:
    """Return whether calls at two places are certainly two, by rule 9."""
    return key_of(first) != key_of(second) or are_other_scopes(first, second)


def are_other_scopes(first: str, second: str) -> bool:
    """Return whether two places are in other tasks of one list, or in sub-agents with other ids."""
    before = None
    for first_step, second_step in zip(_path(first).split("/"), _path(second).split("/"), strict=False):
        if first_step != second_step:
            is_task = before == ""  # its place is `LIST//TASK`
            return is_task or (
                key_of(first_step) != key_of(second_step)
                and first_step.partition("#")[0] == second_step.partition("#")[0]
            )
        before = first_step
    return False


def are_for_other_messages(first: str, second: str) -> bool:
    """Return whether two places are in turns of loops over messages, and handle different messages."""
    first_turn, second_turn = _TURN.search(first), _TURN.search(second)
    return first_turn is not None and second_turn is not None and first_turn[1] != second_turn[1]


def scope(place: str) -> tuple[str, ...]:
    """Return the agent of a place, and the tasks and the sub-agents with an id around it."""
    parts = _path(place).split("/")
    found = parts[:1]
    for at, part in enumerate(parts):
        if at > 1 and parts[at - 1] == "":
            found.append(f"{parts[at - 2]}//{part}")
        elif has_key(part):
            found.append(part)
    return tuple(found)


def is_same_keyed_effect(first: str, second: str) -> bool:
    """Return whether two places are of one effect known by its key, whatever its identity came from."""
    return is_same_key(first, second) and named_key(first) == named_key(second)


def is_same_key(first: str, second: str) -> bool:
    return has_key(first) and key_of(first) == key_of(second) and scope(first) == scope(second)


def is_place_of_key(place: str, key: str) -> bool:
    return key_of(place) == f"{run_journal.part(key)}!"


def key_of(place: str) -> str | None:
    return place.rpartition("#")[2] if has_key(place) else None


def _path(place: str) -> str:
    return place.rpartition("/")[0]


def has_key(place: str) -> bool:
    return place.endswith("!")


def named_key(place: str) -> str:
    """Return name and key of an effect, without its path and its identity."""
    named, _, key = place.rpartition("/")[2].rpartition("#")
    return f"{named[:-_DIGEST]}#{key}"
