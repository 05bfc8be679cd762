"""The session service and the artifact service of Google ADK on a store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("google_adk")

from google.adk.apps.app import App
from google.adk.artifacts import InMemoryArtifactService
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from google_adk_turns import Killed, agent, picture, restart, run

from holdfast import SyncClient
from holdfast.adapters.base import session as sessions
from holdfast.google_adk import HoldfastArtifactService, HoldfastSessionService, resumable
from holdfast.transcript import to_transcript


@pytest.fixture(autouse=True)
def as_a_new_process() -> None:
    sessions._finished.clear()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


# -- the session service of ADK ----------------------------------------------------------------------------------------


async def use_sessions(service: Any) -> list[Any]:
    """Return what a session service answers to each kind of call."""
    app = {"app_name": "office", "user_id": "ann"}
    seen: list[Any] = [await service.get_session(**app, session_id="none"), await service.get_user_state(**app)]
    state = {"plain": 1, "user:name": "Ann", "app:motto": "pay", "temp:x": 1}
    session = await service.create_session(**app, session_id=" one ", state=state)
    seen += [session.id, sorted(session.state.items())]
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**app, session_id="one")
    for number in range(12):
        actions = EventActions(state_delta={"number": number, "user:last": number, "temp:y": 2})
        content = types.Content(role="user", parts=[types.Part(text=f"{number}"), picture()])
        event = Event(invocation_id="i", author="user", content=content, actions=actions, timestamp=float(number))
        await service.append_event(session, event)
    await service.append_event(session, Event(author="clerk", partial=True))
    seen += [session.state["temp:y"], len(session.events)]
    for config in (
        None,
        GetSessionConfig(num_recent_events=2),
        GetSessionConfig(num_recent_events=0),
        GetSessionConfig(after_timestamp=9.0),
    ):
        got = await service.get_session(**app, session_id="one", config=config)
        seen.append([event.model_dump(exclude={"id"}) for event in got.events])
        seen.append(sorted(got.state.items()))
    await service.create_session(**app, session_id="two")
    await service.create_session(app_name="office", user_id="bob", session_id="three")
    await service.create_session(app_name="other", user_id="ann", session_id="four")
    for listed in (app, {"app_name": "office"}, {"app_name": "none"}):
        found = (await service.list_sessions(**listed)).sessions
        seen.append([(one.id, one.user_id, one.events, sorted(one.state.items())) for one in found])
    seen.append(await service.get_user_state(**app))
    await service.delete_session(**app, session_id="one")
    await service.delete_session(**app, session_id="one")
    return [
        *seen,
        await service.get_session(**app, session_id="one"),
        len((await service.list_sessions(**app)).sessions),
    ]


def test_a_session_service_behaves_as_adks_own(store):
    async def story() -> None:
        service = HoldfastSessionService(store)
        assert await use_sessions(service) == await use_sessions(InMemorySessionService())
        await service.close()

    asyncio.run(story())


def test_a_runner_with_our_service_goes_on_in_another_process(store):
    async def talk(text: str, answer: str) -> int:
        service = HoldfastSessionService(store)
        target = agent(answer)
        runner = Runner(app=App(name="office", root_agent=target), session_service=service, auto_create_session=True)
        message = types.Content(role="user", parts=[types.Part(text=text)])
        async for _ in runner.run_async(user_id="ann", session_id="s", new_message=message):
            pass
        await service.close()
        return len(target.model.asked[0].contents)

    assert asyncio.run(talk("I am Ada", "hello")) == 1
    assert asyncio.run(talk("who am I?", "Ada")) == 3
    with SyncClient.open(store) as client:
        told = to_transcript(client.latest("adk/office/ann/session/s"))
    assert [(message.role, message.author) for message in told.messages][:2] == [
        ("user", None),
        ("assistant", "clerk"),
    ]


def test_names_with_slashes_stay_apart(store):
    async def story() -> None:
        service = HoldfastSessionService(store)
        await service.create_session(app_name="a", user_id="b/session/c", session_id="d")
        assert await service.get_session(app_name="a", user_id="b", session_id="c/session/d") is None
        assert len((await service.list_sessions(app_name="a", user_id="b")).sessions) == 0
        await service.close()

    asyncio.run(story())


def test_user_state_that_two_sessions_change_at_once_is_not_lost(store):
    async def story() -> dict[str, Any]:
        services = [HoldfastSessionService(store) for _ in range(3)]

        async def change(service: Any, name: str) -> None:
            session = await service.create_session(app_name="a", user_id="u", session_id=name)
            for number in range(5):
                delta = {f"user:{name}-{number}": number}
                await service.append_event(session, Event(author="user", actions=EventActions(state_delta=delta)))

        await asyncio.gather(*(change(service, f"s{number}") for number, service in enumerate(services)))
        found = await services[0].get_user_state(app_name="a", user_id="u")
        for service in services:
            await service.close()
        return found

    assert len(asyncio.run(story())) == 15


# -- the artifact service ----------------------------------------------------------------------------------------------


async def use_artifacts(service: Any) -> list[Any]:
    scope = {"app_name": "office", "user_id": "ann", "session_id": "s"}
    seen: list[Any] = [
        await service.load_artifact(**scope, filename="a.png"),
        await service.list_artifact_keys(**scope),
    ]
    named = scope | {"filename": "dir/a.png", "custom_metadata": {"n": 1}}
    seen += [await service.save_artifact(**named, artifact=part) for part in (picture(), types.Part(text="second"))]
    seen.append(await service.save_artifact(**scope, filename="user:b", artifact=types.Part(text="user's")))
    for version in (None, 0, 1, 7):
        seen.append(await service.load_artifact(**scope, filename="dir/a.png", version=version))
        found = await service.get_artifact_version(**scope, filename="dir/a.png", version=version)
        seen.append(found and (found.version, found.mime_type, found.custom_metadata))
    elsewhere = scope | {"session_id": "t"}
    seen.append(await service.load_artifact(**elsewhere, filename="user:b"))
    seen += [await service.list_artifact_keys(**one) for one in (scope, elsewhere)]
    seen.append(await service.list_versions(**scope, filename="dir/a.png"))
    seen.append([one.version for one in await service.list_artifact_versions(**scope, filename="dir/a.png")])
    await service.delete_artifact(**scope, filename="dir/a.png")
    seen += [await service.list_artifact_keys(**scope), await service.load_artifact(**scope, filename="dir/a.png")]
    return [*seen, await service.list_versions(**scope, filename="dir/a.png")]


def test_an_artifact_service_behaves_as_adks_own(store):
    async def story() -> None:
        service = HoldfastArtifactService(store)
        assert await use_artifacts(service) == await use_artifacts(InMemoryArtifactService())
        await service.close()

    asyncio.run(story())


@survives("artifacts", "are saved once, in the same store")
def test_artifacts_of_a_turn_are_saved_once(store):
    async def draw(tool_context: Any) -> int:
        """Draw."""
        return await tool_context.save_artifact("picture.png", picture())

    with pytest.raises(Killed):
        run(resumable(agent(("draw", {}), tools=[draw]), session_id="s", store=store), "draw")
    restart()
    events = run(resumable(agent("done", tools=[draw]), session_id="s", store=store), "draw")
    assert [event.actions.artifact_delta for event in events if event.actions.artifact_delta] == [{"picture.png": 0}]

    async def versions() -> list[int]:
        service = HoldfastArtifactService(store)
        found = await service.list_versions(app_name="clerk", user_id="ann", session_id="s", filename="picture.png")
        await service.close()
        return found

    assert asyncio.run(versions()) == [0]
