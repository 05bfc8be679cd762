"""Replaying a session: a fork of it, its program run there, and a report. For programs of `client.run`, and for graphs whose
checkpointer knows how (`HoldfastSaver`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.model.effects import OnRepeat
from holdfast.model.framework import Framework
from holdfast.model.replay import MODES, ReplayReport
from holdfast.operations import arguments, reading
from holdfast.operations import restore as restoring

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.editing import Edits
    from holdfast.travelling import Travelling


Program = TypeVar("Program")
_programs: dict[str, Any] = {}


def program(agent_id: str) -> Callable[[Program], Program]:
    """Says which program an agent's sessions are replayed with, in this process: a function that is given the run, decorated
    with `@holdfast.program("buyer")`; or a LangGraph graph, `holdfast.program("langgraph")(graph)`."""
    name = arguments.name("agent_id", agent_id)

    def register(given: Program) -> Program:
        _programs[name] = given
        return given

    return register


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What `client.replay` was given, checked."""

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
) -> Request:
    chosen = {} if steps is None else steps
    if not isinstance(chosen, Mapping):
        raise UsageError(f"steps is a {type(steps).__name__}: it must map names of steps to 'recorded' or 'live'")
    for step, choice in chosen.items():
        arguments.one_of(f"steps[{step!r:.60}]", choice, ("recorded", "live"))
    wanted = None
    if on_repeat is not None:
        wanted = OnRepeat(arguments.one_of("on_repeat", on_repeat, [str(one) for one in OnRepeat]))
    return Request(
        session_id=arguments.name("session_id", session_id),
        program=program,
        from_=arguments.optional_name("from_", from_),
        mode=arguments.one_of("mode", mode, MODES),
        steps=chosen,
        edits=edits,
        workspace=workspace,
        name=arguments.optional_name("name", name),
        on_repeat=wanted,
        policy=policy,
    )


async def replay(client: Travelling, asked: Request, *, plainly: bool) -> ReplayReport:
    line = await client._line(asked.session_id)
    head, start = line[0], line[-1]
    if asked.from_ is not None:
        start = await restoring.get(client._services, await client._id_of(asked.from_))
        if start.tree_id != head.tree_id:
            raise UsageError(
                f"checkpoint {start.checkpoint_id} belongs to another tree than session {asked.session_id!r:.60}: a session is "
                "replayed from one of its own checkpoints"
            )
    chosen = asked.program if asked.program is not None else _programs.get(start.agent_id)
    if chosen is None:
        raise UsageError(
            f"replay needs the program that is to be run: give it, or register it for the agent, with "
            f"@holdfast.program({start.agent_id!r:.60})"
        )
    of_graph = getattr(getattr(chosen, "checkpointer", None), "replay_graph", None)
    if of_graph is not None:
        report: ReplayReport = await of_graph(chosen, start, line, asked, plainly=plainly)
        return report
    if not callable(chosen):
        raise UsageError(
            f"{chosen!r:.80} is no program: give a function that takes the run, or a graph with a HoldfastSaver"
        )
    if plainly and inspect.iscoroutinefunction(chosen):
        raise UsageError(f"{chosen!r:.100} is async: a SyncClient replays plain functions. Use `Client`, and await")
    return await _of_run(client, asked, chosen, start, head, plainly=plainly)


async def _of_run(
    client: Travelling, asked: Request, chosen: Any, start: Checkpoint, head: Checkpoint, *, plainly: bool
) -> ReplayReport:
    from holdfast.runs import replaying
    from holdfast.runs.core import Options

    services = client._services
    last = await restoring.loaded(
        services, await reading.live_record(services, ids.from_text(head.checkpoint_id)), migrate=False
    )
    again = replaying.Replay(
        mode=asked.mode,
        original=replaying.recorded_of(last.agent_context, f"session {asked.session_id!r:.60}"),
        choices=asked.steps,
        on_repeat=asked.on_repeat,
        from_start=asked.from_ is None,
    )
    forked = await client.fork(start.checkpoint_id, asked.name, set=asked.edits, workspace=asked.workspace)
    save = None
    if forked.directory is not None:
        from holdfast.workspace.workspace import opened

        save = opened(services, client._workspaces, forked.directory).save
    options = Options(
        session_id=forked.session_id,
        agent_id=start.agent_id,
        framework=Framework.of(start.framework),
        app_version=start.app_version,
        policy=asked.policy,
        save=save,
    )
    stands_at, result, error = await replaying.replayed(services, options, again, chosen, plainly=plainly)
    return ReplayReport(
        session_id=forked.session_id,
        source_session=asked.session_id,
        from_id=start.checkpoint_id,
        checkpoint_id=stands_at,
        mode=asked.mode,
        steps=replaying.told(services.codec, again, error),
        result=result,
        error=error,
    )
