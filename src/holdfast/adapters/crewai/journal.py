"""Records the model and tool calls of a turn, wherever in a crew, flow or agent they are made.

CrewAI tells a hook of the turn about each request, before the model is asked. The hook then makes the
model, and the tools of the agent, instances of subclasses that record their calls. That reaches
agents which are made during the turn: those of a flow's methods, managers and co-workers. Within
other turns, and outside of any, these classes do what the original ones do.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

from crewai.core.providers.human_input import reset_provider, set_provider
from crewai.hooks.dispatch import HookAborted, InterceptionPoint, scoped_hooks
from crewai.llms.base_llm import BaseLLM
from crewai.tools.agent_tools.base_agent_tools import BaseAgentTool
from crewai.tools.base_tool import BaseTool, Tool
from crewai.tools.tool_failure import ToolFailure

from holdfast.adapters.base.turn import FrameworkTurn, TurnEndedError
from holdfast.adapters.crewai.answer import dump_answer, is_plain, load_answer
from holdfast.adapters.crewai.people import HumanInput
from holdfast.adapters.crewai.result import dump_messages
from holdfast.backends.bridge.step import run_inline
from holdfast.errors import UsageError
from holdfast.model.effect import EffectKind
from holdfast.model.tool_effect import AGENT

_journal: ContextVar[CrewJournal | None] = ContextVar("holdfast_crewai_journal", default=None)
_calls_within: ContextVar[bool] = ContextVar("holdfast_crewai_within", default=False)
_DATE = re.compile(r"\n\nCurrent Date: [^\n]*")  # of agents with `inject_date`: another one tomorrow
_MADE_UP = re.compile(r"call_\d{9,}")  # an id that CrewAI made of an address, where the provider gives none
_NOT_ASKED = ("files", "raw_tool_call_parts")  # of a message: objects of the process


class CrewJournal:
    """The calls of one turn: `journal.run(crew.kickoff)`.

    `history` has the messages before the turn, which an agent sends with each request.
    """

    def __init__(self, turn: FrameworkTurn, history: Sequence[Mapping[str, Any]] = ()) -> None:
        self.turn = turn
        self.history = list(history)
        self.usage: Counter[str] = Counter()  # tokens of the turn's requests, replayed ones included
        self.talk: AgentTalk | None = None  # of a flow: its crews and agents return no messages to us
        self._swapped: list[Any] = []
        self._lock = threading.Lock()

    def run(self, call: Callable[[], Any]) -> Any:
        """Call a crew or an agent, and record its calls."""
        # Its context is a copy: CrewAI leaves events open in it if it is interrupted.

        def within() -> Any:
            with self.recording():
                return call()

        return copy_context().run(within)

    @contextmanager
    def recording(self) -> Iterator[None]:
        token, provider = _journal.set(self), set_provider(HumanInput(self))
        try:
            hooks = {
                InterceptionPoint.EXECUTION_START: [self._prepare_all],
                InterceptionPoint.PRE_MODEL_CALL: [self._prepare],
            }
            with scoped_hooks(hooks):
                yield
        finally:
            reset_provider(provider)
            _journal.reset(token)
            for item in self._swapped:
                _classes.give_back(item)

    def _prepare(self, context: Any) -> None:
        """Make the model and the tools of an agent that is about to ask record their calls."""
        executor = context.executor
        with self._ended_on_failure():
            self._swap_model(context.llm)
            for name in ("original_tools", "tools", "_parsed_tools"):
                for item in getattr(executor, name, None) or ():
                    self._swap_tool(item)

    def _prepare_all(self, context: Any) -> None:
        """Do the same for all agents of a crew that begins: some ask their model for a plan, without a hook."""
        begun = context.crew if context.crew is not None else context.flow
        agents = [*(getattr(begun, "agents", None) or ()), getattr(begun, "manager_agent", None)]
        with self._ended_on_failure():
            for agent in (*agents, getattr(begun, "agent", None)):
                self._swap_model(getattr(agent, "llm", None))
                for tool in getattr(agent, "tools", None) or ():
                    self._swap_tool(tool)
            for name in ("llm", "manager_llm", "planning_llm"):
                self._swap_model(getattr(begun, name, None))
            for task in getattr(begun, "tasks", None) or ():
                for tool in task.tools or ():
                    self._swap_tool(tool)

    def _swap_model(self, model: Any) -> None:
        if isinstance(model, BaseLLM):
            self._swap(model, _journaled_model)

    def _swap_tool(self, tool: Any) -> None:
        if isinstance(tool, BaseTool) and not isinstance(tool, BaseAgentTool):
            self._swap(tool, _journaled_function if isinstance(tool, Tool) else _journaled_tool)
        bound: Any = getattr(getattr(tool, "func", None), "__self__", None)
        is_of_a_tool = getattr(tool, "_original_tool", None) is bound
        if is_of_a_tool and isinstance(bound, BaseTool):
            self._swap_tool(bound)
            tool.func = bound._run  # it was bound before the tool had its new class

    @contextmanager
    def _ended_on_failure(self) -> Iterator[None]:
        """End the turn if calls can't be recorded. CrewAI would go on: it ignores failures of hooks."""
        try:
            yield
        except Exception as error:
            ended = self.turn._end(UsageError(f"the calls of an agent can't be recorded: {error!r}. Nothing was asked"))
            raise HookAborted(str(ended), source="holdfast") from error

    def _swap(self, item: Any, make_class: Callable[[type], type]) -> None:
        with self._lock:
            if not any(item is known for known in self._swapped):
                _classes.swap(item, make_class)
                self._swapped.append(item)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def call_model(self, llm: BaseLLM, ask: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        request = _Request(args, kwargs, self.history)

        def asked() -> dict[str, Any]:
            with _enter_recorded_call():
                before = dict(llm._token_usage)  # private: a model has no other counter of its own
                return request.dump(ask(*args, **kwargs), llm, before)

        with _ended_as_abort():
            load = partial(self._load, request, llm)
            return run_inline(self.turn.call_model(request.agent, request.identity, asked, load))

    async def call_model_async(self, llm: BaseLLM, ask: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        request = _Request(args, kwargs, self.history)

        async def asked() -> dict[str, Any]:
            with _enter_recorded_call():
                before = dict(llm._token_usage)
                return request.dump(await ask(*args, **kwargs), llm, before)

        with _ended_as_abort():
            load = partial(self._load, request, llm)
            return await self.turn.call_model(request.agent, request.identity, asked, load)

    def _load(self, request: _Request, llm: BaseLLM, recorded: Mapping[str, Any]) -> Any:
        usage = recorded.get("usage", {})
        if not all(isinstance(count, int) for count in usage.values()):
            raise TypeError("a count of tokens is none")
        with self._lock:
            if self.talk is not None:
                self.talk.add(request.agent, request.messages, recorded)
            self.usage.update(usage)
            if not request.was_asked:  # the answer is replayed: its tokens are counted as those of the others
                for name, count in usage.items():
                    llm._token_usage[name] = llm._token_usage.get(name, 0) + count
        return load_answer(recorded, request.response_model) if request.parts is None else request.parts

    def call_tool(self, tool: BaseTool, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        arguments = dict(inspect.signature(function).bind_partial(*args).arguments) | kwargs if args else kwargs
        own_failures: list[Exception] = []

        def call(**given: Any) -> Any:
            with _enter_recorded_call() if effect is None or effect.kind != AGENT else nullcontext():
                try:
                    result = function(**given)
                    if inspect.iscoroutine(result):
                        result = asyncio.run(result)
                except Exception as error:
                    own_failures.append(error)
                    if effect is not None and effect.kind != EffectKind.READ:
                        raise  # the ledger must see it
                    return _dump_failure(error)
            return _dump_result(tool, result)

        effect = self.turn.find_effect(tool.name, function)
        with _ended_as_abort():
            result = run_inline(
                self.turn.call_tool(
                    tool.name, arguments, call, function=function, failed=_dump_failure, load=_load_result
                )
            )
        if isinstance(result, _RecordedFailureError):
            raise own_failures[-1] if own_failures else result
        return result


class AgentTalk:
    """The messages of all agents of a turn, each once: a request repeats those of the former one."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._asked: dict[str, tuple[int, Any, dict[str, Any]]] = {}  # by agent: length and end of a request, answer

    def add(self, agent: str, messages: Sequence[Any], answer: Mapping[str, Any]) -> None:
        length, last, former = self._asked.get(agent, (0, None, {}))
        is_continued = 0 < length < len(messages) and messages[length - 1] == last
        new = dump_messages(messages[length:] if is_continued else messages, agent)
        if is_continued and new[0]["role"] == "assistant":
            # The former answer, perhaps with the result of a tool in it.
            place = next((number for number, item in enumerate(self._messages) if item is former), None)
            if place is not None:
                self._messages[place] = new.pop(0)
        reply = {"role": "assistant", "content": answer.get("text"), "tool_calls": answer.get("calls")}
        [dumped_reply] = dump_messages([reply], agent)
        self._messages += [*new, dumped_reply]
        self._asked[agent] = (len(messages), dict(messages[-1]), dumped_reply)

    def take(self) -> list[dict[str, Any]]:
        """Return the messages since the last call of this method."""
        taken, self._messages = self._messages, []
        return taken


class _Request:
    """One request to a model: who asks, and what identifies it."""

    def __init__(self, args: Any, kwargs: Any, history: list[Any]) -> None:
        bound = inspect.signature(BaseLLM.call).bind_partial(None, *args, **kwargs).arguments
        messages, tools = bound.get("messages"), bound.get("tools") or ()
        self.response_model = bound.get("response_model")
        self.agent = getattr(bound.get("from_agent"), "role", None) or "model"
        self.was_asked = False
        self.parts: list[Any] | None = None  # of Gemini, as it has made them
        self.messages: list[Any] = []
        if isinstance(messages, list) and messages:
            self.messages = messages
        else:
            self.messages = [{"role": "user", "content": str(messages)}]
        # The turn stands for the conversation before it: to digest that for each request would take long.
        known = len(history)
        begins = next((at for at in (0, 1) if known and self.messages[at : at + known] == history), None)
        asked = self.messages if begins is None else self.messages[:begins] + self.messages[begins + known :]
        self.identity = {
            "messages": [_identify(item) for item in asked],
            "is_continued": begins is not None,
            "tools": sorted(_name_of(tool) for tool in tools),
            "output": None if self.response_model is None else self.response_model.__qualname__,
        }

    def dump(self, answer: Any, llm: BaseLLM, before: Mapping[str, int]) -> dict[str, Any]:
        self.was_asked = True
        if isinstance(answer, list) and answer and all(type(item).__qualname__ == "Part" for item in answer):
            self.parts = answer  # CrewAI sends them back to the model, with signatures that only they have
        counted = Counter(llm._token_usage)
        counted.subtract(before)
        usage = {name: count for name, count in counted.items() if count}
        return {**dump_answer(answer), **({"usage": usage} if usage else {})}


def _identify(message: Any) -> Any:
    """Return what identifies a message in every life of the program."""
    if isinstance(message, str):
        return _DATE.sub("", message)
    if not isinstance(message, Mapping):
        return message
    kept = {name: value for name, value in message.items() if name not in _NOT_ASKED}
    if isinstance(kept.get("content"), str):
        kept["content"] = _DATE.sub("", kept["content"])
    if _MADE_UP.fullmatch(str(kept.get("tool_call_id"))):
        del kept["tool_call_id"]
    if isinstance(kept.get("tool_calls"), list):
        kept["tool_calls"] = [
            {name: item for name, item in call.items() if name != "id" or not _MADE_UP.fullmatch(str(item))}
            for call in kept["tool_calls"]
        ]
    return kept


def _name_of(tool: Any) -> str:
    described = tool.get("function", tool) if isinstance(tool, Mapping) else tool
    return str(described.get("name") if isinstance(described, Mapping) else getattr(described, "name", described))


# -- results of tools ------------------------------------------------------------------------------------------------

_FAILED, _REPORTED = "holdfast_failed", "holdfast_reported_failure"


class _RecordedFailureError(RuntimeError):
    """The failure of a tool in an earlier life: its text."""


def _dump_failure(error: Exception) -> dict[str, str]:
    return {_FAILED: str(error)}


def _dump_result(tool: BaseTool, result: Any) -> Any:
    """Return a result as plain data. Of other objects the model sees the text, so that is recorded."""
    if isinstance(result, ToolFailure):
        return {_REPORTED: result.model_dump(mode="json")}
    return result if is_plain(result) else tool.format_output_for_agent(result)


def _load_result(recorded: Any) -> Any:
    if isinstance(recorded, Mapping) and _FAILED in recorded:
        return _RecordedFailureError(recorded[_FAILED])
    is_report = isinstance(recorded, Mapping) and _REPORTED in recorded
    return ToolFailure.model_validate(recorded[_REPORTED]) if is_report else recorded


# -- the context of a call -------------------------------------------------------------------------------------------


def _find_journal() -> CrewJournal | None:
    """Return the journal of this turn; None within a call that is recorded as a whole."""
    return None if _calls_within.get() else _journal.get()


@contextmanager
def _enter_recorded_call() -> Iterator[None]:
    """Mark a call that is recorded as a whole: a model may call tools, or another model, by itself."""
    token = _calls_within.set(True)
    try:
        yield
    finally:
        _calls_within.reset(token)


@contextmanager
def _ended_as_abort() -> Iterator[None]:
    """Raise the end of a turn as the exception that CrewAI neither retries nor shows to the model.

    It is no BaseException: a task with `async_execution` would hide that, and its crew would wait forever.
    """
    try:
        yield
    except TurnEndedError as error:
        raise HookAborted(str(error), source="holdfast") from error


# -- classes -----------------------------------------------------------------------------------------------------------


class _SwappedClasses:
    """The objects that have a class which records calls, and how many turns need it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[tuple[type, Any], type] = {}
        self._users: dict[int, tuple[Any, type, int]] = {}  # by id: the object, its own class, how many turns

    def swap(self, item: Any, make_class: Callable[[type], type]) -> None:
        with self._lock:
            _, own, users = self._users.get(id(item), (item, type(item), 0))
            if not users:
                made = self._made.get((own, make_class)) or self._made.setdefault((own, make_class), make_class(own))
                item.__class__ = made
            self._users[id(item)] = (item, own, users + 1)

    def give_back(self, item: Any) -> None:
        with self._lock:
            _, own, users = self._users.pop(id(item))
            if users > 1:
                self._users[id(item)] = (item, own, users - 1)
            else:
                item.__class__ = own


_classes = _SwappedClasses()


def _journaled_model(kind: type) -> type:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        journal, ask = _find_journal(), kind.call.__get__(self)  # type: ignore[attr-defined]  # CrewAI's
        return ask(*args, **kwargs) if journal is None else journal.call_model(self, ask, args, kwargs)

    async def acall(self: Any, *args: Any, **kwargs: Any) -> Any:
        journal, ask = _find_journal(), kind.acall.__get__(self)  # type: ignore[attr-defined]  # CrewAI's
        if journal is None:
            return await ask(*args, **kwargs)
        return await journal.call_model_async(self, ask, args, kwargs)

    for method in (call, acall):  # the original has CrewAI's retries already
        setattr(method, "_crewai_rate_limit_wrapped", True)  # noqa: B010 - no attribute that a type checker knows
    return _subclass(kind, call=call, acall=acall)


def _journaled_tool(kind: type) -> type:
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        journal, run = _find_journal(), kind._run.__get__(self)  # type: ignore[attr-defined]  # CrewAI's
        return run(*args, **kwargs) if journal is None else journal.call_tool(self, run, args, kwargs)

    return _subclass(kind, _run=_run)


def _journaled_function(kind: type) -> type:
    """Return a class for tools of functions: `run` of these calls the function itself."""

    def find_function(self: Any) -> Any:
        journal, function = _find_journal(), self.__dict__["func"]
        if journal is None:
            return function
        return lambda *args, **kwargs: journal.call_tool(self, function, args, kwargs)

    made = _subclass(kind)
    made.func = property(find_function)  # type: ignore[attr-defined]  # it hides the field of the instance
    return made


def _subclass(kind: type, **members: Any) -> type:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, **members}
    return type(kind)(kind.__name__, (kind,), names)
