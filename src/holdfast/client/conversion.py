"""The part of the client for moves to another framework."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.client.factory import ClientBase
from holdfast.errors import UsageError
from holdfast.operations import resolve_target, validate

if TYPE_CHECKING:
    from holdfast.client.resume_plan import ResumePlan
    from holdfast.model.conversation import ToolCallPart
    from holdfast.model.framework import Framework
    from holdfast.model.tool_map import ToolMap
    from holdfast.operations.resume_as import MovePlan
    from holdfast.runs.api import Run, SyncRun


class ClientConversion(ClientBase):
    """The part of `Client` that moves sessions to other frameworks."""

    async def resume_as(
        self,
        ref: str,
        framework: Framework | str,
        *,
        tools: Any = None,
        dangling: str = "ledger",
        accept: Sequence[str] = (),
        carry: Mapping[str, str] | None = None,
        at: str | None = None,
        approvals: str = "reask",
        while_running: bool = False,
        run: Run | SyncRun | None = None,
    ) -> ResumePlan:
        """Returns a plan to continue a session in another framework. Writes nothing: `plan.save` does.

        `ref` names a checkpoint as for `fork`. `framework` is a target such as "crewai", or a list
        of messages: "openai_chat", "open_responses", "anthropic". `plan.losses` says what the target
        can't keep; losses of severity "meaning" raise `ConversionError` unless `accept` names their
        kinds.

        `tools` are the target's tools: a list of names, functions or `TargetTool`s, or a mapping
        from the source's names to them. Calls of others become notes. Without it, the target has
        the same tools. `dangling` decides about calls without results, after the ledger: "ledger"
        and "raise" raise `OpenToolCallError`, "answer" tells the model that the outcome is unknown,
        "drop" leaves the call out, "execute" carries it out as an effect of `run`, by the functions
        in `tools`. "raise" does not ask the ledger.

        `carry={"plan": "todo"}` carries a value beside the conversation over, under another name.
        `at="last_turn"` leaves a turn that was cut off out. `approvals` that wait are asked again
        ("reask"), or "raise". `while_running=True` moves a session that a live process works on.
        """
        from holdfast.client.resume_plan import ResumePlan

        return ResumePlan(
            self,
            await self._plan_move(
                ref, framework, tools=tools, dangling=dangling, accept=accept, carry=carry, at=at,
                approvals=approvals, while_running=while_running, run=run,
            ),
        )  # fmt: skip

    async def _plan_move(
        self,
        ref: str,
        framework: Framework | str,
        *,
        tools: Any,
        dangling: str,
        accept: Sequence[str],
        carry: Mapping[str, str] | None,
        at: str | None,
        approvals: str,
        while_running: bool,
        run: Any,
    ) -> MovePlan:
        from holdfast.client.adapters import load_transcripts
        from holdfast.client.conversion_targets import find_target
        from holdfast.model.tool_map import read_tools
        from holdfast.model.transcript_moves import DANGLING
        from holdfast.operations import resume_as

        mapped = read_tools(tools)
        policy = validate.one_of("dangling", dangling, DANGLING)
        if at is not None:
            validate.one_of("at", at, (resume_as.LAST_TURN,))
        request = resume_as.MoveRequest(
            target=find_target(framework),
            source=await resolve_target.id_of(self._ctx, validate.name("ref", ref)),
            tools=mapped,
            dangling=policy,
            accept=read_accepted(accept),
            carry=_check_carry(carry),
            at=at,
            approvals=validate.one_of("approvals", approvals, ("reask", "raise")),
            while_running=bool(while_running),
            execute=_executor(run, mapped) if policy == "execute" else None,
            own_session=_session_of(run),
        )
        return await resume_as.plan_move(self._ctx, request, load_transcripts)


def read_accepted(accept: Any) -> frozenset[str]:
    """Return the kinds of losses that `accept=` names."""
    from holdfast.model.loss import KINDS

    if accept is not None and not isinstance(accept, Iterable):
        raise UsageError(f"accept is a {type(accept).__name__}: it must list kinds of losses, such as ['reasoning']")
    given = (accept,) if isinstance(accept, str) else tuple(accept or ())
    for item in given:
        if not isinstance(item, str) or item not in KINDS:
            raise UsageError(f"accept names {item!r:.60}, which is no kind of loss: the kinds are {', '.join(KINDS)}")
    return frozenset(given)


def _check_carry(carry: Any) -> Mapping[str, str]:
    given = {} if carry is None else carry
    if not isinstance(given, Mapping) or not all(
        isinstance(item, str) and item for pair in given.items() for item in pair
    ):
        raise UsageError(
            f"carry is {carry!r:.80}: it must map names of values in the source to names in the target, such as "
            "{'plan': 'todo'}"
        )
    twice = next((name for name, count in Counter(given.values()).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"carry gives several values the name {twice!r:.60}: give each one its own")
    return dict(given)


def _session_of(run: Any) -> str | None:
    from holdfast.runs.api import Run, SyncRun

    if run is not None and not isinstance(run, Run | SyncRun):
        raise UsageError(
            f"run is a {type(run).__name__}: it must be an open run, as `with client.run(session_id) as run` gives it"
        )
    return None if run is None else run.session_id


def _executor(run: Any, tools: ToolMap) -> Callable[[ToolCallPart], Any]:
    """Return a function that carries out a call as an effect of a run, as its tool is declared."""
    from holdfast.model.tool_effect import find_declared

    if run is None:
        raise UsageError(
            "dangling='execute' carries calls out, which only a run records: open one on a session of the same tree, "
            "`with client.run(session_id) as run`, and give run=run"
        )

    async def execute(call: ToolCallPart) -> Any:
        tool = tools.find(call.name)
        if tool is None or tool.function is None:
            raise UsageError(
                f"dangling='execute' needs the function of tool {call.name!r:.60}: give tools={{name: function}}"
            )
        arguments = dict(call.arguments or {})
        declared = find_declared(tool.function)
        options = declared.effect_options() if declared is not None else {}
        reserved = next((name for name in arguments if name in inspect.signature(run.effect).parameters), None)
        if reserved is not None:
            raise UsageError(
                f"tool {call.name!r:.60} has an argument {reserved!r}, which is an option of an effect: it can't be "
                "executed here. Let the source finish the call, or choose another value for dangling="
            )
        key = declared.key_of(call.name, arguments) if declared is not None else None
        made = run.effect(call.name, tool.function, key=key or f"call {call.id}", **options, **arguments)
        return await made if inspect.isawaitable(made) else made

    return execute
