"""Records the model and tool calls of a turn: of an agent, and of the agents that it manages.

For the time of a turn, `model` and `tools` of each agent are replaced by ones that record their calls.
smolagents hands these to its loop, to threads and to the interpreter of code, so no call passes by.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from smolagents import default_tools
from smolagents.agent_types import AgentText, handle_agent_input_types, handle_agent_output_types
from smolagents.agents import CodeAgent, MultiStepAgent
from smolagents.local_python_executor import LocalPythonExecutor
from smolagents.models import (
    ChatMessage,
    ChatMessageStreamDelta,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
    agglomerate_stream_deltas,
)
from smolagents.remote_executors import RemotePythonExecutor

from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.known_tools import KnownTools
from holdfast.adapters.base.shared_target import hold
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.smolagents.steps import managed_agents
from holdfast.adapters.smolagents.values import (
    ANSWERED,
    FAILED,
    ValueIdentity,
    dump_answer,
    dump_failure,
    dump_value,
    is_lost,
    load_answer,
    load_failure,
    load_usage,
    load_value,
    warn_of_lost,
)
from holdfast.backends.bridge.step import run_inline, run_inline_context
from holdfast.errors import UsageError
from holdfast.model.effect import EffectKind
from holdfast.model.tool_effect import AGENT, Effect, find_declared

_MADE_UP = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # an id that smolagents has drawn by lot
# Tools of smolagents that only read: they are called again, and need no declaration.
_READERS = (
    default_tools.UserInputTool,
    default_tools.DuckDuckGoSearchTool,
    default_tools.GoogleSearchTool,
    default_tools.ApiWebSearchTool,
    default_tools.WebSearchTool,
    default_tools.VisitWebpageTool,
    default_tools.WikipediaSearchTool,
)


class UnansweredCallError(Exception):
    """A tool call without a result: the code of the agent can't continue after it. The text tells why."""


class SmolJournal:
    """The calls of one turn: `with journal.recording(agent, "clerk"): agent.run(...)`."""

    def __init__(self, turn: FrameworkTurn) -> None:
        self.turn = turn
        self.identity = ValueIdentity()

    @contextmanager
    def recording(self, agent: MultiStepAgent, name: str) -> Iterator[None]:
        agents = {id(item): (item, label) for item, label in _team(agent, name)}.values()
        for item, _ in agents:
            self._check(item)
        own = [(item, item.model, item.tools) for item, _ in agents]
        try:
            for item, label in agents:
                item.model = JournaledSmolModel(item.model, self, item, label)
                item.tools = {key: self._wrap(tool, item) for key, tool in item.tools.items()}
            yield
        finally:
            for item, model, tools in own:
                item.model, item.tools = model, tools
                executor = getattr(item, "python_executor", None)
                if isinstance(executor, LocalPythonExecutor):  # it has the tools of its last run
                    executor.send_tools({**tools, **item.managed_agents})

    def _check(self, agent: MultiStepAgent) -> None:
        """Raise if calls of the agent could not be recorded."""
        for name, tool in agent.tools.items():
            declared = self._find_effect(tool)
            if declared is not None and declared.kind == AGENT:
                raise UsageError(
                    f"tool {name!r:.60} is declared as an agent: calls within a tool of smolagents can't be recorded. "
                    "Give the agent to managed_agents=, or leave the tool undeclared. Nothing was asked"
                )
            is_own = isinstance(tool, default_tools.FinalAnswerTool)
            if not is_own and isinstance(getattr(agent, "python_executor", None), RemotePythonExecutor):
                raise UsageError(
                    f"the agent runs its code in another process ({type(agent.python_executor).__name__}), where calls "
                    f"of the tool {name!r:.60} can't be recorded. Use executor_type='local', or an agent without tools"
                )

    def _wrap(self, tool: Any, agent: MultiStepAgent) -> Any:
        is_final = type(tool) is default_tools.FinalAnswerTool  # it returns what it is given
        return tool if is_final else JournaledSmolTool(tool, self, is_called_by_code=isinstance(agent, CodeAgent))

    def _find_effect(self, tool: Any) -> Effect | None:
        return self.turn.find_effect(tool.name, _declaration(tool))

    # -- calls ---------------------------------------------------------------------------------------------------------

    def identify(self, agent: MultiStepAgent, messages: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what identifies a request in every life of the program.

        The turn stands for the messages before its task: to digest them for each request would take long.
        """
        begins = next((at for at in range(len(messages) - 1, 0, -1) if _is_task(messages[at], agent.task)), 1)
        asked = [*messages[:1], *messages[begins:]]
        tools = options.get("tools_to_call_from") or ()
        others = {name: value for name, value in options.items() if name != "tools_to_call_from"}
        return {
            "messages": self.identity.of(list(asked)),
            "is_continued": begins > 1,
            "tools": sorted(str(tool.name) for tool in tools),
            "options": self.identity.of(others),
        }

    def call_tool(self, tool: Any, arguments: dict[str, Any], *, is_called_by_code: bool) -> Any:
        """Return the result of a call, recorded or new; raise what the tool raised."""
        effect = self._find_effect(tool)
        is_effect = effect is not None and effect.kind != EffectKind.READ
        described = {name: self.identity.describe(value) for name, value in arguments.items()}
        replaced = {name for name, value in described.items() if value is not arguments[name]}
        failures: list[Exception] = []
        results: list[Any] = []  # of a call in this life: the object itself

        def call(**given: Any) -> Any:
            # A person who approves may have changed arguments. Of objects, they have seen the description.
            real = {
                name: arguments[name] if name in replaced and item == described[name] else item
                for name, item in given.items()
            }
            try:
                results.append(tool(**real))
            except Exception as error:
                failures.append(error)
                if is_effect:
                    raise  # the ledger must see it
                return dump_failure(error)
            return dump_value(results[-1])

        def answer(text: str) -> dict[str, str]:
            return {ANSWERED: text}

        recorded = run_inline(
            self.turn.call_tool(
                tool.name, described, call, function=_declaration(tool), answer=answer, failed=dump_failure
            )
        )
        if type(recorded) is dict and recorded.keys() == {FAILED}:
            with self.turn.guard_record():
                failure = failures[-1] if failures else load_failure(recorded[FAILED])
            raise failure
        if type(recorded) is dict and recorded.keys() == {ANSWERED}:
            if is_called_by_code:
                raise UnansweredCallError(recorded[ANSWERED])
            return AgentText(recorded[ANSWERED])
        is_read = effect is not None and not is_effect
        if is_lost(recorded) and is_called_by_code and not is_read and results:
            then = "after a crash this call fails for the code of the agent. Declare the tool as 'read' if it may be"
            warn_of_lost(f"the result of {tool.name} is", results[-1], f"{then} called again")
        if results:
            return results[-1]
        if is_lost(recorded) and is_called_by_code:
            if is_read:
                return tool(**arguments)
            raise UnansweredCallError(
                f"The call of {tool.name} was finished before a restart, but its result could not be stored. If you "
                "call it again, that is a new call, and it is carried out."
            )
        with self.turn.guard_record():
            return load_value(recorded)

    def load_answer(self, recorded: Any) -> ChatMessage:
        with self.turn.guard_record():
            return load_answer(recorded)


def hold_team(agent: MultiStepAgent) -> AbstractContextManager[None]:
    """Hold an agent and all that it manages for one turn; raise if another turn has one of them."""
    return hold([member for member, _ in _team(agent, "")], "agent")


def _team(agent: MultiStepAgent, name: str) -> Iterator[tuple[MultiStepAgent, str]]:
    """Yield an agent and all that it manages, with their names."""
    yield agent, name
    for key, value in managed_agents(agent).items():
        yield from _team(value, key)


def find_tools(agent: MultiStepAgent) -> KnownTools:
    """Return the tools of an agent, and of those that it manages."""
    known = KnownTools()
    for item, _ in _team(agent, ""):
        known.add(tool.name for tool in item.tools.values())
    return known


def _is_task(message: Any, task: str | None) -> bool:
    """Return whether a message gives an agent its task."""
    content = message.content if isinstance(message, ChatMessage) else None
    first = content[0] if isinstance(content, list) and content else {}
    return isinstance(first, Mapping) and first.get("text") == f"New task:\n{task}"


def _declaration(tool: Any) -> Any:
    """Return what carries the declaration of a tool: the tool, its class, or the function that it calls."""
    if isinstance(tool, _READERS):
        return _reader
    return tool if find_declared(tool) is not None else getattr(tool, "forward", None)


@Effect("read")
def _reader() -> None:
    """Carry the declaration of smolagents' own tools that only read."""


# -- stand-ins ---------------------------------------------------------------------------------------------------------


class JournaledSmolModel:
    """A model that records its answers. Everything else is the original model's."""

    def __init__(self, model: Any, journal: SmolJournal, agent: MultiStepAgent, name: str) -> None:
        self._model = model
        self._journal = journal
        self._agent = agent
        self._name = name
        self._streams: Any = getattr(model, "generate_stream", None)

    def __getattr__(self, name: str) -> Any:
        if name == "generate_stream" and self._streams is not None:  # smolagents asks whether the model has it
            return self._generate_stream
        return getattr(self._model, name)

    def generate(self, messages: Sequence[Any], *args: Any, **options: Any) -> ChatMessage:
        live: list[ChatMessage] = []

        def ask() -> dict[str, Any]:
            live.append(self._model.generate(messages, *args, **options))
            return dump_answer(live[-1])

        request = self._journal.identify(self._agent, messages, {**options, "args": args})
        recorded = run_inline(self._journal.turn.call_model(self._name, request, ask))
        return live[-1] if live else self._journal.load_answer(recorded)

    __call__ = generate

    def _generate_stream(self, messages: Sequence[Any], *args: Any, **options: Any) -> Iterator[ChatMessageStreamDelta]:
        request = self._journal.identify(self._agent, messages, {**options, "args": args})
        with run_inline_context(self._journal.turn.open_model_call(self._name, request, _as_delta)) as call:
            if call.answer is not None:
                yield call.answer
                return
            deltas: list[ChatMessageStreamDelta] = []
            for delta in self._streams(messages, *args, **options):
                if deltas:
                    yield deltas[-1]
                deltas.append(delta)
            run_inline(call.record(dump_answer(agglomerate_stream_deltas(deltas))))  # before the last one is read
            yield from deltas[-1:]

    def parse_tool_calls(self, message: ChatMessage) -> ChatMessage:
        """Parse calls out of a text as the model does, but with ids that are the same in every life."""
        parsed: ChatMessage = self._model.parse_tool_calls(message)
        for number, call in enumerate(parsed.tool_calls or ()):
            if _MADE_UP.fullmatch(str(call.id)):
                call.id = f"call_{digest([self._journal.turn.key, message.content, number])}"
        return parsed


def _as_delta(recorded: Mapping[str, Any]) -> ChatMessageStreamDelta:
    calls = [
        ChatMessageToolCallStreamDelta(
            index=number,
            id=call["id"],
            type="function",
            function=ChatMessageToolCallFunction(name=call["name"], arguments=_as_text(call["arguments"])),
        )
        for number, call in enumerate(recorded.get("calls") or ())
    ]
    return ChatMessageStreamDelta(recorded.get("content"), calls or None, load_usage(recorded.get("usage")))


def _as_text(arguments: Any) -> str:
    """Return arguments as a stream has them."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


class JournaledSmolTool:
    """A tool that records its calls. Everything else is the original tool's."""

    def __init__(self, tool: Any, journal: SmolJournal, *, is_called_by_code: bool) -> None:
        self._tool = tool
        self._journal = journal
        self._is_called_by_code = is_called_by_code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    def __call__(self, *args: Any, sanitize_inputs_outputs: bool = False, **kwargs: Any) -> Any:
        if sanitize_inputs_outputs:
            args, kwargs = handle_agent_input_types(*args, **kwargs)
        arguments = _bind(self._tool, args, kwargs)
        result = self._journal.call_tool(self._tool, arguments, is_called_by_code=self._is_called_by_code)
        if not sanitize_inputs_outputs or type(result) is AgentText:
            return result
        return handle_agent_output_types(result, self._tool.output_type)


def _bind(tool: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names, with defaults; raise `TypeError` as the tool would."""
    if len(args) == 1 and not kwargs and isinstance(args[0], dict) and all(name in tool.inputs for name in args[0]):
        kwargs, args = args[0], ()  # as smolagents does it
    named = inspect.signature(getattr(tool, "forward", tool))
    own = [parameter for parameter in named.parameters.values() if parameter.name != "self"]
    if any(
        parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY)
        for parameter in own
    ):
        own = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None) for name in tool.inputs]
        return dict(inspect.Signature(own).bind(*args, **kwargs).arguments)
    bound = inspect.Signature(own).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)
