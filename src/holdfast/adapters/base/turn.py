"""One turn of an agent: its model and tool calls, each recorded once.

A framework runs its loop from the top after a crash. Calls that were recorded return their recorded
results, so the loop arrives where it was cut off without asking a model or calling a tool again:

- A model call is known by its agent, a digest of the request, and its number among equal ones. A
  request that differs from every recorded one is asked, so no answer is ever given to another
  question.
- A tool call is known by the id that the model gave it and by its arguments: models of sub-agents
  that run in parallel may give equal ids. What happens to a call that was under way depends on what
  was declared (`Effect`): an effect is looked up in the ledger, a read is repeated, and for an
  undeclared tool the model gets the answer that the outcome is unknown.

The turn is written once, as coroutines. Over a `SyncRun` they never suspend, so `run_inline` steps
them.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.effect_locks import EffectLocks
from holdfast.adapters.base.loaded_list import LoadedList
from holdfast.adapters.base.state_copy import StateCopy, list_in, restored_elements
from holdfast.adapters.base.step_function import StepFunctions, as_is, result_of, step_name
from holdfast.adapters.base.unreadable import refuse_unreadable
from holdfast.errors import (
    ApprovalRejectedError,
    EffectBlockedError,
    EffectNotDoneError,
    EffectUnknownError,
    HoldfastError,
    StepFailedError,
    UsageError,
)
from holdfast.model.approval import ApprovalStatus
from holdfast.model.effect import Done, EffectKind
from holdfast.model.tool_effect import AGENT, Effect, find_declared
from holdfast.runs.api import AsyncScope, Run, SyncRun
from holdfast.runs.call_binding import function_name

INTERRUPTED = (
    "This call was interrupted, and its outcome is unknown: it may or may not have been carried out. It was not "
    "repeated. If you call it again, that is a new call, and it is carried out."
)
OUTCOME_UNKNOWN = (
    "This call was interrupted, and its outcome is unknown: it may or may not have been carried out. Don't repeat it "
    "before you have found out."
)
_TOOL_FAILURES = (EffectNotDoneError, StepFailedError)  # failures of the tool itself: the framework tells the model


class TurnEndedError(BaseException):
    """The turn can't continue. No `except Exception` of a framework may tell that to the model instead.

    `FrameworkTurn.ended_by` has the error that the caller gets.
    """


class CallPausedError(BaseException):
    """Raised by a tool call that has stopped at a question to a person: the call is made again.

    It is no failure of the tool, and no interruption: the tool itself has given up, at a known place.
    """


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """A person's answer to a question of the framework."""

    is_approved: bool
    arguments: Mapping[str, Any] | None = None  # the ones to use instead, if the person changed them
    by: str | None = None
    note: str | None = None

    def to_text(self, approved: str = "APPROVE", rejected: str = "REJECT") -> str:
        """Return the answer to a question that wants a text: the note, or else what was decided."""
        return self.note or (approved if self.is_approved else rejected)


class ModelCall(NamedTuple):
    """A model call that is open: its recorded answer, or None, and what records one."""

    answer: Any
    record: Callable[[Any], Coroutine[Any, Any, None]]


class FrameworkTurn:
    """A turn that is under way: what the adapter asks instead of the model and the tools.

    `state` is the adapter's own, as the last finished turn left it: a copy, which may be changed and
    handed out. `key` identifies the turn; `client` is the store's.
    """

    def __init__(
        self, run: Run | SyncRun, client: Any, key: str, state: Mapping[str, Any], tools: Mapping[str, Effect]
    ) -> None:
        self.key = key
        self.state = StateCopy(state, run._core.ctx.codec)
        self._restored = state
        self.ended_by: HoldfastError | None = None
        self.begun_after: str | None = None  # the checkpoint before a turn that was begun in this life
        self._run = run
        self.client = client
        self._tools = tools
        self._life = secrets.token_hex(8)
        self._counted: Counter[str] = Counter()
        self._given_back: defaultdict[str, list[str]] = defaultdict(list)
        self._lock = threading.Lock()
        is_awaited = isinstance(run, AsyncScope)
        self._functions = StepFunctions(is_awaited=is_awaited)
        self._effects = EffectLocks(is_awaited=is_awaited)
        self._parent: FrameworkTurn | None = None

    @property
    def session_id(self) -> str:
        return self._run.session_id

    @property
    def is_start_saved(self) -> bool:
        """Whether the store has the start of the turn (`open_turn(..., saves_start=False)`)."""
        return self._run.checkpoint_id != self.begun_after

    def open_part(self, name: str) -> FrameworkTurn:
        """Return a part of the turn that counts its calls on its own, for frameworks that run parts again.

        The next run of the part finds the calls of the last one, whatever other parts do meanwhile.
        """
        part = FrameworkTurn(self._run, self.client, f"{self.key}/{name}", {}, self._tools)
        part.state, part._restored = self.state, self._restored
        part._life, part._parent = self._life, self
        part._effects = self._effects
        return part

    def list_names(self) -> list[str]:
        """Return the names of the lists that the state had before the turn."""
        return [name for name, value in self._restored.items() if type(value) is list]

    def stored_list(self, name: str) -> Sequence[Any]:
        """Return a list as the state had it before the turn. It must neither be changed nor handed out."""
        return list_in(self._restored, name)

    def load_list(self, name: str, loaded: LoadedList) -> list[Any]:
        """Return a list of the state before the turn as objects of the framework, which may be handed out."""
        return loaded.take(self.stored_list(name), self._run._core.ctx.codec)

    # -- the model -----------------------------------------------------------------------------------------------------

    async def call_model(
        self, agent: str, request: Any, call: Callable[[], Any], load: Callable[[Any], Any] = as_is
    ) -> Any:
        """Return the recorded answer to a request, or call the model and record its answer.

        `request` is plain data without anything that changes from life to life, such as times and
        random ids. `call` returns the answer as plain data; for an awaited run it is a coroutine
        function. `load` makes an object of the framework of the answer. A failure is raised, not
        recorded: a framework that tries again asks the same question.
        """
        self._refuse_if_ended()
        key = self._call_key("model", agent, request)
        found = self._find_call(agent, key)
        if found is not None:
            return self._load_answer(found, load)
        with self._release_on_failure(key):
            answer = await result_of(call())
            await self._record(step_name(agent), key, {"model": answer})
        return load(answer)

    async def stream_model(
        self,
        agent: str,
        request: Any,
        stream: Callable[[], AsyncIterator[Any]],
        collect: Callable[[Any], Any],
        replay: Callable[[Any], Iterable[Any]],
    ) -> AsyncIterator[Any]:
        """Yield the events of a model's answer as they come, or those of a recorded one.

        `collect` is given each event and returns the whole answer as plain data at the last one,
        None before. The answer is recorded before its last event is yielded. `replay` makes events
        of a recorded answer. A stream that ends before its answer is complete is not recorded.
        """
        self._refuse_if_ended()
        key = self._call_key("model", agent, request)
        found = self._find_call(agent, key)
        if found is not None:
            for event in self._load_answer(found, lambda answer: list(replay(answer))):
                yield event
            return
        answer = None
        with self._release_on_failure(key):
            async for event in stream():
                answer = collect(event)
                if answer is not None:
                    await self._record(step_name(agent), key, {"model": answer})
                yield event

    @asynccontextmanager
    async def open_model_call(
        self, agent: str, request: Any, load: Callable[[Any], Any] = as_is
    ) -> AsyncIterator[ModelCall]:
        """Open a model call for frameworks that read a stream within a block of their own.

        If `answer` is None, the caller asks the model and records its answer before the block ends.
        `load` makes the `answer` of a recorded one.
        """
        self._refuse_if_ended()
        key = self._call_key("model", agent, request)
        found = self._find_call(agent, key)

        async def record(answer: Any) -> None:
            await self._record(step_name(agent), key, {"model": answer})

        with self._release_on_failure(key):
            yield ModelCall(None if found is None else self._load_answer(found, load), record)

    def _load_answer(self, found: Done, load: Callable[[Any], Any]) -> Any:
        with self.guard_record():
            return load(found.result["model"])

    @contextmanager
    def guard_record(self) -> Iterator[None]:
        """End the turn if a recorded answer or result can't be read: a framework may swallow an error."""
        try:
            with refuse_unreadable(f"a record of the turn under way in session {self.session_id!r:.60}"):
                yield
        except HoldfastError as error:
            raise self._end(error) from error

    # -- tools ---------------------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        call: Callable[..., Any],
        *,
        call_id: str | None = None,
        function: Any = None,
        answer: Callable[[str], Any] = lambda text: text,
        failed: Callable[[Exception], Any] | None = None,
        raises: Sequence[type[Exception]] = (),
        required: Collection[str] = (),
        load: Callable[[Any], Any] = as_is,
    ) -> Any:
        """Return the recorded result of a tool call, or make the call as the tool was declared.

        `call` takes the arguments by name and returns the result as plain data; for an awaited run
        it is a coroutine function. `function` is the tool's own, which may carry a declaration.
        `answer` makes a result of a text, for calls that were not made or have an unknown outcome.
        `failed` makes a result of a failure of an effect, or raises it. The result is recorded, so
        that the model reads the same in every life. An effect is not carried out without the arguments
        that are `required`. A call of an undeclared tool that raises `CallPausedError` is made again
        by the next life. `load` makes an object of the framework of the result.
        """
        self._refuse_if_ended()
        declared = self.find_effect(tool, function)
        if declared is not None and declared.kind == AGENT:
            return load(await result_of(call(**arguments)))
        try:
            if declared is None or declared.kind == EffectKind.READ:
                result = await self._call_step(tool, arguments, call, declared, call_id, answer, raises)
            elif (missing := declared.find_missing(arguments, function, required)) is not None:
                result = answer(f"This call was not carried out: it has no argument {missing!r:.60}")  # left out
            else:
                made = self._functions.rename(call, function_name(function) if callable(function) else tool)
                result = await self._call_effect(tool, arguments, made, declared, call_id, failed, raises)
        except _TOOL_FAILURES:
            raise
        except (ApprovalRejectedError, EffectBlockedError) as error:
            result = answer(f"This call was not carried out: {error}")
        except EffectUnknownError:
            result = answer(OUTCOME_UNKNOWN)
        except HoldfastError as error:
            raise self._end(error) from error
        with self.guard_record():
            return load(result)

    async def _call_step(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        call: Callable[..., Any],
        declared: Effect | None,
        call_id: str | None,
        answer: Callable[[str], Any],
        raises: Sequence[type[Exception]],
    ) -> Any:
        """Make a call that is recorded when it is finished; an undeclared tool's also when it starts."""
        key = self._call_key("tool", tool, [call_id, arguments])
        attempt = key  # of an undeclared tool: a call that has paused begins another one
        if declared is None:
            while self._run.find_call(step_name(f"{tool} paused"), key=attempt, is_optional=True) is not None:
                attempt = f"{attempt}:again"
            call = await self._once_started(tool, call, attempt, answer)
        made = self._functions.record(call, "result", arguments, tool=tool, id=call_id)
        try:
            recorded = await result_of(self._run.step(step_name(tool), made, key=key, raises=raises))
        except CallPausedError:
            if declared is None:
                await self._record(step_name(f"{tool} paused"), attempt, self._life)
            raise
        with self.guard_record():
            return recorded["result"]

    async def _call_effect(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        call: Callable[..., Any],
        declared: Effect,
        call_id: str | None,
        failed: Callable[[Exception], Any] | None,
        raises: Sequence[type[Exception]],
    ) -> Any:
        """Make a call that the ledger knows. A failure that the model reads is recorded in the turn."""
        options = {**declared.effect_options(), "raises": raises}
        reserved = next((name for name in arguments if name in (*options, "key", "was")), None)
        if reserved is not None:
            raise UsageError(
                f"tool {tool!r:.60} has an argument {reserved!r}, which is an option of an effect. Give the argument "
                "another name, or leave the tool undeclared"
            )
        effect_key = declared.key_of(tool, arguments)
        async with self._effects.hold(tool, effect_key):
            self._refuse_if_ended()
            failure = self._call_key("failure", tool, [call_id, arguments])
            found = self._run.find_call(step_name(f"{tool} failed"), key=failure, is_optional=True)
            if found is not None:
                return found.result
            try:
                return await result_of(self._run.effect(step_name(tool), call, key=effect_key, **options, **arguments))
            except Exception as error:
                if failed is None or (isinstance(error, HoldfastError) and not isinstance(error, _TOOL_FAILURES)):
                    raise
                result = await result_of(failed(error))
                # The model reads this failure. A further call of the effect is another try, in every life.
                self._run._core.reopen_failures(error)
                await self._record(step_name(f"{tool} failed"), failure, result)
                return result

    def find_effect(self, tool: str, function: Any = None) -> Effect | None:
        """Return the declaration of a tool, by its name or on its function; None if there is none."""
        return self._tools.get(tool) or find_declared(function)

    async def _once_started(
        self, tool: str, call: Callable[..., Any], key: str, answer: Callable[[str], Any]
    ) -> Callable[..., Any]:
        """Record that the call is started; return the call, or the answer if an earlier life has started it."""
        return call if await self.start_call(tool, key) else self._functions.constant(answer(INTERRUPTED))

    async def start_call(self, tool: str, key: str) -> bool:
        """Record that a call is started; return False if an earlier life has started it."""
        name = step_name(f"{tool} started")
        life = await result_of(self._run.step(name, self._functions.constant(self._life), key=key))
        return bool(life == self._life)

    # -- people --------------------------------------------------------------------------------------------------------

    async def request_approval(
        self, tool: str, arguments: Mapping[str, Any], *, call_id: str, approvers: str | None = None
    ) -> ApprovalAnswer:
        """Return a person's answer to a question of the framework; end the turn while there is none.

        The question waits in `holdfast approvals`. Any process may answer it; the next life of the
        program asks again, and gets the answer.
        """
        [answer] = await self.request_approvals([(tool, arguments, call_id)], approvers=approvers)
        return answer

    async def request_approvals(
        self,
        calls: Sequence[tuple[str, Mapping[str, Any], str]],
        *,
        approvers: str | None = None,
        summaries: Sequence[str | None] = (),
    ) -> list[ApprovalAnswer]:
        """Return people's answers to questions about several calls: tool, arguments and id of each.

        All of them wait at the same time. `summaries` has a text for people to each call.
        """
        self._refuse_if_ended()
        keyed = [(self._call_key("approval", tool, id_), tool, arguments) for tool, arguments, id_ in calls]
        client, session = self.client, self._run.session_id
        texts = summaries or [None] * len(keyed)
        try:
            asked = [
                await result_of(
                    client.request_approval(session, tool, arguments, key=key, approvers=approvers, summary=text)
                )
                if self._run.find_call("approval", key=key, is_optional=True) is None
                else None
                for (key, tool, arguments), text in zip(keyed, texts, strict=True)
            ]
            return [await self._answer_of(item, key, tool) for item, (key, tool, _) in zip(asked, keyed, strict=True)]
        except HoldfastError as error:
            raise self._end(error) from error

    def has_answer(self, tool: str, call_id: str) -> bool:
        """Return whether the answer to a question is recorded, before it is asked in this life."""
        key = f"{self._place_of('approval', tool, call_id)}:0"
        return self._run.find_call("approval", key=key, is_optional=True) is not None

    async def _answer_of(self, asked: Any, key: str, tool: str) -> ApprovalAnswer:
        """Return the recorded answer, or record the decision of an approval that was asked for."""
        found = self._run.find_call("approval", key=key, is_optional=True)
        if found is not None:
            with self.guard_record():
                return ApprovalAnswer(**found.result)
        if asked.is_pending:
            asked = await result_of(self.client.wait_for_approval(asked.approval_id, seconds=0))
        is_rejected = asked.status is ApprovalStatus.REJECTED
        if not is_rejected and not asked.is_granted:
            raise UsageError(f"approval {asked.short_id} is {asked.status}: it can't be used. Decide a new one")
        decision = asked.decision
        given = {
            "is_approved": not is_rejected,
            "arguments": None if decision.arguments is None else dict(decision.arguments),
            "by": decision.by,
            "note": decision.note,
        }
        await self._record("approval", key, given)
        if not is_rejected:
            session = self._run.session_id
            await result_of(self.client.use_approval(asked.approval_id, session, tool, asked.arguments, by=key))
        return ApprovalAnswer(**given)

    # -- records -------------------------------------------------------------------------------------------------------

    async def call_once(
        self, name: str, call: Callable[[], Any], *, key: str = "", load: Callable[[Any], Any] = as_is
    ) -> Any:
        """Return the recorded result of a part of the turn that is neither model nor tool, or call it.

        `load` makes an object of the framework of the result.
        """
        self._refuse_if_ended()
        place = self._call_key("part", name, key)
        try:
            result = await result_of(self._run.step(step_name(name), call, key=place))
        except _TOOL_FAILURES:
            raise
        except HoldfastError as error:
            raise self._end(error) from error
        with self.guard_record():
            return load(result)

    async def call_part(
        self, name: str, call: Callable[[], Any], *, key: str = "", load: Callable[[Any], Any] = as_is
    ) -> Any:
        """Return the recorded result of a part of the turn, or call it and record its result.

        `key` tells parts of one name apart, where threads may begin them in another order. `load` makes
        an object of the framework of the result.

        Calls within it are recorded, too, in any thread: if the part is cut off, it is called again, and
        finds their results. A result that can't be stored is not recorded: the part is called again.
        """
        self._refuse_if_ended()
        place = self._call_key("part", name, key)
        found = self._find_call(name, place)
        if found is not None:
            with self.guard_record():
                return load(found.result)
        with self._release_on_failure(place):
            result = await result_of(call())
            if self.is_storable(result):
                await self._record(step_name(name), place, result)
        return load(result)

    def is_storable(self, value: Any) -> bool:
        """Return whether the store keeps a value as it is."""
        try:
            self._run._core.ctx.codec.encode(value)
        except HoldfastError:
            return False
        return True

    async def save_state(self, name: str, state: Mapping[str, Any]) -> None:
        """Save the framework's own state in the middle of the turn; a later life finds it in `state`.

        A state that can't be saved ends the turn: the framework may only log such an error.
        """
        self._refuse_if_ended()
        self.put_state(state)
        try:
            await result_of(self._run.save(step_name(name)))
        except HoldfastError as error:
            raise self._end(error) from error

    def put_state(self, state: Mapping[str, Any], appended: Mapping[str, Sequence[Any]] = MappingProxyType({})) -> None:
        """Replace parts of the framework's own state; they are saved with the next record.

        `appended` has the new elements of lists that are as they were otherwise.
        """
        codec = self._run._core.ctx.codec
        added = {
            name: restored_elements(elements, codec, f"execution_state.{name}", len(list_in(self._run.state, name)))
            for name, elements in appended.items()
            if elements
        }
        if added:
            self._run._core.extend_lists(added)
        self.state.update({**state, **{name: self._run.state[name] for name in added}})
        self._run.state = {**self._run.state, **state}

    async def append_to_state(self, name: str, added: Mapping[str, Sequence[Any]]) -> None:
        """Append to lists of the framework's own state; a save costs as much as the new elements.

        A turn that waits for a person is appended to, too: the framework's log may say that it waits.
        """
        for item in added:
            list_in(self._run.state, item)
        self._run._core.extend_lists(added)
        self.state.update({item: self._run.state[item] for item in added})
        try:
            await result_of(self._run.save(step_name(name)))
        except HoldfastError as error:
            raise self._end(error) from error

    async def finish(self, entry: str, recorded: Any) -> None:
        """Record the result of the turn, in one commit with the run's new state."""
        await result_of(self._run.step(step_name(entry), self._functions.constant(recorded), key=self.key))

    def _find_call(self, name: str, key: str) -> Done | None:
        """Return the recorded result of a call; None if it is to be made."""
        try:
            found: Done | None = self._run.find_call(step_name(name), key=key)
        except HoldfastError as error:  # of a replay that makes no call
            raise self._end(error) from error
        return found

    async def _record(self, name: str, key: str, value: Any) -> None:
        try:
            await result_of(self._run.step(name, self._functions.constant(value), key=key))
        except HoldfastError as error:
            raise self._end(error) from error

    def _call_key(self, kind: str, name: str, identity: Any) -> str:
        """Return the identity of a call: the turn, the callee, the arguments, and the number among equal ones."""
        place = self._place_of(kind, name, identity)
        with self._lock:
            if self._given_back[place]:
                return f"{place}:{self._given_back[place].pop()}"
            number = self._counted[place]
            self._counted[place] += 1
        return f"{place}:{number}"

    def _place_of(self, kind: str, name: str, identity: Any) -> str:
        return f"{self.key}:{kind}:{digest([name, identity])}"

    @contextmanager
    def _release_on_failure(self, key: str) -> Iterator[None]:
        """Give the identity of a call that failed to the next equal one, which tries again.

        It is one that has a record, then: the next life, which has no failure, finds it.
        """
        try:
            yield
        except Exception:
            place, _, number = key.rpartition(":")
            with self._lock:
                self._given_back[place].append(number)
            raise

    def _end(self, error: HoldfastError) -> TurnEndedError:
        self.ended_by = self.ended_by or error
        if self._parent is not None:
            self._parent._end(error)
        return TurnEndedError(str(error))

    def _refuse_if_ended(self) -> None:
        if self._parent is not None:
            self._parent._refuse_if_ended()
        if self.ended_by is not None:
            raise TurnEndedError(str(self.ended_by))
