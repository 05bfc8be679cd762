"""The scope of steps, effects, tasks and sub-agents: a run, or one of its sub-agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.errors import UsageError
from holdfast.format.state.run_journal import OK, JournalRecord
from holdfast.model.effect import Done, EffectKind
from holdfast.model.run_policy import SubagentTrace
from holdfast.operations import validate
from holdfast.runs import call_binding, call_sites, effect, effect_options, step, subagent
from holdfast.runs.call_sites import EffectCall
from holdfast.runs.engine import RunEngine
from holdfast.runs.step import StepCall, ValueCall

_EFFECT_OPTIONS: dict[str, Any] = {
    "kind": "irreversible", "identity": None, "volatile": (), "approve": None, "probe": None, "undo": None,
    "on_repeat": None, "not_done": (), "raises": (), "was": None,
}  # fmt: skip
"""The options of `effect`, with their defaults."""


class RunScope:
    """The common base of both interfaces of a run; `path` is that of the sub-agents that lead here."""

    _awaits = True

    def __init__(self, core: RunEngine, path: str = "") -> None:
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
        was: Sequence[str] | str | None,
    ) -> StepCall:
        """Return the call of a step, made when `step` is called: parallel calls are counted in order."""
        name = validate.name("name", name)
        if not callable(fn):
            raise UsageError(
                f"step {name!r:.60}: {fn!r:.60} can't be called. Give the function, and its arguments after it"
            )
        key = None if key is None else str(key)
        path = self._core.path(self._path)
        places = [self._core.sites.place(path, former_name, key) for former_name in (name, *former_names(was))]
        place = self._core.choose_place(places)
        if retry is not None:
            retry = step.check_retry(retry)
        return StepCall(place, name, fn, args, kwargs, retry, call_binding.classes("raises", raises) if raises else ())

    async def _effect(self, call: EffectCall | StepCall) -> Any:
        if isinstance(call, StepCall):
            return await step.step(self._core, call)
        return await effect.effect(self._core, call)

    def _give_back(self, call: EffectCall | StepCall) -> None:
        if isinstance(call, StepCall):
            self._core.sites.give_back(call.place)
        else:
            effect.give_back(self._core, call)

    def _checked_effect_call(
        self, name: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], **options: Any
    ) -> EffectCall | StepCall:
        """Return the program's effect call; options that exclude each other are refused."""
        effect_options.refuse_contradictions(f"effect {name!r:.60}", options["kind"], options["key"], options)
        return self._effect_call(name, fn, args, kwargs, **options)

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
        was: Sequence[str] | str | None = None,
        **options: Any,
    ) -> EffectCall | StepCall:
        name = validate.name("name", name)
        if not callable(fn):
            raise UsageError(
                f"effect {name!r:.60}: {fn!r:.60} can't be called. Give the function, and its arguments after it"
            )
        for item in (fn, options.get("probe"), options.get("undo")):  # before it is written down as started
            if not self._awaits and item is not None and call_binding.is_coroutine(item):
                raise call_binding.is_async(item)
        key = None if key is None else str(key)
        if kind == EffectKind.READ:
            return self._step_call(name, fn, args, kwargs, key, None, raises, was)
        return call_sites.build_effect_call(
            self._core, self._core.path(self._path), name, fn, args, kwargs, kind=kind, key=key, was=former_names(was),
            raises=call_binding.classes("raises", raises), not_done=call_binding.classes("not_done", not_done),
            **options,
        )  # fmt: skip

    def _tool_call(
        self, name: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> EffectCall | StepCall:
        """Return the call of a tool: all its arguments are the tool's."""
        return self._effect_call(name, fn, args, kwargs, key=None, **{**_EFFECT_OPTIONS, **options})

    def _declare_tool(self, fn: Callable[..., Any], name: str | None, options: dict[str, Any]) -> str:
        """Add a tool to the checkpoints' schemas, and return its name. Raise now if it is no tool."""
        if not callable(fn):
            raise UsageError(f"{fn!r:.60} is no tool: it can't be called. Give a function")
        validate.one_of("kind", options["kind"], tuple(EffectKind))
        unknown = next((option for option in options if option not in _EFFECT_OPTIONS and option != "key"), None)
        if unknown is not None:
            raise UsageError(f"a tool has no option {unknown!r:.60}: it may have {', '.join(_EFFECT_OPTIONS)}")
        if "key" in options:
            raise UsageError(
                "a tool has no key: it would be the same effect whatever it is called with. identity=(...) names the "
                "arguments that tell its calls apart"
            )
        name = name or getattr(fn, "__name__", None) or repr(fn)
        subject = f"effect {name!r:.60}"
        effect_options.refuse_wrong_values(subject, options)
        effect_options.refuse_contradictions(subject, options["kind"], None, options)
        facts = {item: options[item] for item in ("kind", "identity", "volatile")}
        self._core.tools[name] = call_binding.schema_hash(fn, **facts)
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
        """The state, which every checkpoint of the run has; on a resume, the last saved one."""
        return self._core.state

    @state.setter
    def state(self, state: Any) -> None:
        self._core.state = state

    @property
    def context(self) -> dict[str, Any]:
        """The developer's own context, saved with the state."""
        return self._core.context

    def find_result(self, name: str, *, key: Any) -> Done | None:
        """Return the recorded result of the step with this name and key; None if it has none."""
        return self._decode_done(self._core.journal.get(self._place_of(name, key)))

    def find_call(self, name: str, *, key: Any, is_optional: bool = False) -> Done | None:
        """Return the recorded result of a call that is made now if there is none.

        In a replay it may be that of the original. Without `is_optional`, a replay that calls nothing
        raises `NotRecordedError` if there is none.
        """
        call = ValueCall(self._place_of(name, key), name, is_optional)
        return self._decode_done(self._core.find_record(call))

    def _place_of(self, name: str, key: Any) -> str:
        return self._core.sites.place(self._core.path(self._path), validate.name("name", name), str(key))

    def _decode_done(self, found: JournalRecord | None) -> Done | None:
        return Done(self._core.ctx.codec.decode(found.payload)) if found is not None and found.status == OK else None

    @property
    def checkpoint_id(self) -> str | None:
        """The checkpoint that was saved last, or that the run was resumed from; None before the first."""
        return self._core.checkpoint_id

    @property
    def resumed(self) -> bool:
        """Whether the run continues from a checkpoint."""
        return self._core.resumed

    @property
    def traces(self) -> tuple[SubagentTrace, ...]:
        """The traces of the run's sub-agents, restored ones included."""
        return subagent.traces(self._core.ctx.codec, self._core.journal)

    @property
    def changed_tools(self) -> tuple[str, ...]:
        """Tools that the checkpoint which the run was resumed from knew with another schema, or that are gone."""
        now, before = self._core.tools, self._core.stored_tools
        return tuple(name for name in before if now.get(name, None if now else before[name]) != before[name])

    def __repr__(self) -> str:
        where = f" in {self._path!r:.60}" if self._path else ""
        return f"<{type(self).__name__} of session {self.session_id!r:.60}{where} at {self.checkpoint_id}>"


def former_names(was: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return the names that something had in earlier versions of the program."""
    names = (was,) if isinstance(was, str) else tuple(was or ())
    return tuple(validate.name("was", name) for name in names)
