"""`resumable(…, store=client)` on a sealed store: the turn is resumed, and nothing of it is stored in clear."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from call_log import read_calls
from framework_environments import is_installed
from moved_agents import GO_ON, RECEIPT, Office
from stores import RING
from test_forged_states import RUN

from holdfast import Client, KeyMissingError, SyncClient, UsageError
from holdfast.adapters.base import session as sessions


@pytest.fixture(autouse=True)
def _a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions._finished.clear()
    monkeypatch.setattr(sessions, "KEEP_STATE", False)


def run_sealed(name: str, path: Path, office: Office) -> str:
    """Run a turn with a client of the kind that the framework needs."""
    for kind in (Client, SyncClient):
        client: Any = kind.sqlite(path, keys=RING)
        try:
            return RUN[name](client, "session-of-ann", office)
        except UsageError as error:
            assert "it must be a" in str(error)
        finally:
            closed = client.close()
            if closed is not None:
                asyncio.run(closed)
    raise AssertionError("neither kind of client was taken")


@pytest.mark.parametrize("name", RUN)
def test_a_turn_on_a_sealed_store(name: str, tmp_path: Path):
    path, office = tmp_path / "store.db", Office(tmp_path / "office")
    office.directory.mkdir()
    assert RECEIPT in run_sealed(name, path, office)
    sessions._finished.clear()
    assert RECEIPT in run_sealed(name, path, office)  # it reads what it has paid
    assert len(read_calls(office.directory)["pay"]) == 1
    called = read_calls(office.directory)
    with pytest.raises(KeyMissingError, match="keys="):
        RUN[name](f"sqlite:///{path}", "session-of-ann", office)
    assert read_calls(office.directory) == called
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("store.db*"))
    for canary in (RECEIPT, GO_ON, "session-of-ann", "invoice", "clerk"):
        assert canary.encode() not in stored
    with closing(SyncClient.sqlite(path, keys=RING)) as client:
        assert client.session_ids() == ["session-of-ann"]
        assert client.verify().ok


@pytest.mark.skipif(not is_installed("claude_agent"), reason="the Claude Agent SDK is not installed here")
def test_a_conversation_with_claude_on_a_sealed_store(tmp_path: Path):
    from anthropic_server import AnthropicServer
    from claude_talk import PAY, Bank, ask, follow, make_options, restart

    from holdfast.claude_agent import resumable

    bank, path = Bank(), tmp_path / "store.db"

    async def main() -> None:
        with AnthropicServer(follow((PAY, {"invoice": "canary-7"}), "canary-done")) as server:
            for _ in range(2):  # the second life returns what was recorded
                async with Client.sqlite(path, keys=RING) as client:
                    options = make_options(server, tmp_path, bank)
                    agent = resumable(options, session_id="s", store=client, tools={"pay": "irreversible"})
                    messages = await ask(agent, "canary-question")
                    assert messages[-1].result == "canary-done"
                restart()
            requests = len(server.requests)
            agent = resumable(make_options(server, tmp_path, bank), session_id="s", store=f"sqlite:///{path}")
            with pytest.raises(KeyMissingError):
                await ask(agent, "another question")
            assert len(server.requests) == requests

    asyncio.run(main())
    assert bank.paid == ["canary-7"]
    assert b"canary" not in b"".join(file.read_bytes() for file in tmp_path.glob("store.db*"))
