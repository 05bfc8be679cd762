"""`resumable(agent, ...)`: an agent or app of Google ADK whose turns continue after a crash."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.workflow import BaseNode

from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.loaded_list import LoadedList
from holdfast.adapters.base.loop_runner import LoopRunner
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.google_adk.artifact_service import HoldfastArtifactService
from holdfast.adapters.google_adk.event import as_content, dump_event, dump_message, load_events, plain_state
from holdfast.adapters.google_adk.journal import AdkJournal, find_tools
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect

warn_if_untested("google-adk", "2.13", "3")

ENTRY = "run_async"
TEMPORARY = "temp:"


def resumable(
    target: BaseNode | App,
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> ResumableApp:
    """Return the agent, workflow or app with `run_async` and `run`, which continue after a crash.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. `tools` declares what tools do, by
    their names.
    """
    return ResumableApp(target, session_id=session_id, store=store, agent_id=agent_id, workspace=workspace, tools=tools)


class ResumableApp:
    """An agent or app and its conversation in a store. The entry points are those of ADK's `Runner`.

    `turn` identifies a turn, for example by the id of the message that it answers. Without it, a
    turn is known by its message, and by how many turns with that message this process has finished.
    """

    def __init__(self, target: BaseNode | App, *, session_id: str, agent_id: str | None = None, **options: Any) -> None:
        if isinstance(target, BaseNode):
            target = App(name=target.name, root_agent=target)
        if not isinstance(target, App):
            raise UsageError(
                f"resumable() takes an agent, a workflow or an App of Google ADK, not a {type(target).__name__}"
            )
        self.app = target
        self._session = ResumableSession(
            Framework.GOOGLE_ADK, session_id=session_id, agent_id=agent_id or target.name, **options
        )
        self._loop = LoopRunner()
        self._events = LoadedList(load_events)

    async def run_async(
        self,
        *,
        user_id: str,
        new_message: Any,
        turn: str | None = None,
        state_delta: Any = None,
        run_config: Any = None,
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a turn, which begins or continues; of a finished one, the recorded events."""
        message = as_content(new_message)
        self._session.check_tools(lambda: find_tools(self.app.root_agent))
        async with self._session.open_turn(ENTRY, dump_message(message), turn) as opened:
            if opened.turn is None:
                with self._session.guard_state():
                    known = list(self._load(opened.recorded, user_id))
                for event in known:
                    yield event
                return
            with self._session.guard_state():
                session = self._load_session(opened.turn, user_id)
            before = len(session.events)
            runner = self._make_runner(opened.turn, session)
            events = runner.run_async(
                user_id=user_id,
                session_id=session.id,
                new_message=message,
                state_delta=state_delta,
                run_config=run_config,
            )
            async with aclosing(events):
                async for event in events:
                    yield event
            opened.end = _end(opened.turn, session, before)

    def run(self, *, user_id: str, new_message: Any, turn: str | None = None, **options: Any) -> Iterator[Event]:
        """`run_async` for programs without an event loop: yields the events when the turn is over."""

        async def collect() -> list[Event]:
            events = self.run_async(user_id=user_id, new_message=new_message, turn=turn, **options)
            return [event async for event in events]

        yield from self._loop.run(collect())

    # -- a turn --------------------------------------------------------------------------------------------------------

    def _load_session(self, turn: FrameworkTurn, user_id: str) -> Session:
        self._check_user(turn.state, user_id)
        return Session(
            id=self._session.session_id,
            app_name=self.app.name,
            user_id=user_id,
            state=dict(turn.state.get("state", {})),
            events=turn.load_list("messages", self._events),
        )

    def _make_runner(self, turn: FrameworkTurn, session: Session) -> Runner:
        app = self.app.model_copy(update={"plugins": [*self.app.plugins, AdkJournal(turn)]})
        return Runner(
            app=app,
            session_service=TurnSessions(session),
            artifact_service=HoldfastArtifactService(turn.client),
        )

    def _load(self, recorded: Mapping[str, Any], user_id: str) -> list[Event]:
        self._check_user(self._session.state, user_id)
        events = load_events(self._session.state["messages"][recorded["first"] : recorded["end"]])
        return [event for event in events if event.author != "user"]

    def _check_user(self, state: Mapping[str, Any], user_id: str) -> None:
        if not isinstance(user_id, str) or not user_id:
            raise UsageError(f"user_id is {user_id!r:.60}: it must be a text that is not empty")
        owner = state.get("user", user_id)
        if owner != user_id:
            raise UsageError(
                f"session {self._session.session_id!r:.60} belongs to the user {owner!r:.60}, not to {user_id!r:.60}: "
                "give each user a session_id"
            )


class TurnSessions(BaseSessionService):
    """The session of one turn, in memory: the store gets its events when the turn is over."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        return self._session

    async def create_session(self, **_: Any) -> Session:
        return self._session

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        return ListSessionsResponse(sessions=[self._session.model_copy(update={"events": []})])

    async def delete_session(self, **_: Any) -> None:
        raise UsageError("a session can't be deleted in the middle of its turn")


def _end(turn: FrameworkTurn, session: Session, before: int) -> TurnEnd:
    added = [dump_event(event) for event in session.events[before:]]
    state = plain_state({name: value for name, value in session.state.items() if not name.startswith(TEMPORARY)})
    first = len(turn.stored_list("messages"))
    recorded = {"first": first, "end": first + len(added)}
    return TurnEnd(None, recorded, {"state": state, "user": session.user_id}, {"messages": added})
