"""Replays: a session's program run again on a fork.

For programs of `client.run`, and for graphs whose checkpointer knows how (`HoldfastSaver`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import telemetry
from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.model.effect import OnRepeat
from holdfast.model.framework import Framework
from holdfast.model.replay import MODES, ReplayReport
from holdfast.model.reports import ForkReport
from holdfast.operations import lookup, resolve, resolve_target, session_names, validate
from holdfast.operations import restore as restoring

if TYPE_CHECKING:
    from holdfast.client.history import ClientHistory
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.path_edit import Edits


Program = TypeVar("Program")
_programs: dict[str, Any] = {}


def program(agent_id: str) -> Callable[[Program], Program]:
    """Registers the program that an agent's sessions are replayed with, in this process.

    A function that takes the run, decorated with `@holdfast.program("buyer")`; or a LangGraph
    graph, `holdfast.program("langgraph")(graph)`.
    """
    name = validate.name("agent_id", agent_id)

    def register(given: Program) -> Program:
        _programs[name] = given
        return given

    return register


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The checked arguments of `client.replay`."""

    session_id: str
    program: Any
    from_: str | None
    mode: str
    steps: Mapping[str, str]
    edits: Edits | None
    workspace: Any
    name: str | None
    on_repeat: OnRepeat | None
    policy: Any


def request(
    session_id: Any,
    program: Any,
    *,
    from_: Any,
    mode: Any,
    steps: Any,
    edits: Any,
    workspace: Any,
    name: Any,
    on_repeat: Any,
    policy: Any,
) -> ReplayRequest:
    chosen = {} if steps is None else steps
    if not isinstance(chosen, Mapping):
        raise UsageError(f"steps is a {type(steps).__name__}: it must map names of steps to 'recorded' or 'live'")
    for step, choice in chosen.items():
        validate.one_of(f"steps[{step!r:.60}]", choice, ("recorded", "live"))
    wanted = None
    if on_repeat is not None:
        wanted = OnRepeat(validate.one_of("on_repeat", on_repeat, [str(repeat) for repeat in OnRepeat]))
    return ReplayRequest(
        session_id=validate.name("session_id", session_id),
        program=program,
        from_=validate.optional_name("from_", from_),
        mode=validate.one_of("mode", mode, MODES),
        steps=chosen,
        edits=edits,
        workspace=workspace,
        name=validate.optional_name("name", name),
        on_repeat=wanted,
        policy=policy,
    )


@telemetry.trace_operation(telemetry.REPLAY)
async def replay(client: ClientHistory, request: ReplayRequest, *, plainly: bool) -> ReplayReport:
    branch = await resolve.load_branch(client._ctx, request.session_id)
    head, start = branch[0], branch[-1]
    if request.from_ is not None:
        start = await restoring.get(client._ctx, await resolve_target.id_of(client._ctx, request.from_))
        if start.tree_id != head.tree_id:
            raise UsageError(
                f"checkpoint {start.checkpoint_id} belongs to another tree than session {request.session_id!r:.60}: a "
                "session is replayed from one of its own checkpoints"
            )
    chosen = request.program if request.program is not None else _programs.get(start.agent_id)
    if chosen is None:
        raise UsageError(
            f"replay needs the program that is to be run: give it, or register it for the agent, with "
            f"@holdfast.program({start.agent_id!r:.60})"
        )
    of_graph = getattr(getattr(chosen, "checkpointer", None), "replay_graph", None)
    if of_graph is not None:
        report: ReplayReport = await of_graph(chosen, start, branch, request, plainly=plainly)
        return report
    if not callable(chosen):
        raise UsageError(
            f"{chosen!r:.80} is no program: give a function that takes the run, or a graph with a HoldfastSaver"
        )
    if plainly and inspect.iscoroutinefunction(chosen):
        raise UsageError(f"{chosen!r:.100} is async: a SyncClient replays plain functions. Use `Client`, and await")
    return await _replay_run(client, request, chosen, start, head, plainly=plainly)


async def _replay_run(
    client: ClientHistory, request: ReplayRequest, chosen: Any, start: Checkpoint, head: Checkpoint, *, plainly: bool
) -> ReplayReport:
    from holdfast.runs import replay as replaying
    from holdfast.runs.engine import RunOptions

    ctx = client._ctx
    last = await restoring.load_checkpoint(
        ctx, await lookup.load_live_record(ctx, ids.from_text(head.checkpoint_id)), migrate=False
    )
    again = replaying.Replay(
        mode=request.mode,
        original=replaying.recorded_of(last.agent_context, f"session {request.session_id!r:.60}"),
        choices=request.steps,
        on_repeat=request.on_repeat,
        from_start=request.from_ is None,
    )
    like = f"{session_names.find_stem(request.session_id)}-replay-"
    forked = await client._fork(
        start.checkpoint_id, request.name, set=request.edits, workspace=request.workspace, name_like=like
    )
    assert isinstance(forked, ForkReport)  # of one set of edits
    save = None
    if forked.directory is not None:
        from holdfast.workspace.api import get_workspace

        save = get_workspace(ctx, client._workspaces, forked.directory).save
    options = RunOptions(
        session_id=forked.session_id,
        agent_id=start.agent_id,
        framework=Framework.of(start.framework),
        app_version=start.app_version,
        policy=request.policy,
        save=save,
    )
    stands_at, result, error = await replaying.replay_program(ctx, options, again, chosen, plainly=plainly)
    return ReplayReport(
        session_id=forked.session_id,
        source_session=request.session_id,
        from_id=start.checkpoint_id,
        checkpoint_id=stands_at,
        mode=request.mode,
        steps=replaying.describe_steps(ctx.codec, again, error),
        result=result,
        error=error,
    )
