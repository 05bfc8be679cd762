"""Calls as people write them at first: the natural one works, the mistaken one is refused in words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from stores import Store

from holdfast import Client, SyncClient, UsageError


def ask(store: Store, kind: str, method: str, *positional: Any, **keywords: Any) -> Any:
    """Calls a method of a new client of that kind."""
    if kind == "sync":
        return getattr(store.client(), method)(*positional, **keywords)

    async def call() -> Any:
        async with store.async_client() as client:
            return await getattr(client, method)(*positional, **keywords)

    return asyncio.run(call())


BOTH = pytest.mark.parametrize("kind", ["sync", "async"])


@pytest.fixture
def saved(shared_store: Store) -> list[str]:
    """Session `s`: of agent `a`, then of agent `b`."""
    client = shared_store.client()
    return [client.save(agent, execution_state={"by": agent}, session_id="s") for agent in ("a", "b")]


@BOTH
class TestTheSessionComesFirst:
    def test_in_latest(self, shared_store: Store, saved: list[str], kind: str) -> None:
        assert ask(shared_store, kind, "latest", "s").checkpoint_id == saved[1]
        assert ask(shared_store, kind, "latest", "s", agent_id="a").checkpoint_id == saved[0]
        assert ask(shared_store, kind, "latest", agent_id="a", session_id="s").checkpoint_id == saved[0]
        assert ask(shared_store, kind, "latest", agent_id="b").checkpoint_id == saved[1]
        assert ask(shared_store, kind, "latest").checkpoint_id == saved[1]
        assert ask(shared_store, kind, "latest", "a") is None

    def test_in_timeline(self, shared_store: Store, saved: list[str], kind: str) -> None:
        def ids_of(*positional: str, **keywords: Any) -> list[str]:
            return [entry.checkpoint_id for entry in ask(shared_store, kind, "timeline", *positional, **keywords)]

        assert ids_of("s") == ids_of(session_id="s") == saved[::-1]
        assert ids_of("s", limit=1) == saved[1:]
        assert ids_of(agent_id="a", session_id="s") == ids_of("s", agent_id="a") == saved[:1]


@BOTH
class TestRefusals:
    @pytest.mark.parametrize("method", ["latest", "timeline"])
    def test_of_a_second_positional_name_the_keywords(self, sqlite_store: Store, kind: str, method: str) -> None:
        words = rf"{method}\('a', .*'s'\): only the session .*{method}\(session_id=\.\.\., agent_id=\.\.\.\)"
        with pytest.raises(UsageError, match=words):
            ask(sqlite_store, kind, method, "a", "s")
        with pytest.raises(UsageError, match=words):
            ask(sqlite_store, kind, method, "a", session_id="s")
        with pytest.raises(UsageError, match="only the session"):
            ask(sqlite_store, kind, method, "s", "a", 10)

    @pytest.mark.parametrize("state", [{"n": 1}, [1], ("x",), 5, None])
    def test_of_a_state_as_the_framework_name_execution_state(
        self, sqlite_store: Store, kind: str, state: object
    ) -> None:
        words = (
            rf"the second argument of save is the framework.* {type(state).__name__}.*save\('my-agent', "
            r"execution_state="
        )
        with pytest.raises(UsageError, match=words):
            ask(sqlite_store, kind, "save", "agent", state)
        assert sqlite_store.client().sessions() == []

    def test_of_a_state_as_the_agent_name_execution_state(self, sqlite_store: Store, kind: str) -> None:
        with pytest.raises(UsageError, match=r"agent_id is a dict.*save\('my-agent', execution_state="):
            ask(sqlite_store, kind, "save", {"n": 1})
        with pytest.raises(UsageError, match="agent_id is a int: it must be a str, such as agent_id='5'"):
            ask(sqlite_store, kind, "save", 5)

    def test_of_a_session_as_the_framework_name_session_id(self, sqlite_store: Store, kind: str) -> None:
        with pytest.raises(UsageError, match=r"unknown framework 'my-session'.*save\('my-agent', session_id="):
            ask(sqlite_store, kind, "save", "agent", "my-session", {"n": 1})


@pytest.mark.parametrize("client", [Client, SyncClient])
def test_a_second_positional_is_not_in_the_signatures(client: type) -> None:
    import inspect

    for method in ("latest", "timeline"):
        kinds = {name: one.kind for name, one in inspect.signature(getattr(client, method)).parameters.items()}
        positional = [name for name, one in kinds.items() if one is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        assert positional == ["self", "session_id"]
