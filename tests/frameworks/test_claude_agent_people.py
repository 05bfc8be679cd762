"""Calls of the Claude Agent SDK's CLI that wait for a person."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from anthropic_server import AnthropicServer, read_prompts
from framework_environments import require
from survives import survives

require("claude_agent")

from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions
from claude_talk import PAY, Bank, ask, follow, make_options, restart, result_texts

from holdfast import Client, Effect
from holdfast.adapters.base.session import ResumableSession
from holdfast.adapters.claude_agent.conversation import CONTINUE, ClaudeConversation
from holdfast.claude_agent import ResumableClaude, resumable
from holdfast.errors import ApprovalPendingError
from holdfast.model.framework import Framework

SESSION = "invoices"


@pytest.fixture(autouse=True)
def new_process() -> None:
    restart()


WRITE = {"Write": Effect("idempotent", approve="clerks")}


def make_writer(server: AnthropicServer, where: Path, **more: Any) -> ResumableClaude:
    options = make_options(server, where, tools=["Write"], allowed_tools=[], cwd=where)
    return resumable(options, session_id=SESSION, store=f"sqlite:///{where}/a", tools=WRITE, **more)


async def decide(where: Path, *decision: Any, **more: Any) -> int:
    async with Client.open(f"sqlite:///{where}/a") as client:
        asked = await client.approvals(SESSION)
        for one in asked:
            await client.decide(one.approval_id, *decision, by="ann", **more)
    return len(asked)


@survives("questions to a person", "wait, and keep their answer")
@pytest.mark.parametrize("decision", ["approve", "modify", "reject"])
def test_a_call_waits_for_a_person_and_is_made_without_asking_the_model_again(tmp_path: Path, decision: str):
    file = tmp_path / "report"

    async def main() -> None:
        write = ("Write", {"file_path": str(file), "content": "draft"})
        with AnthropicServer(follow(write, "written")) as server:
            for _ in range(2):
                with pytest.raises(ApprovalPendingError):
                    await ask(make_writer(server, tmp_path), "write")
                assert len(server.requests) == 1
            changed = {"arguments": {"file_path": str(file), "content": "final"}} if decision == "modify" else {}
            assert await decide(tmp_path, decision, **changed) == 1
            restart()
            messages = await ask(make_writer(server, tmp_path), "write")
            assert messages[-1].result == "written"
            assert len(server.requests) == 2
            told = " ".join(read_prompts(server.requests[-1]))
            assert ("ann has rejected it" in told) == (CONTINUE in told) == (decision == "reject")

    asyncio.run(main())
    assert (file.read_text() if file.exists() else None) == {"approve": "draft", "modify": "final"}.get(decision)


def test_of_two_calls_that_need_a_person_one_waits_at_a_time(tmp_path: Path):
    def write(name: str) -> Any:
        return ("Write", {"file_path": str(tmp_path / name), "content": name})

    async def main() -> None:
        with AnthropicServer(follow([write("x"), write("y")], write("y"), "written")) as server:
            for _ in range(2):
                with pytest.raises(ApprovalPendingError):
                    await ask(make_writer(server, tmp_path), "write")
                assert await decide(tmp_path, "approve") == 1
            assert (await ask(make_writer(server, tmp_path), "write"))[-1].result == "written"
            assert "another call waits" in result_texts(server.requests[1])[0]
        assert [(tmp_path / name).read_text() for name in "xy"] == ["x", "y"]

    asyncio.run(main())


def test_a_call_of_the_cli_that_was_approved_and_begun_is_not_made_again(tmp_path: Path):
    """A kill may lose its result: then its outcome is unknown."""
    file = tmp_path / "report"

    async def main() -> None:
        with AnthropicServer(follow(("Write", {"file_path": str(file), "content": "x"}), "written")) as server:
            with pytest.raises(ApprovalPendingError):
                await ask(make_writer(server, tmp_path), "write")
            await decide(tmp_path, "approve")
            await ask(make_writer(server, tmp_path), "write")
            async with Client.open(f"sqlite:///{tmp_path}/a") as client:
                line = await client.timeline(SESSION, limit=None)
                [begun] = [one for one in line if one.step_name == "Write started"]
                await client.rollback(SESSION, to=begun.checkpoint_id)
            file.unlink()
            restart()
            await ask(make_writer(server, tmp_path), "write")
            [told] = result_texts(server.requests[-1])
            assert "interrupted" in told
        assert not file.exists()

    asyncio.run(main())


def test_a_call_that_the_cli_would_not_defer_is_refused(tmp_path: Path):
    """The CLI ignores that a call is deferred if its entry has several, as without streaming."""
    calls = [{"type": "tool_use", "id": id_, "name": "Write", "input": {}} for id_ in ("c1", "c2")]
    state = {"messages": [{"type": "assistant", "message": {"role": "assistant", "content": calls}}]}
    given = {"tool_name": "Write", "tool_input": {}}

    async def main() -> None:
        async with Client.memory() as client:
            session = ResumableSession(Framework.CLAUDE_AGENT, session_id=SESSION, store=client)
            talk = ClaudeConversation(session, ClaudeAgentOptions(), WRITE, None)
            talk.mirror.use_state(state)
            async with session.open_turn("query", "write", None) as opened:
                await talk.mirror.set_turn(opened.turn)
                decided = await talk.gate.before_call(given, "c1", None)
                assert decided["hookSpecificOutput"]["permissionDecision"] == "deny"
                assert await talk.gate.before_call({"tool_name": "Read"}, "c1", None) == {}
                broken = await talk.gate.before_call({}, "c1", None)
                assert broken["hookSpecificOutput"]["permissionDecision"] == "deny"

    asyncio.run(main())


def test_a_sub_agent_can_not_wait_for_a_person(tmp_path: Path):
    agents = {"writer": AgentDefinition(description="writes", prompt="You write.", tools=["Write"])}
    use = {"description": "write", "prompt": "write it", "subagent_type": "writer", "run_in_background": False}

    def answer(request: Any) -> list[dict[str, Any]]:
        if "write it" in read_prompts(request):
            return follow(("Write", {"file_path": str(tmp_path / "report"), "content": "x"}), "I could not")(request)
        return follow(("Agent", use), "not written")(request)

    async def main() -> None:
        with AnthropicServer(answer) as server:
            options = make_options(
                server,
                tmp_path,
                tools=["Write", "Agent"],
                allowed_tools=["Agent", "Write"],
                agents=agents,
                cwd=tmp_path,
            )
            agent = resumable(options, session_id=SESSION, store=f"sqlite:///{tmp_path}/a", tools=WRITE)
            assert (await ask(agent, "write"))[-1].result == "not written"
            told = [one for request in server.requests for one in result_texts(request) if "approval" in one]
            assert "The main agent must make this call" in told[0]
        assert not (tmp_path / "report").exists()

    asyncio.run(main())


def test_an_effect_in_this_process_waits_for_a_person_too(tmp_path: Path):
    async def main() -> None:
        bank = Bank()
        with AnthropicServer(follow((PAY, {"invoice": "a"}), "paid")) as server:
            agent = resumable(
                make_options(server, tmp_path, bank),
                session_id=SESSION,
                store=f"sqlite:///{tmp_path}/a",
                tools={"pay": Effect("irreversible", key="invoice", approve="finance")},
            )
            async with agent.client() as client:
                await client.query("pay")
                with pytest.raises(ApprovalPendingError):
                    [one async for one in client.receive_response()]
                assert bank.paid == []
                await decide(tmp_path, "approve")
                await client.query("pay")
                assert [one async for one in client.receive_response()][-1].result == "paid"
            assert bank.paid == ["a"]
            async with Client.open(f"sqlite:///{tmp_path}/a") as store:
                assert len(await store.effects(SESSION)) == 1

    asyncio.run(main())
