"""Conversations of the Claude Agent SDK with the real CLI: turns, effects, people, files, and the client."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anthropic_server import AnthropicServer, ApiError, read_prompts, read_results, text
from framework_environments import require
from survives import survives

require("claude_agent")

from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ProcessError,
    ResultMessage,
    TextBlock,
    UserMessage,
)
from claude_talk import LOOK, PAY, Bank, ask, follow, make_options, restart, result_texts

from holdfast import NOT_DONE, Client, Effect, UsageError
from holdfast.adapters.base.turn import OUTCOME_UNKNOWN
from holdfast.adapters.claude_agent.conversation import CONTINUE
from holdfast.adapters.claude_agent.transcript_mirror import TranscriptMirror
from holdfast.claude_agent import extract, reconstruct, resumable
from holdfast.errors import HoldfastError, HoldfastWarning, UnfinishedTurnError
from holdfast.transcript import to_transcript

SESSION = "invoices"


@pytest.fixture(autouse=True)
def new_process() -> None:
    restart()


def said(messages: list[Any]) -> list[str]:
    return [
        block.text
        for message in messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    ]


# -- turns -------------------------------------------------------------------------------------------------------------


@survives("finished turns", "yield their messages again")
def test_a_finished_turn_returns_its_recorded_messages(tmp_path: Path):
    async def main() -> None:
        bank = Bank()
        with AnthropicServer(follow((PAY, {"invoice": "a"}), "paid a", "you are welcome")) as server:
            options = make_options(server, tmp_path, bank)
            first = await ask(resumable(options, session_id=SESSION), "pay a")
            restart()
            again = await ask(resumable(options, session_id=SESSION), "pay a")
            assert len(server.requests) == 2
            assert bank.paid == ["a"]
            assert [type(one).__name__ for one in again] == [
                "AssistantMessage", "UserMessage", "AssistantMessage", "ResultMessage",
            ]  # fmt: skip
            kept = [one for one in first if type(one).__name__ in {type(one).__name__ for one in again}]
            assert [one.content for one in again[:-1]] == [one.content for one in kept[:-1]]
            assert again[-1] == first[-1]
            assert (await ask(resumable(options, session_id=SESSION), "thanks"))[-1].result == "you are welcome"
            assert read_prompts(server.requests[-1]) == ["pay a", "thanks"]

    os.chdir(tmp_path)
    asyncio.run(main())


def test_a_misspelt_tool_is_refused_or_warned_of(tmp_path: Path):
    """It is refused where no server and no file can bring further tools, and warned of elsewhere."""

    async def main() -> None:
        with AnthropicServer(follow("hello")) as server:
            store = f"sqlite:///{tmp_path}/a"
            closed = make_options(server, tmp_path, Bank())
            for name in ("pey", "mcp__bank__pey"):
                agent = resumable(closed, session_id=SESSION, store=store, tools={name: "irreversible"})
                with pytest.raises(UsageError, match=f"'{name}'.*Did you mean '[a-z_]*pay'.*'mcp__bank__look'"):
                    await ask(agent, "hi")
                async with agent.client() as client:
                    with pytest.raises(UsageError, match=name):
                        await client.query("hi")
            assert not server.requests
            opened = replace(closed, tools=None)
            agent = resumable(opened, session_id=SESSION, store=store, tools={"mcp__bank__pey": "irreversible"})
            with pytest.warns(HoldfastWarning, match="Did you mean 'mcp__bank__pay'"):
                await ask(agent, "hi")

    asyncio.run(main())


def test_a_turn_whose_reader_stops_is_continued_by_the_same_call(tmp_path: Path):
    async def main() -> None:
        with AnthropicServer(follow("hello", (LOOK, {}), "looked", "welcome")) as server:
            bank = Bank()
            bank.goes_on.clear()
            options = make_options(server, tmp_path, bank)
            agent = resumable(options, session_id=SESSION, store=f"sqlite:///{tmp_path}/a")
            await ask(agent, "hello")
            messages = agent.query("look")
            async for message in messages:
                if isinstance(message, AssistantMessage):
                    break
            await bank.looking.wait()  # its call is stored by then
            await messages.aclose()
            bank.goes_on.set()
            with pytest.raises(UnfinishedTurnError):
                await ask(agent, "another")
            assert (await ask(agent, "look"))[-1].result == "looked"
            prompts = read_prompts(server.requests[-1])
            assert (prompts[:2], prompts[-1]) == (["hello", "look"], CONTINUE)
            assert (await ask(agent, "thanks"))[-1].result == "welcome"

    asyncio.run(main())


@survives("an answer whose result was lost", "is not asked for again")
def test_a_turn_whose_answer_is_stored_is_not_asked_again(tmp_path: Path):
    async def main() -> None:
        with AnthropicServer(follow("hello")) as server:
            agent = resumable(make_options(server, tmp_path), session_id=SESSION, store=f"sqlite:///{tmp_path}/a")
            whole = await ask(agent, "hi")
            async with Client.open(f"sqlite:///{tmp_path}/a") as client:
                line = [one for one in await client.timeline(SESSION, limit=None) if one.step_name == "assistant"]
                await client.fork(line[0].checkpoint_id, session_id="cut")
            restart()
            agent = resumable(make_options(server, tmp_path), session_id="cut", store=f"sqlite:///{tmp_path}/a")
            messages = await ask(agent, "hi")
            assert len(server.requests) == 1
            assert said(messages) == ["hello"]
            assert (messages[-1].result, messages[-1].num_turns) == (whole[-1].result, 1)
            assert messages[-1].total_cost_usd is None
            assert await ask(agent, "hi", turn="later")
            assert read_prompts(server.requests[-1]) == ["hi", "hi"]

    asyncio.run(main())


@survives("a turn that failed", "is continued by the same call")
def test_after_an_error_of_the_api_the_same_call_continues(tmp_path: Path):
    is_down = True

    def answer(request: Any) -> list[dict[str, Any]]:
        if is_down:
            raise ApiError(400, "the credit balance is too low")
        return [text("here I am")]

    async def main() -> None:
        nonlocal is_down
        with AnthropicServer(answer) as server:
            agent = resumable(make_options(server, tmp_path), session_id=SESSION, store=f"sqlite:///{tmp_path}/a")
            seen = []
            with pytest.raises(ProcessError):
                async for message in agent.query("hi"):
                    seen += [message]
            assert seen[-1].is_error
            is_down = False
            assert (await ask(agent, "hi"))[-1].result == "here I am"

    asyncio.run(main())


def test_a_limit_of_the_options_ends_a_turn(tmp_path: Path):
    async def main() -> None:
        bank = Bank()
        with AnthropicServer(follow((LOOK, {}), "looked")) as server:
            store = f"sqlite:///{tmp_path}/a"
            agent = resumable(make_options(server, tmp_path, bank, max_turns=1), session_id=SESSION, store=store)
            with pytest.raises(ProcessError):
                await ask(agent, "look")
            restart()
            assert (await ask(agent, "look"))[-1].subtype == "error_max_turns"
            assert (await ask(agent, "and now?"))[-1].result == "looked"

    asyncio.run(main())


def test_several_messages_are_one_turn(tmp_path: Path):
    async def prompts() -> Any:
        for content in ("one", [{"type": "text", "text": "two"}]):
            yield {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}

    async def main() -> None:
        with AnthropicServer(lambda request: [text(f"{len(read_prompts(request))} prompts")]) as server:
            agent = resumable(make_options(server, tmp_path), session_id=SESSION, store=f"sqlite:///{tmp_path}/a")
            first = await ask(agent, prompts())
            asked = len(server.requests)
            assert set(read_prompts(server.requests[-1])) == {"one", "two"}
            restart()
            assert (await ask(agent, prompts()))[-1] == first[-1]
            assert len(server.requests) == asked

    asyncio.run(main())


@survives("sub-agents", "have their transcripts; one under way is asked again")
def test_a_sub_agent_has_a_transcript_of_its_own(tmp_path: Path):
    agents = {"checker": AgentDefinition(description="checks", prompt="You check.", tools=[])}
    use = {"description": "check", "prompt": "is it right?", "subagent_type": "checker", "run_in_background": False}

    def answer(request: Any) -> list[dict[str, Any]]:
        if "is it right?" in read_prompts(request):
            return [text("it is right")]
        return follow(("Agent", use), "checked")(request)

    async def main() -> None:
        with AnthropicServer(answer) as server:
            options = make_options(server, tmp_path, tools=["Agent"], allowed_tools=["Agent"], agents=agents)
            agent = resumable(options, session_id=SESSION, store=f"sqlite:///{tmp_path}/a")
            assert (await ask(agent, "check it"))[-1].result == "checked"
            async with Client.open(f"sqlite:///{tmp_path}/a") as client:
                head = await client.latest(SESSION)
            [name] = [one for one in head.execution_state if one.startswith("subagents/")]
            transcript = to_transcript(head)
            [told] = [one for one in transcript if one.author and one.role == "assistant"]
            assert (told.author, told.text) == (name.rpartition("/")[2], "it is right")
            assert (await ask(agent, "thanks"))[-1].result == "checked"  # the CLI takes it back

    asyncio.run(main())


# -- effects -----------------------------------------------------------------------------------------------------------


def test_equal_calls_without_a_key_are_different_effects_in_every_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The first call has a result in the transcript, the second one only in the ledger: it is not made again."""
    bank, store, lives = Bank(), f"sqlite:///{tmp_path}/a", []
    append = TranscriptMirror.append

    async def lose_after_two(mirror: TranscriptMirror, *batch: Any) -> None:
        if lives or len(bank.paid) < 2:  # what a kill right after the second payment loses
            await append(mirror, *batch)

    monkeypatch.setattr(TranscriptMirror, "append", lose_after_two)

    async def main() -> None:
        pay = (PAY, {"invoice": "a"})
        with AnthropicServer(follow(pay, pay, pay, pay, "paid")) as server:
            agent = resumable(
                make_options(server, tmp_path, bank), session_id=SESSION, store=store, tools={"pay": "irreversible"}
            )
            reader = agent.query("pay")
            async for message in reader:
                if len(bank.paid) == 2 and isinstance(message, UserMessage):
                    break
            await reader.aclose()
            lives.append(len(bank.paid))
            await ask(agent, "pay")
            receipts = [one for one in result_texts(server.requests[-1]) if "interrupted" not in one]
            assert len(receipts) == len(bank.paid) == 3  # the third call was the second one again
            async with Client.open(store) as client:
                assert len(await client.effects(SESSION)) == 3
        assert lives == [2]

    asyncio.run(main())


def test_the_key_of_an_effect_makes_two_calls_one(tmp_path: Path):
    async def main() -> None:
        bank = Bank()
        with AnthropicServer(follow((PAY, {"invoice": "a"}), (PAY, {"invoice": "a"}), "paid")) as server:
            agent = resumable(
                make_options(server, tmp_path, bank),
                session_id=SESSION,
                store=f"sqlite:///{tmp_path}/a",
                tools={PAY: Effect("irreversible", key="invoice")},
            )
            await ask(agent, "pay")
            assert bank.paid == ["a"]
            assert result_texts(server.requests[-1]) == ["receipt a", "receipt a"]

    asyncio.run(main())


def test_an_effect_whose_tool_fails_is_in_doubt_until_its_probe_answers(tmp_path: Path):
    found: list[Any] = []

    def fail(given: dict[str, Any]) -> str:
        if not found:
            raise ConnectionError("no route to the bank")
        return "receipt a"

    def probe(invoice: str) -> Any:
        found.append(invoice)
        return NOT_DONE

    async def main() -> None:
        for options, texts in (
            ({}, ["no route to the bank", OUTCOME_UNKNOWN]),
            ({"probe": probe}, ["no route to the bank", "receipt a"]),
        ):
            bank = Bank(fail)
            store = f"sqlite:///{tmp_path}/{len(options)}"
            with AnthropicServer(follow((PAY, {"invoice": "a"}), (PAY, {"invoice": "a"}), "done")) as server:
                tools = {"pay": Effect("irreversible", key="invoice", **options)}
                agent = resumable(make_options(server, tmp_path, bank), session_id=SESSION, store=store, tools=tools)
                await ask(agent, "pay")
                assert result_texts(server.requests[-1]) == texts
                assert len(bank.paid) == 1 + len(found)

    asyncio.run(main())


def test_a_call_with_invalid_arguments_is_no_effect(tmp_path: Path):
    async def main() -> None:
        bank = Bank()
        with AnthropicServer(follow((PAY, {"invoice": 7}), "sorry")) as server:
            store = f"sqlite:///{tmp_path}/a"
            agent = resumable(
                make_options(server, tmp_path, bank), session_id=SESSION, store=store, tools={"pay": "irreversible"}
            )
            await ask(agent, "pay")
            [told] = result_texts(server.requests[-1])
            assert "validation" in told.lower()
            assert bank.paid == []
            async with Client.open(store) as client:
                assert await client.effects(SESSION) == []

    asyncio.run(main())


def test_a_tool_that_the_cli_carries_out_is_no_effect(tmp_path: Path):
    async def main() -> None:
        use = {"command": "touch made", "description": "make"}
        with AnthropicServer(follow(("Bash", use), "made")) as server:
            options = make_options(server, tmp_path, tools=["Bash"], allowed_tools=["Bash"], cwd=tmp_path)
            agent = resumable(
                options, session_id=SESSION, store=f"sqlite:///{tmp_path}/a", tools={"Bash": "irreversible"}
            )
            with pytest.raises(UsageError, match="the CLI carries it out"):
                await ask(agent, "make")
            assert not (tmp_path / "made").exists()

    asyncio.run(main())


def test_two_sessions_may_share_a_server(tmp_path: Path):
    async def main() -> None:
        bank = Bank()
        with AnthropicServer(follow((PAY, {"invoice": "a"}), "paid")) as server:
            options = make_options(server, tmp_path, bank)
            store = f"sqlite:///{tmp_path}/a"
            await asyncio.gather(
                *(
                    ask(resumable(options, session_id=one, store=store, tools={"pay": "irreversible"}), "pay")
                    for one in "xy"
                )
            )
            async with Client.open(store) as client:
                assert [len(await client.effects(one)) for one in "xy"] == [1, 1]
            assert bank.paid == ["a", "a"]

    asyncio.run(main())


# -- files -------------------------------------------------------------------------------------------------------------


@survives("files of the workspace", "go back with the conversation")
def test_a_rollback_takes_files_and_conversation_back_together(tmp_path: Path):
    work, store = tmp_path / "work", f"sqlite:///{tmp_path}/a"
    work.mkdir()

    def write(content: str) -> Any:
        return ("Write", {"file_path": str(work / content), "content": content})

    async def main() -> None:
        with AnthropicServer(follow(write("one"), "wrote one", write("two"), "wrote two")) as server:
            options = make_options(server, tmp_path, tools=["Write"], permission_mode="acceptEdits")
            agent = resumable(options, session_id=SESSION, store=store, workspace=work)
            await ask(agent, "first")
            async with Client.open(store) as client:
                first = (await client.session(SESSION)).head.checkpoint_id
            await ask(agent, "second")
            assert sorted(one.name for one in work.iterdir()) == ["one", "two"]
            async with Client.open(store) as client:
                await client.fork(SESSION, session_id="kept")
                await client.rollback(SESSION, to=first, workspace=work)
            assert [one.name for one in work.iterdir()] == ["one"]
            assert (await ask(agent, "third"))[-1].result == "wrote two"
            assert read_prompts(server.requests[-1]) == ["first", "third"]
            kept = resumable(options, session_id="kept", store=store)
            assert (await ask(kept, "fourth"))[-1].result == "wrote two"
            assert read_prompts(server.requests[-1]) == ["first", "second", "fourth"]

    asyncio.run(main())


# -- the client --------------------------------------------------------------------------------------------------------


def test_a_client_takes_several_turns_with_one_cli(tmp_path: Path):
    async def main() -> None:
        bank = Bank()
        with AnthropicServer(follow((PAY, {"invoice": "a"}), "paid a", "welcome")) as server:
            options = make_options(server, tmp_path, bank)
            agent = resumable(
                options, session_id=SESSION, store=f"sqlite:///{tmp_path}/a", tools={"pay": "irreversible"}
            )
            for _ in range(2):  # the second life finds both turns
                async with agent.client() as client:
                    assert await client.get_server_info()
                    for prompt, result in (("pay", "paid a"), ("thanks", "welcome")):
                        await client.query(prompt)
                        assert [one async for one in client.receive_response()][-1].result == result
                restart()
            assert len(server.requests) == 3
            assert bank.paid == ["a"]

    asyncio.run(main())


def test_a_client_sees_a_turn_that_another_process_has_taken(tmp_path: Path):
    async def main() -> None:
        with AnthropicServer(follow("one", "two", "three")) as server:
            store = f"sqlite:///{tmp_path}/a"
            agent = resumable(make_options(server, tmp_path), session_id=SESSION, store=store)
            async with agent.client() as client:
                await client.query("first")
                assert [one async for one in client.receive_response()][-1].result == "one"
                await ask(resumable(make_options(server, tmp_path), session_id=SESSION, store=store), "second")
                await client.query("third")
                assert [one async for one in client.receive_response()][-1].result == "three"
            assert read_prompts(server.requests[-1]) == ["first", "second", "third"]

    asyncio.run(main())


def test_the_last_entries_of_an_idle_client_do_not_hide_a_turn_of_another_process(tmp_path: Path):
    async def main() -> None:
        with AnthropicServer(follow("one", "two", "three")) as server:
            store = f"sqlite:///{tmp_path}/a"
            agent = resumable(make_options(server, tmp_path), session_id=SESSION, store=store)
            async with agent.client() as client:
                await client.query("first")
                assert [one async for one in client.receive_response()][-1].result == "one"
                await ask(resumable(make_options(server, tmp_path), session_id=SESSION, store=store), "second")
            assert (await ask(agent, "third"))[-1].result == "three"
            assert read_prompts(server.requests[-1]) == ["first", "second", "third"]

    asyncio.run(main())


def test_a_client_reads_a_response_before_the_next_query(tmp_path: Path):
    async def main() -> None:
        with AnthropicServer(follow("one", "two")) as server:
            agent = resumable(make_options(server, tmp_path), session_id=SESSION, store=f"sqlite:///{tmp_path}/a")
            async with agent.client() as client:
                await client.query("first")
                with pytest.raises(UsageError, match="not read to its end"):
                    await client.query("second")
            async with agent.client() as client:  # left in the middle of its turn
                await client.query("first")
                assert [one async for one in client.receive_response()][-1].result in ("one", "two")

    asyncio.run(main())


def test_an_interrupted_turn_is_finished(tmp_path: Path):
    async def main() -> None:
        use = {"command": "sleep 20", "description": "wait"}
        with AnthropicServer(follow(("Bash", use), "next")) as server:
            options = make_options(server, tmp_path, tools=["Bash"], allowed_tools=["Bash"], cwd=tmp_path)
            agent = resumable(options, session_id=SESSION, store=f"sqlite:///{tmp_path}/a")
            async with agent.client() as client:
                await client.query("wait")
                async for message in client.receive_messages():
                    if isinstance(message, AssistantMessage):
                        await asyncio.sleep(0.5)
                        await client.interrupt()
                    if isinstance(message, ResultMessage):
                        break
                await client.query("go on")
                assert [one async for one in client.receive_response()][-1].result == "next"
            assert "interrupted" in str(read_results(server.requests[-1])) + str(read_prompts(server.requests[-1]))

    asyncio.run(main())


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_a_transcript_of_the_sdk_is_continued_by_resumable_and_back(tmp_path: Path):
    import claude_agent_sdk
    from claude_agent_sdk import InMemorySessionStore

    async def main() -> None:
        with AnthropicServer(follow("one", "two", "three")) as server:
            own = InMemorySessionStore()
            options = make_options(server, tmp_path, cwd=tmp_path)
            begun = ClaudeAgentOptions(**{**vars(options), "session_store": own})
            messages = [one async for one in claude_agent_sdk.query(prompt="first", options=begun)]
            project = claude_agent_sdk.project_key_for_directory(tmp_path)
            entries = await own.load({"project_key": project, "session_id": messages[-1].session_id})
            checkpoint = extract(entries, agent_id="claude", session_id=SESSION)
            store = f"sqlite:///{tmp_path}/a"
            async with Client.open(store) as client:
                await client.save_checkpoint(checkpoint)
            assert (await ask(resumable(options, session_id=SESSION, store=store), "second"))[-1].result == "two"
            assert read_prompts(server.requests[-1]) == ["first", "second"]
            async with Client.open(store) as client:
                head = await client.latest(SESSION)
            back = InMemorySessionStore()
            id_ = await reconstruct(head, back, project_key=project)
            assert id_ == messages[-1].session_id
            (tmp_path / "fresh").mkdir()
            resumed = ClaudeAgentOptions(
                **{**vars(make_options(server, tmp_path / "fresh", cwd=tmp_path)), "session_store": back, "resume": id_}
            )
            messages = [one async for one in claude_agent_sdk.query(prompt="third", options=resumed)]
            assert messages[-1].result == "three"
            assert read_prompts(server.requests[-1]) == ["first", "second", "third"]

    asyncio.run(main())


def test_a_transcript_has_the_messages_of_the_turn(tmp_path: Path):
    async def main() -> None:
        with AnthropicServer(follow(["I look", (LOOK, {})], "looked")) as server:
            store = f"sqlite:///{tmp_path}/a"
            await ask(resumable(make_options(server, tmp_path, Bank()), session_id=SESSION, store=store), "look")
            async with Client.open(store) as client:
                transcript = to_transcript(await client.latest(SESSION))
        assert [one.role for one in transcript] == ["user", "assistant", "tool", "assistant"]
        assert transcript.messages[1].text == "I look"
        assert [one.name for one in transcript.messages[1].tool_calls] == [LOOK]
        [response] = transcript.messages[2].tool_responses
        assert (response.name, response.content[0].content) == (LOOK, "100")
        assert transcript.cursor.is_finished

    asyncio.run(main())


@pytest.mark.parametrize(
    "options",
    [{"resume": "x"}, {"continue_conversation": True}, {"session_id": "x"}, {"enable_file_checkpointing": True}],
)
def test_options_of_the_conversation_are_refused(options: dict[str, Any]):
    with pytest.raises(UsageError, match=next(iter(options))):
        resumable(ClaudeAgentOptions(**options), session_id=SESSION)


def test_a_declaration_that_can_not_hold_is_refused():
    with pytest.raises(UsageError, match="not_done"):
        resumable(session_id=SESSION, tools={"pay": Effect("irreversible", not_done=(ValueError,))})
    with pytest.raises(HoldfastError):
        resumable("options", session_id=SESSION)
