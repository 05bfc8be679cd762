"""A resumable session: it opens the store, and runs one turn of the conversation at a time.

A call of a framework's entry point is one turn. The turn is known by the id that the caller gives,
or else by its input and how many turns with that input this process has finished. So a program that
is started again makes the same calls: finished turns return their recorded results, and the turn
that was cut off continues.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.known_tools import KnownTools, check_declared
from holdfast.adapters.base.recorded_text import NO_TEXTS, RecordedTexts
from holdfast.adapters.base.state_copy import StateCopy, restored_elements, state_as_restored
from holdfast.adapters.base.step_function import step_name
from holdfast.adapters.base.store_access import check_store, client_over, is_client, open_client
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.base.unreadable import refuse_unreadable
from holdfast.backends.bridge.step import run_inline, run_inline_context
from holdfast.errors import CorruptError, UnfinishedTurnError, UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect, declared_effects
from holdfast.operations import validate
from holdfast.operations.context import StoreContext
from holdfast.runs import current
from holdfast.runs.api import Run, SyncRun
from holdfast.runs.engine import RunContent, RunOptions, Save

TURN = "turn"
"""The key of a session's state that has the turn which is not finished."""
LONGEST_INPUT = 60
KEEP_STATE = True
"""Whether a session keeps the state of its last turn in memory, to spare the next one reading it."""
_finished: Counter[tuple[str, str, str]] = Counter()  # by store, session and input: turns of this process
_finished_lock = threading.Lock()


class TurnEnd(NamedTuple):
    """The end of a turn: the framework's result, the same as plain data, and the adapter's new state.

    `appended` has the new elements of lists that are not in `state`: those of the state before the
    turn, which are as they were, and longer. So their save takes no longer in a long conversation.
    """

    result: Any
    recorded: Any
    state: Mapping[str, Any]
    appended: Mapping[str, Sequence[Any]] = MappingProxyType({})


@dataclass(slots=True)
class OpenTurn:
    """A turn between its start and its end; without `turn`, a finished one, whose result is `recorded`.

    A result may have places in `texts` instead of texts that the turn has recorded anyway.
    """

    turn: FrameworkTurn | None = None
    recorded: Any = None
    end: TurnEnd | None = None  # set by the caller
    texts: RecordedTexts = NO_TEXTS


class ResumableSession:
    """One `resumable(...)` object: a session in a store, and the declarations of its tools.

    `store` is a client, a URL, or None for the SQLite file below the working directory. A store
    that is opened here is open for one turn; a client that was given stays open. Frameworks that
    block get `is_async=False`.

    In the run of a worker or a replay with the same session, turns are part of that run: they are
    taken under its lease, and by default in its store.
    """

    def __init__(
        self,
        framework: Framework,
        *,
        session_id: str,
        store: Any = None,
        agent_id: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        tools: Mapping[str, Effect | str] | None = None,
        is_async: bool = True,
    ) -> None:
        self.framework = framework
        self.session_id = session_id
        self.agent_id = agent_id or "agent"
        self._store = store
        self._workspace = workspace
        self._tools = declared_effects(tools)
        self._is_async = is_async
        self._known: RunContent | None = None  # of the last turn that was finished here, to spare the next one reading
        self.state: Mapping[str, Any] = {}  # the adapter's, for `load`
        self.head: str | None = None  # the last checkpoint of the last turn that was finished here
        self.location = ""  # of the store, once it was opened
        check_store(store, is_async=is_async)

    def check_tools(self, find: Callable[[], KnownTools]) -> None:
        """Raise `UsageError` if `tools=` declares a tool that the agent does not have."""
        if self._tools:
            check_declared(self._tools, find())

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def take_turn(
        self, entry: str, given: Any, turn: str | None, body: Callable[[FrameworkTurn], Any], load: Callable[[Any], Any]
    ) -> Any:
        """Run `body` as a turn, and return its result, or the recorded one of a finished turn.

        `entry` is the name of the entry point, `given` its input as plain data. `load` makes the
        framework's result of the recorded one; it finds the conversation, which need not be recorded
        a second time, in `state`.
        """
        async with self.open_turn(entry, given, turn) as opened:
            if opened.turn is None:
                with self.guard_state():
                    return load(opened.recorded)
            end: TurnEnd = await body(opened.turn)
            opened.end = end
        return end.result

    def take_turn_sync(
        self, entry: str, given: Any, turn: str | None, body: Callable[[FrameworkTurn], Any], load: Callable[[Any], Any]
    ) -> Any:
        """`take_turn` for frameworks that block: `body` is a plain function."""

        async def plainly(turn_: FrameworkTurn) -> TurnEnd:
            return body(turn_)  # type: ignore[no-any-return]  # a TurnEnd, as adapters are written

        return run_inline(self.take_turn(entry, given, turn, plainly, load))

    @asynccontextmanager
    async def open_turn(
        self, entry: str, given: Any, turn: str | None, *, saves_start: bool = True
    ) -> AsyncIterator[OpenTurn]:
        """Open a turn for entry points that are context managers themselves.

        The caller runs the turn within the block and sets `end`. Without an end, the turn stays
        unfinished: the same call continues it. With `saves_start=False`, the start of the turn is
        saved together with the first thing that is recorded in it.
        """
        async with self._open() as client:
            key, counted = self._key_of(entry, given, turn)
            async with self._open_run(client) as run:
                found = run.find_result(step_name(entry), key=key)
                codec = run._core.ctx.codec
                if found is not None:
                    self.state = StateCopy(_state_of_adapter(run), codec)
                    yield OpenTurn(recorded=found.result, texts=RecordedTexts(run._core.journal, codec))
                else:
                    begun = await self._begin(run, client, entry, given, key, saves_start)
                    first = run.state[TURN].get("first_record")
                    texts = RecordedTexts(run._core.journal, codec, first if isinstance(first, int) else 0)
                    opened = OpenTurn(turn=begun, texts=texts)
                    try:
                        yield opened
                    except BaseException:
                        if begun.ended_by is not None:
                            raise begun.ended_by from None
                        raise
                    if begun.ended_by is not None:  # the framework has swallowed it
                        raise begun.ended_by
                    if opened.end is None:
                        return
                    run.state = _next_state(run, opened.end)
                    await begun.finish(entry, opened.end.recorded)
                    self._known = run._core.content()
                    self.head = run.checkpoint_id
            finished = self._count_finished()
        if turn is None:
            with _finished_lock:
                finished[counted] += 1

    @contextmanager
    def open_turn_sync(self, entry: str, given: Any, turn: str | None) -> Iterator[OpenTurn]:
        """`open_turn` for frameworks that block."""
        with run_inline_context(self.open_turn(entry, given, turn)) as opened:
            yield opened

    async def _begin(self, run: Any, client: Any, entry: str, given: Any, key: str, saves_start: bool) -> FrameworkTurn:
        """Record the start of a turn, unless an earlier life has; return the turn."""
        unfinished = run.state.get(TURN) if isinstance(run.state, dict) else None
        if getattr(run._core, "is_from_start", False) and not len(run._core.journal):
            unfinished = None  # the original's first turn, which the replay begins again
        _refuse_unfinished(unfinished, key, given, self.session_id)
        known = _state_of_adapter(run)
        if unfinished is None:
            first = len(run._core.journal)
            about = {"id": key, "input": given, "entry": entry, "before": run.checkpoint_id, "first_record": first}
            run.state = _lists_last({**known, TURN: about})
            if saves_start:
                await _copy_saved(run.save(step_name(f"{entry} started")))
        turn = FrameworkTurn(run, client, key, known, self._tools)
        turn.begun_after = about["before"] if unfinished is None else None
        return turn

    def _key_of(self, entry: str, given: Any, turn: str | None) -> tuple[str, tuple[str, str, str]]:
        """Return the turn's key, and what its finished calls are counted under."""
        if turn is not None and (not isinstance(turn, str) or not turn):
            raise UsageError(
                f"turn is {turn!r:.60}: it must be a text that identifies the turn, such as a message's id"
            )
        worked = self._find_worked()
        begun = [] if worked is None or worked._core.taken is None else [worked._core.taken.run.started_us]
        text = f"turn={turn}" if turn is not None else digest([entry, given, *begun])
        counted = (self.location, self.session_id, text)
        if turn is not None:
            return text, counted
        with _finished_lock:
            return f"{text}#{self._count_finished()[counted]}", counted

    def _count_finished(self) -> Counter[tuple[str, str, str]]:
        """Return the counts of finished turns: of this process, or of one life of a worker's run."""
        worked = self._find_worked()
        return _finished if worked is None or worked._core.life is None else worked._core.life.finished

    async def load_state(self) -> dict[str, Any]:
        """Return the adapter's state as the session has it now, also in the middle of a turn."""
        async with self._open() as client:
            head = await _copy_saved(client.latest(self.session_id))
        if head is None:
            return {}
        self._refuse_others(head.framework)
        return _without_turn(head.execution_state)

    async def append_to_state(self, name: str, added: Mapping[str, Sequence[Any]]) -> None:
        """Append to lists of the adapter's state, between turns."""
        async with self._open() as client, self._open_run(client) as run:
            run._core.extend_lists(added)
            await _copy_saved(run.save(step_name(name)))

    def guard_state(self) -> AbstractContextManager[None]:
        """Raise `CorruptError` for what a framework raises about the stored state, or a recorded result."""
        return refuse_unreadable(f"the state of session {self.session_id!r:.60}")

    # -- the store -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        """Open the store for one turn; a client that was given is used as it is."""
        worked = current.find(self.session_id)
        if self._store is None and worked is not None:
            self.location = _location(worked._core.ctx)
            yield client_over(worked._core.ctx, is_async=self._is_async)
            return
        if is_client(self._store):
            self.location = _location(self._store._ctx)
            yield self._store
            return
        client = open_client(self._store, is_async=self._is_async)
        self.location = _location(client._ctx)
        try:
            yield client
        finally:
            await _copy_saved(client.close())

    @asynccontextmanager
    async def _open_run(self, client: Any) -> AsyncIterator[Any]:
        core = client if self._is_async else client._client
        save = None if self._workspace is None else core._open_workspace(self._workspace).save
        worked = self._find_worked()
        if worked is not None:
            self._refuse_others(worked._core.stored_framework)
            yield self._prepare_worked(worked, save)
            return
        options = RunOptions(
            session_id=validate.name("session_id", self.session_id),
            agent_id=validate.name("agent_id", self.agent_id),
            framework=self.framework,
            save=save,
            known=self._known if KEEP_STATE else None,
        )
        opened = core._acquire_run(options)
        if self._is_async:
            async with opened as run:
                self._refuse_others(run._core.stored_framework)
                run._core.declare_lists()
                yield run
        else:
            with await opened.acquire_sync() as run:
                self._refuse_others(run._core.stored_framework)
                run._core.declare_lists()
                yield run

    def _refuse_others(self, framework: str | None) -> None:
        """Raise if an agent of another framework has saved the session: its messages have another form."""
        if framework not in (None, self.framework, Framework.CUSTOM):
            raise UsageError(
                f"session {self.session_id!r:.60} is one of {framework}, and this agent is one of {self.framework}. "
                f"Nothing was done. Continue it by client.resume_as({self.session_id!r:.60}, {str(self.framework)!r}), "
                "or give this agent a session of its own"
            )

    def _find_worked(self) -> Run | SyncRun | None:
        """Return the worker's run of this session in this store, if a turn is taken within it."""
        worked = current.find(self.session_id)
        return worked if worked is not None and _location(worked._core.ctx) == self.location else None

    def _prepare_worked(self, worked: Run | SyncRun, save: Save | None) -> Run | SyncRun:
        """Return a worker's run, ready for a turn of this framework."""
        if isinstance(worked, Run) != self._is_async:
            kind = "async def" if self._is_async else "a plain function"
            raise UsageError(
                f"{self.framework} takes its turn in the run of session {self.session_id!r:.60}, which is of the other "
                f"kind: make the function of that run {kind}"
            )
        core = worked._core
        core.options.framework = self.framework
        if save is not None:
            core._store = save
        core.declare_lists()
        return worked


def _location(ctx: StoreContext) -> str:
    return str(ctx.backend.capabilities.location)


def _state_of_adapter(run: Any) -> dict[str, Any]:
    """Return what the last finished turn left, without what the base keeps in the same state."""
    return _without_turn(run.state)


def _without_turn(state: Any) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != TURN} if isinstance(state, dict) else {}


def _next_state(run: Any, end: TurnEnd) -> dict[str, Any]:
    """Return the state that a turn leaves; the adapter and the framework have no part of it.

    Elements that lists had before the turn are those that were restored: only adapters' copies of
    them were handed out.
    """
    codec = run._core.ctx.codec
    state = {**state_as_restored(end.state, codec), TURN: None}
    for name, elements in end.appended.items():
        before = run.state.get(name)
        path = f"execution_state.{name}"
        if type(before) is list:
            state[name] = run._core.declare_append(name, restored_elements(elements, codec, path, len(before)))
        else:
            state[name] = restored_elements(elements, codec, path)
    return _lists_last(state)


def _lists_last(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state whose lists come last, as they do in a save that declares them unchanged."""
    return dict(sorted(state.items(), key=lambda item: type(item[1]) is list))


async def _copy_saved(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


def _refuse_unfinished(unfinished: Any, key: str, given: Any, session_id: str) -> None:
    """Raise if another turn of the session was cut off: its calls would be lost in the conversation."""
    if unfinished is None:
        return
    if not isinstance(unfinished, Mapping) or not isinstance(unfinished.get("id"), str):
        raise CorruptError(
            f"the turn under way in session {session_id!r:.60} can't be read: something else has changed its state. "
            "Nothing was done. Roll the session back"
        )
    if unfinished["id"] == key:
        return
    before = unfinished.get("before")
    back = f"`holdfast rollback {session_id} {before}` drops it" if before else "start another session to drop it"
    raise UnfinishedTurnError(
        f"session {session_id!r:.60} has a turn that is not finished ({unfinished.get('id')}, "
        f"{_short(unfinished.get('input'))}), and "
        f"another one was begun ({key}, {_short(given)}). Nothing was done. Repeat the first call to finish it, or "
        f"{back}",
        str(unfinished.get("id")),
        key,
        before,
    )


def _short(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= LONGEST_INPUT else f"{text[:LONGEST_INPUT]}…"
