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
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.adapters.base.store_access import check_store, is_client, open_client
from holdfast.adapters.base.turn import FrameworkTurn, digest, step_name
from holdfast.backends.bridge.step import run_inline
from holdfast.errors import UnfinishedTurnError, UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect, declared_effects

TURN = "turn"
"""The key of a session's state that has the turn which is not finished."""
LONGEST_INPUT = 60
_finished: Counter[tuple[str, str, str]] = Counter()  # by store, session and input: turns of this process
_finished_lock = threading.Lock()


class TurnEnd(NamedTuple):
    """The end of a turn: the framework's result, the same as plain data, and the adapter's new state."""

    result: Any
    recorded: Any
    state: Mapping[str, Any]


@dataclass(slots=True)
class OpenTurn:
    """A turn between its start and its end; without `turn`, a finished one, whose result is `recorded`."""

    turn: FrameworkTurn | None = None
    recorded: Any = None
    end: TurnEnd | None = None  # set by the caller


class ResumableSession:
    """One `resumable(...)` object: a session in a store, and the declarations of its tools.

    `store` is a client, a URL, or None for the SQLite file below the working directory. A store
    that is opened here is open for one turn; a client that was given stays open. Frameworks that
    block get `is_async=False`.
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
        self.state: Mapping[str, Any] = {}  # the adapter's, for `load`
        self.head: str | None = None  # the last checkpoint of the last turn that was finished here
        check_store(store, is_async=is_async)

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
    async def open_turn(self, entry: str, given: Any, turn: str | None) -> AsyncIterator[OpenTurn]:
        """Open a turn for entry points that are context managers themselves.

        The caller runs the turn within the block and sets `end`. Without an end, the turn stays
        unfinished: the same call continues it.
        """
        async with self._open() as client:
            key, counted = self._key_of(client, entry, given, turn)
            async with self._open_run(client) as run:
                found = run.find_result(step_name(entry), key=key)
                if found is not None:
                    self.state = _state_of_adapter(run)
                    yield OpenTurn(recorded=found.result)
                else:
                    begun = await self._begin(run, client, entry, given, key)
                    opened = OpenTurn(turn=begun)
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
                    run.state = _lists_last({**opened.end.state, TURN: None})
                    await begun.finish(entry, opened.end.recorded)
                    self.head = run.checkpoint_id
        with _finished_lock:
            _finished[counted] += 1

    async def _begin(self, run: Any, client: Any, entry: str, given: Any, key: str) -> FrameworkTurn:
        """Record the start of a turn, unless an earlier life has; return the turn."""
        unfinished = run.state.get(TURN) if isinstance(run.state, dict) else None
        _refuse_unfinished(unfinished, key, given, self.session_id)
        known = _state_of_adapter(run)
        if unfinished is None:
            first = len(run._core.journal)
            about = {"id": key, "input": given, "entry": entry, "before": run.checkpoint_id, "first_record": first}
            run.state = _lists_last({**known, TURN: about})
            await _saved(run.save(step_name(f"{entry} started")))
        turn = FrameworkTurn(run, client, key, known, self._tools)
        turn.begun_after = about["before"] if unfinished is None else None
        return turn

    def _key_of(self, client: Any, entry: str, given: Any, turn: str | None) -> tuple[str, tuple[str, str, str]]:
        """Return the turn's key, and what its finished calls are counted under."""
        if turn is not None and (not isinstance(turn, str) or not turn):
            raise UsageError(
                f"turn is {turn!r:.60}: it must be a text that identifies the turn, such as a message's id"
            )
        text = f"turn={turn}" if turn is not None else digest([entry, given])
        counted = (str(client._ctx.backend.capabilities.location), self.session_id, text)
        if turn is not None:
            return text, counted
        with _finished_lock:
            return f"{text}#{_finished[counted]}", counted

    # -- the store -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        """Open the store for one turn; a client that was given is used as it is."""
        if is_client(self._store):
            yield self._store
            return
        client = open_client(self._store, is_async=self._is_async)
        try:
            yield client
        finally:
            await _saved(client.close())

    @asynccontextmanager
    async def _open_run(self, client: Any) -> AsyncIterator[Any]:
        opened = client.run(
            self.session_id, agent_id=self.agent_id, framework=self.framework, workspace=self._workspace
        )
        if self._is_async:
            async with opened as run:
                run._core.declare_lists()
                yield run
        else:
            with opened as run:
                run._core.declare_lists()
                yield run


def _state_of_adapter(run: Any) -> dict[str, Any]:
    """Return what the last finished turn left, without what the base keeps in the same state."""
    state = run.state if isinstance(run.state, dict) else {}
    return {name: value for name, value in state.items() if name != TURN}


def _lists_last(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state whose lists come last, as they do in a save that declares them unchanged."""
    return dict(sorted(state.items(), key=lambda item: type(item[1]) is list))


async def _saved(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


def _refuse_unfinished(unfinished: Any, key: str, given: Any, session_id: str) -> None:
    """Raise if another turn of the session was cut off: its calls would be lost in the conversation."""
    if not isinstance(unfinished, Mapping) or unfinished.get("id") == key:
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
    )


def _short(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= LONGEST_INPUT else f"{text[:LONGEST_INPUT]}…"
