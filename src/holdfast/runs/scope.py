"""A scope: where steps, effects, tasks and sub-agents are asked for. A run is one, and so is each of its sub-agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.errors import UsageError
from holdfast.model.effects import EffectKind
from holdfast.model.runs import SubagentTrace
from holdfast.operations import arguments
from holdfast.runs import calling, effecting, stepping, subagents
from holdfast.runs.core import Core
from holdfast.runs.effecting import EffectCall
from holdfast.runs.stepping import StepCall

_OF_AN_EFFECT: dict[str, Any] = {
    "kind": "irreversible", "identity": None, "volatile": (), "key": None, "approve": None, "probe": None, "undo": None,
    "on_repeat": None, "on_suspect": "block", "not_done": (), "raises": (),
}  # fmt: skip
"""What `effect` takes beside the function and its arguments, and what it is if nothing is said."""


class Scope:
    """What both faces of a run have in common; `path` is that of the sub-agents that lead here."""

    _awaits = True

    def __init__(self, core: Core, path: str = "") -> None:
        self._core = core
        self._path = path

    def _step_call(
        self,
        name: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        key: str | None,
        retry: Any,
        raises: Sequence[type[Exception]],
        was: str | None,
    ) -> StepCall:
        """A step, known by path, name and occurrence. Made when `step` is called: of parallel calls, in their order."""
        name = arguments.name("name", name)
        if not callable(fn):
            raise UsageError(
                f"step {name!r:.60}: {fn!r:.60} can't be called. Give the function, and its arguments after it"
            )
        key = None if key is None else str(key)
        path = self._core.path(self._path)
        place = self._core.places.place(path, name, key)
        formerly = None
        if was is not None:
            formerly = self._core.places.place(path, arguments.name("was", was), key)
        if retry is not None:
            retry = stepping.checked_retry(retry)
        return StepCall(
            place, name, fn, args, kwargs, retry, calling.classes("raises", raises) if raises else (), formerly
        )

    async def _effect(self, call: EffectCall | StepCall) -> Any:
        if isinstance(call, StepCall):
            return await stepping.step(self._core, call)
        return await effecting.effect(self._core, call)

    def _give_back(self, call: EffectCall | StepCall) -> None:
        if isinstance(call, StepCall):
            self._core.places.give_back(call.place)
        else:
            effecting.give_back(self._core, call)

    def _effect_call(
        self,
        name: str,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        kind: str,
        key: str | None,
        raises: Sequence[type[Exception]],
        not_done: Sequence[type[Exception]],
        **options: Any,
    ) -> EffectCall | StepCall:
        name = arguments.name("name", name)
        if not callable(fn):
            raise UsageError(
                f"effect {name!r:.60}: {fn!r:.60} can't be called. Give the function, and its arguments after it"
            )
        if not self._awaits and calling.is_coroutine(fn):  # before it is written down as started
            raise calling.is_async(fn)
        key = None if key is None else str(key)
        if kind == EffectKind.READ:
            return self._step_call(name, fn, args, kwargs, key, None, raises, None)
        return effecting.asked(
            self._core, self._core.path(self._path), name, fn, args, kwargs, kind=kind, key=key,
            raises=calling.classes("raises", raises), not_done=calling.classes("not_done", not_done), **options,
        )  # fmt: skip

    def _tool_call(
        self, name: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> EffectCall | StepCall:
        """All that a tool is called with is the tool's."""
        return self._effect_call(name, fn, args, kwargs, **{**_OF_AN_EFFECT, **options})

    def _declared(self, fn: Callable[..., Any], name: str | None, options: dict[str, Any]) -> str:
        """The name of a tool, whose schema is part of every checkpoint from now on. What is wrong is told here, not when a
        model calls it."""
        if not callable(fn):
            raise UsageError(f"{fn!r:.60} is no tool: it can't be called. Give a function")
        arguments.one_of("kind", options["kind"], tuple(EffectKind))
        unknown = next((one for one in options if one not in _OF_AN_EFFECT), None)
        if unknown is not None:
            raise UsageError(f"a tool has no option {unknown!r:.60}: it may have {', '.join(_OF_AN_EFFECT)}")
        name = name or getattr(fn, "__name__", None) or repr(fn)
        facts = {one: options[one] for one in ("kind", "identity", "volatile")}
        self._core.tools[name] = calling.schema_hash(fn, **facts)
        return name

    # -- what there is -----------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        return self._core.options.session_id

    @property
    def agent_id(self) -> str:
        return self._core.options.agent_id

    @property
    def state(self) -> Any:
        """The state: every checkpoint of the run has it. On a resume it is what was saved last."""
        return self._core.state

    @state.setter
    def state(self, state: Any) -> None:
        self._core.state = state

    @property
    def context(self) -> dict[str, Any]:
        """The developer's own, saved beside the state."""
        return self._core.context

    @property
    def checkpoint_id(self) -> str | None:
        """The checkpoint that was saved last, or that the run was resumed from; None before the first."""
        return self._core.checkpoint_id

    @property
    def resumed(self) -> bool:
        """Whether there was a checkpoint to go on from."""
        return self._core.resumed

    @property
    def traces(self) -> tuple[SubagentTrace, ...]:
        """What became of the run's sub-agents, restored ones included."""
        return subagents.traces(self._core.services.codec, self._core.journal)

    @property
    def changed_tools(self) -> tuple[str, ...]:
        """Tools that the checkpoint which the run was resumed from knew with another schema, or that are gone."""
        now, before = self._core.tools, self._core.stored_tools
        return tuple(name for name in before if now.get(name, None if now else before[name]) != before[name])

    def __repr__(self) -> str:
        where = f" in {self._path!r:.60}" if self._path else ""
        return f"<{type(self).__name__} of session {self.session_id!r:.60}{where} at {self.checkpoint_id}>"
