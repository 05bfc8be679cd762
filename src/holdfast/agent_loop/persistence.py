"""The stores of an agent loop's state, and how each carries out tools.

With a client, the loop is a run: tools are effects, with a ledger that knows which of them were
carried out. With a plain store, the state itself says which calls were started. `AgentStore` is the
loop's interface to both.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol, Self

from holdfast.agent_loop import unknown_calls
from holdfast.agent_loop.decision import DOUBTED, ModelDecision
from holdfast.agent_loop.tool import STEPS, Tool, schema_hashes
from holdfast.agent_loop.unknown_calls import UnknownCall
from holdfast.errors import (
    ApprovalError,
    ApprovalPendingError,
    EffectBlockedError,
    EffectNotDoneError,
    EffectUnknownError,
    ResultNotKeptError,
)
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.format.state.run_journal import EFFECT, FAILED, OK
from holdfast.model.agent_state import AgentState
from holdfast.model.effect import IN_DOUBT, NOT_DONE, EffectState
from holdfast.model.transcript import ToolCall
from holdfast.model.transcript_repair import (
    MAY_BE_REPEATED,
    NOT_STARTED,
    UNKNOWN,
    CallOutcome,
    Outcome,
    as_text,
)
from holdfast.operations import ledger
from holdfast.runs import call_binding, ledger_match
from holdfast.runs import probe as probes
from holdfast.runs.call_sites import is_place_of_key
from holdfast.runs.step import StepCall

Finish = Callable[[Outcome], AgentState]
"""The state after a call: with its answer."""
Invoke = Callable[[Callable[..., Any], Sequence[Any], dict[str, Any]], Awaitable[Any]]
"""How what the program gave is called: on the spot, or awaited, or in a thread."""

REPEATABLE = (*STEPS, "idempotent")
NOT_REPEATED = "an equal call was made before, and its outcome is unknown: this one was not made"
NEW_CALL = "if you call it again, that is a new call, and it is carried out"
TAKEN_UP = (
    "this is the result of your earlier call with the same arguments, whose outcome was unknown: nothing was done again"
)


class AgentStore(Protocol):
    """A session of the loop, as long as a turn takes."""

    async def load(self) -> AgentState | None: ...

    async def save(self, state: AgentState, name: str) -> None: ...

    async def carry_out(self, decision: ModelDecision, state: AgentState, finish: Finish) -> AgentState:
        """Carries out a call, or finds that it was, and saves the state with its answer."""

    async def outcome(self, decision: ModelDecision, state: AgentState) -> Outcome:
        """Return the known outcome of an open call, without carrying anything out."""

    async def find_started(self, key: str, call: ToolCall, state: AgentState) -> Outcome | None:
        """Return the outcome of an open call whose tool is not there any more; None if it was not started."""


def failure(tool: Tool, error: Exception) -> Outcome:
    """Return the outcome after an exception of a tool: mostly unknown."""
    text = f"{type(error).__name__}: {error}"
    was_not_done = tool.kind == "read" or isinstance(error, (EffectNotDoneError, *tool.not_done))
    return Outcome(CallOutcome.FAILED, words=text) if was_not_done else doubtful_outcome(tool, text)


def doubtful_outcome(tool: Tool, text: str | None = None) -> Outcome:
    """Return the outcome of a call that was started and whose end is unknown."""
    if tool.is_declared:
        return replace(MAY_BE_REPEATED if tool.kind in REPEATABLE else UNKNOWN, words=text)
    return replace(UNKNOWN, words="; ".join(filter(None, (text, NEW_CALL))))


def unrecorded_outcome(tool: Tool) -> Outcome:
    """Return the outcome of a call without a record; starts of calls that only change files have none."""
    return doubtful_outcome(tool) if tool.kind == "workspace" else NOT_STARTED


class PlainAgentStore:
    """An agent's state in a plain `CheckpointStore`, or not stored at all.

    Before a tool that changes something is called, the state that records the call is saved: it is
    all that is known of calls that were interrupted, or that raised (`unknown_calls.py`).
    """

    def __init__(self, store: Any, session_id: str, invoke: Invoke) -> None:
        self._store = store
        self._session_id = session_id
        self._invoke = invoke
        self._started: UnknownCall | None = None  # the call that is being carried out

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        return

    async def load(self) -> AgentState | None:
        if self._store is None:
            return None
        data = await _await_value(self._store.load(self._session_id))
        return None if data is None else AgentState.from_json(data)

    async def save(self, state: AgentState, name: str) -> None:  # noqa: ARG002 - a plain store names no steps
        if self._started is not None:
            state = unknown_calls.note_doubt(state, self._started)
        if self._store is not None:
            await _await_value(self._store.save(self._session_id, state.to_json()))

    async def carry_out(self, decision: ModelDecision, state: AgentState, finish: Finish) -> AgentState:
        tool = decision.tool
        if tool.is_step:
            after = finish(await self._outcome_of(tool, dict(decision.call.arguments or {})))
        else:
            after = await self._change_state(decision, state, finish)
        await self.save(after, tool.name)
        return after

    async def _change_state(self, decision: ModelDecision, state: AgentState, finish: Finish) -> AgentState:
        """Return the state after a call that changes something, unless an equal call has an unknown outcome."""
        tool, asked = decision.tool, unknown_calls.make_unknown_call(decision)
        before = unknown_calls.repeated_by(state, decision, asked)
        meant = before or asked
        outcome = None
        if before is not None and tool.kind not in REPEATABLE:
            outcome = await self._found_out(decision, before)
        if outcome is None:
            await self.save(unknown_calls.note_doubt(state, meant), tool.name)
            self._started = meant  # and stays so if what follows is cut off: every state that is saved then says it
            outcome = await self._outcome_of(tool, self._make_key_argument(tool.fn, decision, meant))
        self._started = None
        after = finish(outcome)
        is_open = outcome.fate in DOUBTED and tool.is_declared  # else the next call is a new decision
        return unknown_calls.note_doubt(after, meant) if is_open else unknown_calls.settle_doubt(after, meant)

    async def _found_out(self, decision: ModelDecision, before: UnknownCall) -> Outcome | None:
        """Find out the outcome of an unknown call as far as possible; None if it was not carried out."""
        tool, is_same = decision.tool, before.key == decision.key
        if tool.probe is None:
            return doubtful_outcome(tool) if is_same else Outcome(CallOutcome.UNKNOWN, words=NOT_REPEATED)
        try:
            found = await self._invoke(tool.probe, (), self._make_key_argument(tool.probe, decision, before))
        except Exception as error:
            return Outcome(CallOutcome.UNKNOWN, words=f"its probe failed: {error!r:.200}")
        if not probes.is_answer(found):
            return Outcome(CallOutcome.UNKNOWN, words=probes.describe_other_answer(found))
        return None if found is NOT_DONE else Outcome(CallOutcome.FINISHED, found.result, None if is_same else TAKEN_UP)

    async def _outcome_of(self, tool: Tool, arguments: dict[str, Any]) -> Outcome:
        try:
            return Outcome(CallOutcome.FINISHED, await self._invoke(tool.fn, (), arguments))
        except Exception as error:
            return failure(tool, error)

    def _make_key_argument(self, fn: Callable[..., Any], decision: ModelDecision, meant: UnknownCall) -> dict[str, Any]:
        return {
            **(decision.call.arguments or {}),
            **call_binding.make_key_argument(fn, meant.provider_key(self._session_id)),
        }

    async def outcome(self, decision: ModelDecision, state: AgentState) -> Outcome:
        is_doubted = any(unknown_call.key == decision.key for unknown_call in unknown_calls.read_calls(state))
        return doubtful_outcome(decision.tool) if is_doubted else unrecorded_outcome(decision.tool)

    async def find_started(
        self,
        key: str,
        call: ToolCall,  # noqa: ARG002 - a port
        state: AgentState,
    ) -> Outcome | None:
        return UNKNOWN if any(call.key == key for call in unknown_calls.read_calls(state)) else None


async def _await_value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class RunAgentStore:
    """An agent's state in a session of a client, under its lease.

    The result of a tool and the state with its answer are one commit.
    """

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
        core = self._run._core
        core.tools |= schema_hashes(self._tools)
        # It continues from its state, which has the answers of all recorded calls: it will not
        # repeat them.
        for record in core.journal:
            if record.kind == EFFECT:
                core.index.claim(record.about[1], record.place)
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

    async def carry_out(self, decision: ModelDecision, state: AgentState, finish: Finish) -> AgentState:
        if not isinstance(self._run.state, dict) or self._run.state.get("id") != state.id:
            self._run.state = state.to_json()
        tool = decision.tool
        watched = _ObservedTool(tool, finish, self._run)
        watched.asked = asked = self._ask_people(decision, watched.fn)
        watched.original = original = dict(decision.call.arguments or {})
        identities = _identities(asked)
        try:
            async with self._keep_apart(decision):
                result = await self._run._effect(asked)
        except ApprovalPendingError:
            raise
        except ResultNotKeptError as error:
            # A result that can't be stored exactly was given to the model as text, which can.
            outcome = Outcome(CallOutcome.FINISHED, str(error)) if watched.after is None else watched.outcome
        except EffectUnknownError as error:
            outcome = Outcome(CallOutcome.UNKNOWN, words=str(error)) if tool.is_declared else doubtful_outcome(tool)
        except (EffectBlockedError, ApprovalError) as error:
            outcome = Outcome(CallOutcome.FAILED, words=str(error))
        except Exception as error:
            if error is not watched.raised and not watched.was_raised_before(error):
                raise  # not the tool's: the store's, or the lease's
            outcome = failure(tool, error)
        else:
            if watched.after is not None:
                self._saved = self._run.state
                return watched.after  # saved with the result
            outcome = make_outcome(asked, original, result)  # it was carried out before
            if tool.is_declared and not tool.is_step and unknown_calls.is_repetition(decision):
                outcome = replace(outcome, words="; ".join(filter(None, (outcome.words, TAKEN_UP))))
        finally:
            watched.is_over = True
        if outcome.fate in DOUBTED and tool.is_declared and not isinstance(asked, StepCall):
            # An equal call of a later message means this one, as long as its outcome is unknown: it
            # is probed, or refused, or repeated with the same key.
            self._forget(asked, identities)
        after = finish(outcome)
        await self.save(after, tool.name)
        return after

    async def outcome(self, decision: ModelDecision, state: AgentState) -> Outcome:  # noqa: ARG002 - a port
        core, tool = self._run._core, decision.tool
        asked = self._ask_people(decision, tool.fn)
        known = core.journal.get(asked.place)
        decode = core.ctx.codec.decode
        if known is not None and known.status == OK:
            return Outcome(CallOutcome.FINISHED, decode(known.payload))
        if known is not None and known.status == FAILED:
            return Outcome(CallOutcome.FAILED)
        if isinstance(asked, StepCall):
            return unrecorded_outcome(tool)
        identities = _identities(asked)
        async with self._keep_apart(decision):
            _, entry = await ledger_match.match_entry(core, asked)
        self._forget(asked, identities)  # it was checked, and not carried out
        if entry is not None and entry.target is not None:
            entry = await ledger.find(core.ctx, entry.target, core.tree)
        if entry is None or entry.state in (EffectState.FAILED, EffectState.COMPENSATED):
            return NOT_STARTED
        if entry.state is EffectState.COMPENSATING:
            return UNKNOWN
        if entry.state is not EffectState.DONE or entry.result is None:
            return doubtful_outcome(tool)
        if entry.checkpoint is not None:
            return Outcome(CallOutcome.FAILED, words="it was carried out on another branch of this conversation")
        return Outcome(CallOutcome.FINISHED, decode(entry.result))

    async def find_started(
        self,
        key: str,
        call: ToolCall,
        state: AgentState,  # noqa: ARG002 - a port
    ) -> Outcome | None:
        core = self._run._core
        decode = core.ctx.codec.decode
        for ledger_entry in await ledger.load_entries(core.ctx, core.tree):
            if ledger_entry.tool != call.name or not _is_entry_of(ledger_entry, key, call, decode):
                continue
            # With a target, another call was approved and made instead.
            found = None if ledger_entry.target is None else await ledger.find(core.ctx, ledger_entry.target, core.tree)
            entry = found or ledger_entry
            if entry.state in IN_DOUBT:
                return UNKNOWN
            if entry.state is EffectState.DONE and entry.checkpoint is None and entry.result is not None:
                return Outcome(CallOutcome.FINISHED, decode(entry.result))
        return None

    @asynccontextmanager
    async def _keep_apart(self, decision: ModelDecision) -> AsyncIterator[None]:
        """Keep a call apart from those of its message with an unknown outcome.

        Meanwhile these hold their ledger entries, as if they were running.
        """
        core, held = self._run._core, {}
        for item in decision.doubted_with if decision.tool.is_declared else ():
            other = self._ask_people(item, item.tool.fn)
            if isinstance(other, StepCall):
                continue
            identities = _identities(other)
            id_, entry = await ledger_match.match_entry(core, other)
            if entry is None:
                self._forget(other, identities)
            else:
                held[id_] = other, identities
        core.index.in_flight |= held.keys()
        try:
            yield
        finally:
            core.index.in_flight -= held.keys()
            for other, identities in held.values():
                self._forget(other, identities)

    def _forget(self, asked: Any, identities: Collection[bytes]) -> None:
        self._run._core.index.forget_ordinal(asked.place, asked.tool, identities)

    def _ask_people(self, decision: ModelDecision, fn: Callable[..., Any]) -> Any:
        tool = decision.tool
        return self._run._effect_call(
            tool.name,
            fn,
            (),
            dict(decision.call.arguments or {}),
            kind=tool.effect_kind,
            key=decision.key,
            identity=tool.identity,
            volatile=tool.volatile,
            approve=tool.approve,
            probe=tool.probe,
            undo=tool.undo,
            on_repeat=tool.on_repeat,
            not_done=tool.not_done,
            raises=(),
            # The model gives a repeated call another id. So a declared call is known by its
            # identity, an undeclared one by the call: a new one is a new decision.
            is_named=not tool.is_declared,
            is_new_decision=not tool.is_declared,
        )


def _is_entry_of(entry: LedgerEntry, key: str, call: ToolCall, decode: Callable[[bytes], Any]) -> bool:
    """Return whether a ledger entry may be that of a call: by the call's key, or else by its arguments."""
    if entry.place is not None:
        return is_place_of_key(entry.place, key)
    recorded = decode(entry.arguments)
    return all(name in recorded and recorded[name] == value for name, value in (call.arguments or {}).items())


def _identities(asked: Any) -> Collection[bytes]:
    """Return the identities that a call may have in the ledger; after a lookup, it has one of them."""
    return () if isinstance(asked, StepCall) else asked.identities


def make_outcome(asked: Any, original: Mapping[str, Any], result: Any) -> Outcome:
    """Return the outcome of a call that was carried out, with the approver's arguments if they differ."""
    now: Mapping[str, Any] = getattr(asked, "arguments", original)
    changed = {name: now[name] for name in original if name in now and now[name] != original[name]}
    words = f"it was approved with other arguments: {as_text(changed)}" if changed else None
    return Outcome(CallOutcome.FINISHED, result, words)


class _ObservedTool:
    """A tool's function, which leaves the state with its answer to the commit that records its result."""

    def __init__(self, tool: Tool, finish: Finish, run: Any) -> None:
        self.asked: Any = None
        self.original: Mapping[str, Any] = {}
        self.is_over = False  # the thread of a cancelled turn keeps running: its result comes too late
        self.outcome = UNKNOWN
        self.after: AgentState | None = None
        self.raised: BaseException | None = None
        self._finish = finish
        self._run = run

        if inspect.iscoroutinefunction(tool.fn):

            @functools.wraps(tool.fn)
            async def called(*args: Any, **kwargs: Any) -> Any:
                try:
                    return self._report_result(await tool.fn(*args, **kwargs))
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
                return result if inspect.isawaitable(result) else self._report_result(result)

            self.fn = plainly

    def _report_result(self, result: Any) -> Any:
        if not self.is_over:
            self.outcome = make_outcome(self.asked, self.original, result)
            self.after = self._finish(self.outcome)
            self._run.state = self.after.to_json()
        return result

    def was_raised_before(self, error: Exception) -> bool:
        """Return whether the journal has this failure: then it was not raised now, and nothing was called."""
        return self.raised is None and any(raised is error for raised, _ in self._run._core._raised)


@dataclass(slots=True)
class ChildAgentStore:
    """A sub-agent's state, stored in its parent's under the call that it answers.

    Its tools are effects of the parent's run. So it is saved, rolled back and forked with the
    parent.
    """

    parent: AgentStore
    key: str
    state: AgentState  # of the parent

    async def load(self) -> AgentState | None:
        kept = self.state.metadata.get(SUBAGENTS, {}).get(self.key)
        return None if kept is None else AgentState.from_json(kept)

    async def save(self, state: AgentState, name: str) -> None:
        self.state = self._with(state)
        await self.parent.save(self.state, name)

    async def carry_out(self, decision: ModelDecision, state: AgentState, finish: Finish) -> AgentState:
        reached: list[AgentState] = []

        def outer(outcome: Outcome) -> AgentState:
            reached.append(finish(outcome))
            return self._with(reached[-1])

        self.state = await self.parent.carry_out(decision.within(self.key), self._with(state), outer)
        return reached[-1]

    async def outcome(self, decision: ModelDecision, state: AgentState) -> Outcome:
        return await self.parent.outcome(decision.within(self.key), self._with(state))

    async def find_started(self, key: str, call: ToolCall, state: AgentState) -> Outcome | None:
        return await self.parent.find_started(f"{self.key}/{key}", call, self._with(state))

    def _with(self, state: AgentState) -> AgentState:
        kept = {**self.state.metadata.get(SUBAGENTS, {}), self.key: state.to_json()}
        return self.state.with_metadata(SUBAGENTS, kept)


SUBAGENTS = "subagents"
"""Metadata of a state: the states of the sub-agents that are at work, by the key of the call."""
