"""Where an agent loop keeps its state, and how it carries out its tools there.

With a client, the loop is a run: tools are effects, with a ledger that knows which of them were carried out. With a plain
store, the state itself says which calls were started. `Keeper` is what the loop sees.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from holdfast.agents import doubts
from holdfast.agents.doubts import Doubt
from holdfast.agents.tools import Tool, schema_hashes
from holdfast.errors import (
    ApprovalError,
    ApprovalPendingError,
    EffectBlockedError,
    EffectNotDoneError,
    EffectUnknownError,
    UnsupportedValueError,
)
from holdfast.model.agentstate import AgentState
from holdfast.model.effects import EffectState
from holdfast.model.repair import MAY_BE_REPEATED, NOT_STARTED, UNKNOWN, Fate, Outcome, as_text
from holdfast.model.transcript import ToolCall
from holdfast.objects.journal import FAILED, OK
from holdfast.operations import ledger
from holdfast.runs import calling, meeting
from holdfast.runs.stepping import StepCall

Finish = Callable[[Outcome], AgentState]
"""The state after a call: with its answer."""
Invoke = Callable[[Callable[..., Any], Sequence[Any], dict[str, Any]], Awaitable[Any]]
"""How what the program gave is called: on the spot, or awaited, or in a thread."""

REPEATABLE = ("read", "idempotent")
DOUBTED = (Fate.UNKNOWN, Fate.MAY_BE_REPEATED)
NOT_REPEATED = "an equal call was made before, and nobody knows whether that was carried out: this one was not made"


class Keeper(Protocol):
    """A session of the loop, as long as a turn takes."""

    async def load(self) -> AgentState | None: ...

    async def save(self, state: AgentState, name: str) -> None: ...

    async def carry_out(self, tool: Tool, call: ToolCall, key: str, state: AgentState, finish: Finish) -> AgentState:
        """Carries out a call, or finds that it was, and saves the state with its answer. `key` is the same whenever the
        same call of the same message is meant."""

    async def outcome(self, tool: Tool, call: ToolCall, key: str, state: AgentState) -> Outcome:
        """What is known of a call that is open, without carrying anything out."""


def failure(tool: Tool, error: Exception) -> Outcome:
    """What an exception of a tool says: mostly nothing about whether it was carried out."""
    was_not_done = tool.kind == "read" or isinstance(error, (EffectNotDoneError, *tool.not_done))
    fate = Fate.FAILED if was_not_done else in_doubt(tool).fate
    return Outcome(fate, words=f"{type(error).__name__}: {error}")


def in_doubt(tool: Tool) -> Outcome:
    """What there is to say of a call that was started, and of which it is not known how it ended."""
    return MAY_BE_REPEATED if tool.kind in REPEATABLE else UNKNOWN


class StoreKeeper:
    """In a plain `CheckpointStore`, or nowhere. Before a tool is called that changes something, the state that says so is
    saved: it is all that is known of calls that were cut off, or that raised (`doubts.py`)."""

    def __init__(self, store: Any, session_id: str, invoke: Invoke) -> None:
        self._store = store
        self._session_id = session_id
        self._invoke = invoke
        self._started: Doubt | None = None  # the call that is being carried out

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        return

    async def load(self) -> AgentState | None:
        if self._store is None:
            return None
        data = await _awaited(self._store.load(self._session_id))
        return None if data is None else AgentState.from_json(data)

    async def save(self, state: AgentState, name: str) -> None:  # noqa: ARG002 - a plain store names no steps
        if self._started is not None:
            state = doubts.noted(state, self._started)
        if self._store is not None:
            await _awaited(self._store.save(self._session_id, state.to_json()))

    async def carry_out(self, tool: Tool, call: ToolCall, key: str, state: AgentState, finish: Finish) -> AgentState:
        if tool.kind == "read":
            after = finish(await self._outcome_of(tool, dict(call.arguments or {})))
        else:
            after = await self._changed(tool, call, key, state, finish)
        await self.save(after, tool.name)
        return after

    async def _changed(self, tool: Tool, call: ToolCall, key: str, state: AgentState, finish: Finish) -> AgentState:
        """The state after a call that changes something, unless an equal one did so and nobody knows."""
        asked = doubts.of_call(tool, call, key)
        before = doubts.equal_to(state, asked)
        meant = before or asked
        outcome = None
        if before is not None and tool.kind not in REPEATABLE:
            outcome = await self._found_out(tool, call, before, is_same=before.key == key)
        if outcome is None:
            await self.save(doubts.noted(state, meant), tool.name)
            self._started = meant  # and stays so if what follows is cut off: every state that is saved then says it
            outcome = await self._outcome_of(tool, self._keyed(tool.fn, call, meant))
        self._started = None
        after = finish(outcome)
        return doubts.noted(after, meant) if outcome.fate in DOUBTED else doubts.settled(after, meant)

    async def _found_out(self, tool: Tool, call: ToolCall, before: Doubt, *, is_same: bool) -> Outcome | None:
        """What became of a call in doubt, as far as anybody can say; None if it was not carried out."""
        if tool.probe is None:
            return UNKNOWN if is_same else Outcome(Fate.UNKNOWN, words=NOT_REPEATED)
        try:
            found = await self._invoke(tool.probe, (), self._keyed(tool.probe, call, before))
        except Exception as error:
            return Outcome(Fate.UNKNOWN, words=f"its probe failed: {error!r:.200}")
        return None if found is None else Outcome(Fate.FINISHED, found)

    async def _outcome_of(self, tool: Tool, arguments: dict[str, Any]) -> Outcome:
        try:
            return Outcome(Fate.FINISHED, await self._invoke(tool.fn, (), arguments))
        except Exception as error:
            return failure(tool, error)

    def _keyed(self, fn: Callable[..., Any], call: ToolCall, meant: Doubt) -> dict[str, Any]:
        return {**(call.arguments or {}), **calling.keyed(fn, meant.provider_key(self._session_id))}

    async def outcome(self, tool: Tool, call: ToolCall, key: str, state: AgentState) -> Outcome:  # noqa: ARG002 - as `Keeper`
        is_doubted = any(one.key == key for one in doubts.of_state(state))
        return in_doubt(tool) if is_doubted else NOT_STARTED


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class RunKeeper:
    """In a session of a client, under its lease. The result of a tool and the state with its answer are one commit."""

    def __init__(self, client: Any, options: Mapping[str, Any], tools: Mapping[str, Tool], *, is_sync: bool) -> None:
        self._client = client
        self._options = options
        self._tools = tools
        self._is_sync = is_sync
        self._run: Any = None
        self._saved: Any = None  # the state, as it was given to the run last

    async def __aenter__(self) -> Self:
        if self._is_sync:
            self._run = self._client.run(**self._options)
            self._run.__enter__()
        else:
            self._run = await self._client.run(**self._options)
            await self._run.__aenter__()
        self._run._core.tools |= schema_hashes(self._tools)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        core = self._run._core
        if core.state is self._saved:
            core._saved_digest = core._digest()  # nothing is new: the end needs no checkpoint of its own
        if self._is_sync:
            self._run.__exit__(kind, error, trace)
        else:
            await self._run.__aexit__(kind, error, trace)

    async def load(self) -> AgentState | None:
        self._saved = self._run.state
        return AgentState.from_json(self._run.state) if self._run.resumed else None

    async def save(self, state: AgentState, name: str) -> None:
        self._run.state = self._saved = state.to_json()
        await self._run._core.save(name)

    async def carry_out(self, tool: Tool, call: ToolCall, key: str, state: AgentState, finish: Finish) -> AgentState:
        if not isinstance(self._run.state, dict) or self._run.state.get("id") != state.id:
            self._run.state = state.to_json()
        watched = _Watched(tool, finish, self._run)
        watched.asked = asked = self._asked(tool, call, key, watched.fn)
        watched.original = original = dict(call.arguments or {})
        try:
            result = await self._run._effect(asked)
        except ApprovalPendingError:
            raise
        except UnsupportedValueError:
            if watched.after is None:
                raise
            outcome = watched.outcome  # what can't be kept exactly was told as text, and that can
        except EffectUnknownError as error:
            outcome = Outcome(Fate.UNKNOWN, words=str(error))
        except (EffectBlockedError, ApprovalError) as error:
            outcome = Outcome(Fate.FAILED, words=str(error))
        except Exception as error:
            if error is not watched.raised and not watched.was_raised_before(error):
                raise  # not the tool's: the store's, or the lease's
            outcome = failure(tool, error)
        else:
            if watched.after is not None:
                self._saved = self._run.state
                return watched.after  # saved with the result
            outcome = finished(asked, original, result)  # it was carried out before
        finally:
            watched.is_over = True
        if outcome.fate in DOUBTED and not isinstance(asked, StepCall):
            # Whoever asks for an equal one means this one, as long as nobody knows: it is probed, or refused, or repeated with
            # the same key.
            self._run._core.places.forget_ordinal(asked.place, asked.name, (asked.digest,))
        after = finish(outcome)
        await self.save(after, tool.name)
        return after

    async def outcome(self, tool: Tool, call: ToolCall, key: str, state: AgentState) -> Outcome:  # noqa: ARG002 - as `Keeper`
        core = self._run._core
        asked = self._asked(tool, call, key, tool.fn)
        known = core.journal.get(asked.place)
        decode = core.services.codec.decode
        if known is not None and known.status == OK:
            return Outcome(Fate.FINISHED, decode(known.payload))
        if known is not None and known.status == FAILED:
            return Outcome(Fate.FAILED)
        if isinstance(asked, StepCall):
            return NOT_STARTED
        _, entry = await meeting.met(core, asked)
        core.places.forget_ordinal(asked.place, asked.name, (asked.digest,))  # it was looked at, and not asked for
        if entry is not None and entry.target is not None:
            entry = await ledger.find(core.services, entry.target, core.tree)
        if entry is None or entry.state in (EffectState.FAILED, EffectState.COMPENSATED):
            return NOT_STARTED
        if entry.state is EffectState.COMPENSATING:
            return UNKNOWN
        if entry.state is not EffectState.DONE or entry.result is None:
            return in_doubt(tool)
        if entry.checkpoint is not None:
            return Outcome(Fate.FAILED, words="it was carried out on another branch of this conversation")
        return Outcome(Fate.FINISHED, decode(entry.result))

    def _asked(self, tool: Tool, call: ToolCall, key: str, fn: Callable[..., Any]) -> Any:
        return self._run._effect_call(
            tool.name,
            fn,
            (),
            dict(call.arguments or {}),
            kind=tool.kind,
            key=key,
            identity=tool.identity,
            volatile=tool.volatile,
            approve=tool.approve,
            probe=tool.probe,
            undo=tool.undo,
            on_repeat=tool.on_repeat,
            on_suspect="block",
            not_done=tool.not_done,
            raises=(),
            is_named=False,  # a model that calls it once more gives that call another id
        )


def finished(asked: Any, original: Mapping[str, Any], result: Any) -> Outcome:
    """That a call was carried out, and with which arguments, if who approved it gave others."""
    now: Mapping[str, Any] = getattr(asked, "arguments", original)
    changed = {name: now[name] for name in original if name in now and now[name] != original[name]}
    words = f"it was approved with other arguments: {as_text(changed)}" if changed else None
    return Outcome(Fate.FINISHED, result, words)


class _Watched:
    """A tool's function, which leaves the state with its answer to the commit that records its result."""

    def __init__(self, tool: Tool, finish: Finish, run: Any) -> None:
        self.asked: Any = None
        self.original: Mapping[str, Any] = {}
        self.is_over = False  # of a turn that was cancelled, the thread goes on: what it comes to is not known in time
        self.outcome = UNKNOWN
        self.after: AgentState | None = None
        self.raised: BaseException | None = None
        self._finish = finish
        self._run = run

        if inspect.iscoroutinefunction(tool.fn):

            @functools.wraps(tool.fn)
            async def called(*args: Any, **kwargs: Any) -> Any:
                try:
                    return self._finished(await tool.fn(*args, **kwargs))
                except Exception as error:
                    self.raised = error
                    raise

            self.fn: Callable[..., Any] = called
        else:

            @functools.wraps(tool.fn)
            def plainly(*args: Any, **kwargs: Any) -> Any:
                try:
                    result = tool.fn(*args, **kwargs)
                except Exception as error:
                    self.raised = error
                    raise
                return result if inspect.isawaitable(result) else self._finished(result)

            self.fn = plainly

    def _finished(self, result: Any) -> Any:
        if not self.is_over:
            self.outcome = finished(self.asked, self.original, result)
            self.after = self._finish(self.outcome)
            self._run.state = self.after.to_json()
        return result

    def was_raised_before(self, error: Exception) -> bool:
        """Whether it is a failure that the journal has: it was not raised now, since nothing was called."""
        return self.raised is None and any(raised is error for raised, _ in self._run._core._raised)


@dataclass(slots=True)
class ChildKeeper:
    """A sub-agent's: its state is part of its parent's, under the call that it answers, and its tools are effects of the
    parent's run. So it is saved, rolled back and forked with the parent."""

    parent: Keeper
    key: str
    state: AgentState  # of the parent

    async def load(self) -> AgentState | None:
        kept = self.state.metadata.get(SUBAGENTS, {}).get(self.key)
        return None if kept is None else AgentState.from_json(kept)

    async def save(self, state: AgentState, name: str) -> None:
        self.state = self._with(state)
        await self.parent.save(self.state, name)

    async def carry_out(self, tool: Tool, call: ToolCall, key: str, state: AgentState, finish: Finish) -> AgentState:
        reached: list[AgentState] = []

        def outer(outcome: Outcome) -> AgentState:
            reached.append(finish(outcome))
            return self._with(reached[-1])

        self.state = await self.parent.carry_out(tool, call, f"{self.key}/{key}", self._with(state), outer)
        return reached[-1]

    async def outcome(self, tool: Tool, call: ToolCall, key: str, state: AgentState) -> Outcome:
        return await self.parent.outcome(tool, call, f"{self.key}/{key}", self._with(state))

    def _with(self, state: AgentState) -> AgentState:
        kept = {**self.state.metadata.get(SUBAGENTS, {}), self.key: state.to_json()}
        return self.state.with_metadata(SUBAGENTS, kept)


SUBAGENTS = "subagents"
"""Metadata of a state: the states of the sub-agents that are at work, by the key of the call."""
