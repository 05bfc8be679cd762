"""Records the calls of a turn: of models, tools, hooks, and components of pipelines.

The user's objects stay as they are. An agent or pipeline is copied for the turn, and the copy has
proxies for its model, tools and components. So calls are recorded at any depth: in a sub-agent
that is a tool, and in an agent or pipeline that a component holds.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from haystack import Pipeline
from haystack.components.agents import Agent, State
from haystack.dataclasses import ChatMessage
from haystack.hooks.human_in_the_loop import ConfirmationHook
from haystack.tools import ComponentTool, Tool, Toolset
from haystack.tools.errors import ToolInvocationError

from holdfast.adapters.base.call_order import CallOrder
from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.haystack.people import ask_people
from holdfast.adapters.haystack.proxies import (
    JournaledComponent,
    JournaledGenerator,
    JournaledHook,
    JournaledTool,
    JournaledToolset,
)
from holdfast.adapters.haystack.state_changes import apply_changes, compare_states, copy_state
from holdfast.adapters.haystack.tool_names import MOST_HELD
from holdfast.adapters.haystack.values import (
    as_json,
    check_messages,
    dump_value,
    identify_message,
    identify_value,
    load_value,
    read_as_model,
)
from holdfast.backends.bridge.step import run_inline
from holdfast.errors import CorruptError, HoldfastError, UsageError
from holdfast.model.effect import EffectKind
from holdfast.model.tool_effect import AGENT

_FAILED, _ANSWERED, _CHANGES = "holdfast_failed", "holdfast_told", "holdfast_changes"
_UNCHANGED = object()  # of a hook: no store keeps it, so it is not recorded


ORDER = "ended"
"""The key of the state that has the components of an unfinished run which have ended, in their order."""


class HaystackJournal:
    """The calls of one turn, or of one visit of a component in it.

    `place` is the visit. A later life does not look into a visit that is recorded as a whole, so its
    calls must not be counted among those of other visits. `loop` is that of an awaited turn.
    `history` has the messages before the turn.
    """

    def __init__(
        self,
        turn: FrameworkTurn,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        history: Sequence[ChatMessage] = (),
        place: str = "",
        order: CallOrder | None = None,
    ) -> None:
        """`order` is that in which components end which run side by side, as they do in an awaited turn."""
        self.turn = turn
        self._order = CallOrder(turn, ORDER) if order is None and loop is not None else order
        self.place = place
        self.new_messages: list[ChatMessage] = []  # by the models and agents of a pipeline
        self.history = history
        self._loop = loop
        self._visits: Counter[str] = Counter()
        self._copies: list[tuple[Any, Any, dict[str, Any]]] = []  # the user's object, its copy, and that at first
        self._lock = threading.Lock()

    # -- copies of the user's objects ----------------------------------------------------------------------------------

    def journal_agent(self, agent: Agent, name: str) -> Agent:
        copied = copy.copy(agent)
        copied.chat_generator = JournaledGenerator(agent.chat_generator, self, name)
        copied.tools = self.journal_tools(agent.tools, agent)
        copied.hooks = {
            point: [JournaledHook(item, self, f"{name} {point} {number}") for number, item in enumerate(hooks)]
            for point, hooks in agent.hooks.items()
        }
        self._copies.append((agent, copied, dict(vars(copied))))
        return copied

    def journal_tools(self, tools: Any, agent: Agent) -> Any:
        """Return the tools of an agent as it takes them: a list of tools, toolsets or names, or a toolset."""
        is_raised = agent.raise_on_tool_invocation_failure
        if isinstance(tools, Toolset):
            return JournaledToolset(tools, self, is_raised=is_raised)
        if isinstance(tools, Tool):
            return JournaledTool(tools, self, is_raised=is_raised)
        return [self.journal_tools(tool, agent) for tool in tools] if isinstance(tools, list) else tools

    def journal_pipeline(self, pipeline: Pipeline) -> Pipeline:
        copied = copy.copy(pipeline)
        copied.graph = pipeline.graph.copy()
        for name, node in copied.graph.nodes(data=True):
            node["instance"] = JournaledComponent(node["instance"], self, name)
        return copied

    def journal_within(self, value: Any, name: str, around: tuple[int, ...] = ()) -> Any:
        """Return a copy of a component whose agents, pipelines and models record; itself if it has none."""
        if isinstance(value, Agent):
            return self.journal_agent(value, name)
        if isinstance(value, Pipeline):
            return self.journal_pipeline(value)
        if is_model(value):
            return JournaledGenerator(value, self, name)
        if not hasattr(value, "__haystack_input__") or isinstance(value, type) or id(value) in around:
            return value
        around = (*around, id(value))
        changed: dict[str, Any] = {}
        for key, held in vars(value).items():
            if not key.startswith("__"):
                recording = self._journal_held(held, name, around)
                changed |= {key: recording} if recording is not held else {}
        if not changed:
            return value
        copied = copy.copy(value)
        vars(copied).update(changed)
        self._copies.append((value, copied, dict(vars(copied))))
        return copied

    def _journal_held(self, held: Any, name: str, around: tuple[int, ...]) -> Any:
        """Do the same for what a component holds: one object, or a list or dict of them."""
        if type(held) not in (list, tuple, dict):
            return self.journal_within(held, name, around)
        elements = list(held.values() if isinstance(held, dict) else held) if len(held) <= MOST_HELD else []
        found = [self.journal_within(element, name, around) for element in elements]
        if all(a is b for a, b in zip(found, elements, strict=True)):
            return held
        return dict(zip(held, found, strict=True)) if isinstance(held, dict) else type(held)(found)

    def give_back(self) -> None:
        """Set what a run has set in a copy, such as a counter of the user's own, in the user's object."""
        for own, copied, before in self._copies:
            for name, value in vars(copied).items():
                if name not in before or before[name] is not value:
                    setattr(own, name, value)

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def call_model(self, model: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        named = inspect.signature(model.run).bind_partial(*args).arguments if args else {}
        given = {**named, **kwargs}
        made: list[Any] = []

        async def ask() -> Any:
            made.append(await self.invoke(model.run, getattr(model, "run_async", None), given))
            answer = dump_value(made[-1])
            return answer if self.turn.is_storable(answer) else as_json(answer)

        answer = await self.turn.call_model(name, self._identify_request(given), lambda: self._settle_call(ask()))
        if made:
            return made[-1]
        outputs = self._load_outputs(answer)
        with self.turn.guard_record():
            check_messages(outputs["replies"])
        return outputs

    async def call_tool(self, tool: Tool, given: Mapping[str, Any], *, is_raised: bool) -> Any:
        """Call a tool as it was declared, or return what it has returned.

        A failure is raised as Haystack does it. `is_raised` says that it ends the agent's run: then it
        is not recorded, and the tool is called again by the next life.
        """
        state = next((item for item in given.values() if isinstance(item, State)), None)
        arguments = {name: dump_value(value) for name, value in given.items() if not _is_of_the_process(value)}
        identity = identify_value(arguments)
        function = tool.function if tool.function is not None else tool.async_function
        effect = self.turn.find_effect(tool.name, function)
        visit = self._visit(tool.name, identity)
        inner = visit._tool_within(tool) if effect is None or effect.kind == AGENT else tool
        if inner is not tool or (effect is not None and effect.kind == AGENT):
            try:
                return await self.invoke(inner.invoke, inner.invoke_async, given)  # its inner calls are recorded
            finally:
                visit.give_back()
        made: list[Any] = []

        async def call(**approved: Any) -> Any:
            changed = _select_changed(arguments, approved)
            before = copy_state(state)
            try:
                result = await self.invoke(tool.invoke, tool.invoke_async, {**given, **changed})
            except ToolInvocationError as error:
                if effect is not None and effect.kind != EffectKind.READ:
                    raise (error.__cause__ or error) from None  # the ledger must see it
                if is_raised:
                    raise
                return {_FAILED: str(error)}
            recorded, result = self._dump_result(tool, result)
            made.append(result)
            changes = compare_states(before, state)
            return {_CHANGES: changes, "result": recorded} if changes else recorded

        def describe_failure(error: Exception) -> dict[str, str]:
            return {_FAILED: _failure(tool, arguments, error)}

        is_plain = not self.place and identity == arguments
        try:
            recorded = await self.turn.call_tool(
                tool.name,
                arguments,
                lambda **approved: self._settle_call(call(**approved)),
                call_id=None if is_plain else digest([self.place, identity]),
                function=function,
                answer=lambda text: {_ANSWERED: text},
                failed=None if is_raised else describe_failure,
                raises=(ToolInvocationError,),
            )
        except ToolInvocationError:
            raise
        except Exception as error:
            raise ToolInvocationError(_failure(tool, arguments, error), tool_name=tool.name) from error
        if made:
            return made[-1]
        marked = recorded if isinstance(recorded, Mapping) else {}
        if _FAILED in marked or (_ANSWERED in marked and not is_raised):
            raise ToolInvocationError(str(marked.get(_FAILED, marked.get(_ANSWERED))), tool_name=tool.name)
        with self.turn.guard_record():
            if _CHANGES in marked and state is not None:
                apply_changes(marked[_CHANGES], state)
                recorded = marked["result"]
            return load_value(marked.get(_ANSWERED, recorded))

    async def call_component(self, component: Any, name: str, inputs: Mapping[str, Any]) -> Any:
        """Run a component of a pipeline, or return its recorded outputs.

        Outputs that can't be stored are not recorded: the component runs again in the next life.
        """
        if self._order is None:
            return await self._run_component(component, name, inputs)
        async with self._order.hold(f"{self.place} {name}", within=f"{self.place}/{name}:"):
            return await self._run_component(component, name, inputs)

    async def _run_component(self, component: Any, name: str, inputs: Mapping[str, Any]) -> Any:
        identity = _identify_inputs(inputs)
        if is_model(component):
            outputs = await self.call_model(component, name, (), inputs)
            self._add_messages([*_messages_in(inputs.get("messages")), *_messages_in(outputs.get("replies"))])
            return outputs
        visit = self._visit(name, identity)
        callee = visit.journal_within(component, name)
        given = dict(inputs)
        if isinstance(component, Agent) and given.get("tools") is not None:
            given["tools"] = visit.journal_tools(given["tools"], component)
        made: list[Any] = []

        async def run(**approved: Any) -> Any:
            inputs = {**given, **_select_changed(arguments, approved)}
            try:
                made.append(await self.invoke(callee.run, getattr(callee, "run_async", None), inputs))
            finally:
                visit.give_back()
            return dump_value(made[-1])

        def refuse(_: str) -> NoReturn:
            """End the turn with the error at hand: there is no model that could be told of it."""
            error = sys.exception()
            raise self.turn._end(error if isinstance(error, HoldfastError) else UsageError(str(error)))

        effect = self.turn.find_effect(name)
        arguments: dict[str, Any] = {}
        if effect is not None and effect.kind not in (EffectKind.READ, AGENT):
            arguments = {item: dump_value(value) for item, value in inputs.items() if not _is_of_the_process(value)}
            recorded = await self.turn.call_tool(
                name, arguments, lambda **approved: self._settle_call(run(**approved)), answer=refuse
            )
        else:
            key = digest([self.place, identity])
            recorded = await self.turn.call_part(name, lambda: self._settle_call(run()), key=key)
        outputs = made[-1] if made else self._load_outputs(recorded)
        if isinstance(component, Agent):
            self._add_messages(_messages_in(outputs.get("messages")))
        return outputs

    async def call_hook(self, hook: Any, name: str, state: State) -> None:
        """Run a hook, or apply the changes of the state that it has made.

        A hook that changed nothing is not recorded: it runs again.
        """
        messages = state.data.get("messages") or []
        place = digest([self.place, name, len(messages), *map(identify_message, messages[-1:])])
        made: list[Any] = []

        async def run() -> Any:
            before = copy_state(state)
            own = await ask_people(self.turn, hook, state, place) if isinstance(hook, ConfirmationHook) else hook
            await self.invoke(own.run, getattr(own, "run_async", None), {"state": state})
            made.append(compare_states(before, state))
            return made[0] or _UNCHANGED

        def apply(changes: Any) -> None:
            if not made:
                apply_changes(changes, state)

        await self.turn.call_part(f"{name} hook", lambda: self._settle_call(run()), key=place, load=apply)

    # -- the turn ------------------------------------------------------------------------------------------------------

    async def invoke(self, run: Callable[..., Any], run_async: Any, given: Mapping[str, Any]) -> Any:
        """Call one of the user's objects, as Haystack does in a blocking or an awaited run."""
        if self._loop is None:
            return run(**given)
        if callable(run_async):
            return await run_async(**given)
        return await asyncio.to_thread(run, **given)

    def wait_for(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a call that blocking code has made; in an awaited turn, from a thread."""
        if self._loop is None:
            return run_inline(call)
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                call.close()
                raise self.turn._end(
                    UsageError("`run` was called within the event loop of an awaited turn: use `await run_async(...)`")
                )
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def _settle_call(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Return what the turn takes of a function: a result, or a coroutine if the turn is awaited."""
        return call if self._loop is not None else run_inline(call)

    def _visit(self, name: str, identity: Any) -> HaystackJournal:
        place = f"{self.place}/{name}:{digest(identity)}"
        with self._lock:
            number = self._visits[place]
            self._visits[place] += 1
        return HaystackJournal(self.turn, loop=self._loop, place=f"{place}:{number}", order=self._order)

    def _tool_within(self, tool: Tool) -> Tool:
        """Return the tool of a component that holds an agent, pipeline or model so that these record."""
        if not isinstance(tool, ComponentTool):
            return tool
        component = tool._component  # there is no public name for what the tool runs
        recording = self.journal_within(component, tool.name)
        if recording is component:
            return tool
        vars(recording).pop("__haystack_added_to_pipeline__", None)  # of the copy: a tool refuses such a component
        made = ComponentTool(recording, name=tool.name, description=tool.description, parameters=tool.parameters)
        inner = copy.copy(tool)
        inner.function, inner.async_function = made.function, made.async_function
        return inner

    def _identify_request(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what identifies a request; the turn stands for the messages before it."""
        messages = given.get("messages")
        asked, known = list(messages) if isinstance(messages, list) else [messages], len(self.history)
        begins = next((at for at in (0, 1) if known and _is_at(asked, self.history, at)), None)
        if begins is not None:
            asked[begins : begins + known] = ["…"]
        options = {name: value for name, value in given.items() if name not in ("messages", "tools")}
        tools = given.get("tools")
        return {
            "place": self.place,
            "messages": [identify_message(item) for item in asked],
            "tools": sorted(tool.name for tool in tools) if isinstance(tools, list) else [],
            "options": _identify_inputs(options),
        }

    def _dump_result(self, tool: Tool, result: Any) -> tuple[Any, Any]:
        """Return a result as it is recorded, and as the agent gets it.

        If it can't be stored, both are the text that the model reads, unless more is made of it.
        """
        dumped = dump_value(result)
        if tool.outputs_to_state or tool.outputs_to_string or self.turn.is_storable(dumped):
            return dumped, result
        text = read_as_model(result)
        return text, text

    def _load_outputs(self, recorded: Any) -> Any:
        """Return the recorded outputs of a component: a dict of named values."""
        with self.turn.guard_record():
            loaded = load_value(recorded)
            if not isinstance(loaded, dict):
                raise CorruptError(f"recorded outputs are a {type(loaded).__name__}")
            return loaded

    def _add_messages(self, messages: Sequence[ChatMessage]) -> None:
        with self._lock:
            self.new_messages += [message for message in messages if message not in self.new_messages]


def is_model(component: Any) -> bool:
    """Return whether a component is a chat generator: it answers messages with replies."""
    inputs, outputs = (getattr(component, f"__haystack_{name}__", ()) for name in ("input", "output"))
    return not isinstance(component, Agent | type) and "messages" in inputs and "replies" in outputs


def _identify_inputs(inputs: Mapping[str, Any]) -> Any:
    """Return what identifies inputs: a callback that one life has and another has not is no difference."""
    return identify_value({name: value for name, value in inputs.items() if value is not None})


def _is_at(messages: Sequence[Any], history: Sequence[Any], at: int) -> bool:
    part = messages[at : at + len(history)]
    return len(part) == len(history) and all(a is b for a, b in zip(part, history, strict=True))


def _is_of_the_process(value: Any) -> bool:
    return isinstance(value, State) or (callable(value) and not isinstance(value, type))


def _select_changed(arguments: Mapping[str, Any], approved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a person has changed."""
    return {
        name: load_value(value) for name, value in approved.items() if name not in arguments or value != arguments[name]
    }


def _messages_in(value: Any) -> list[ChatMessage]:
    return [item for item in value if isinstance(item, ChatMessage)] if isinstance(value, list) else []


def _failure(tool: Tool, arguments: Mapping[str, Any], error: Exception) -> str:
    return f"Failed to invoke Tool `{tool.name}` with parameters {dict(arguments)}. Error: {error}"
