"""One conversation with the CLI: its options, its prompts, and the end of a turn."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ClaudeSDKError, HookMatcher, Message, ResultMessage

from holdfast.adapters.base.message_log import MESSAGES
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn, TurnEndedError
from holdfast.adapters.claude_agent.entries import (
    find_answer,
    find_deferred,
    find_open_calls,
    find_prompt,
    find_session_id,
    read_arguments,
)
from holdfast.adapters.claude_agent.messages import dump_result, load_messages, load_result, make_result
from holdfast.adapters.claude_agent.orphan import end_orphans, mark_session
from holdfast.adapters.claude_agent.tools import ToolGate, describe_rejection
from holdfast.adapters.claude_agent.transcript_mirror import TranscriptMirror
from holdfast.model.tool_effect import Effect

ENTRY = "query"
CONTINUE = "The program was interrupted, and was started again. Continue where you left off."
REPEAT = (
    "Make these calls again, with the same arguments: {calls}. Each is carried out once: if it was carried out before "
    "the interruption, you get its result."
)
LONGEST_HOOK = 600.0  # seconds
LONGEST_INTERRUPT = 5.0  # seconds
LONGEST_START = 10.0  # seconds until the CLI makes the call that was deferred


class ClaudeConversation:
    """The CLI's side of a resumable session. It may be used for one turn after the other."""

    def __init__(
        self,
        session: ResumableSession,
        options: ClaudeAgentOptions,
        tools: Mapping[str, Effect],
        workspace: str | os.PathLike[str] | None,
    ) -> None:
        self._session = session
        self._options = options
        self._workspace = workspace
        self.mirror = TranscriptMirror(session)
        self.gate = ToolGate(self.mirror, tools, options)
        self._turn: FrameworkTurn | None = None
        self._first = 0  # the turn's first entry
        self._prompts: list[dict[str, Any]] = []
        self.is_deferred = False  # the CLI makes a call that waited for a person, without a prompt
        self._ended = asyncio.Event()
        self.result: ResultMessage | None = None
        self.known: list[Message] = []  # of the turn, by earlier lives

    # -- the beginning of a turn ---------------------------------------------------------------------------------------

    async def begin(self, turn: FrameworkTurn, given: Any, stop: Callable[[], Awaitable[None]] | None = None) -> None:
        """Begin a turn, or continue it; `stop` stops a CLI that is running, if it has another conversation."""
        turn.stored_list(MESSAGES)  # raises if it is no list
        if not self.mirror.has_transcripts(turn):
            if stop is not None:
                await self.mirror.ignore_during(stop())
            self.mirror.use_state(turn.state)
        if turn.begun_after is None:
            await asyncio.to_thread(end_orphans, self._session.location, self._session.session_id)
        self._turn, self.result, self.is_deferred = turn, None, False
        self._ended = asyncio.Event()
        await self.mirror.set_turn(turn)
        messages = _messages_of(given, turn.key)
        entries = self.mirror.entries
        begun = find_prompt(entries, messages[0]["uuid"]) if messages else None
        self._first = len(entries) if begun is None else begun
        self.gate.begin(entries[self._first :])
        self.known = list(load_messages(entries[self._first :]))
        self._prompts = [message for message in messages if find_prompt(entries, message["uuid"]) is None]
        if not self._prompts:
            await self._continue(turn)

    async def _continue(self, turn: FrameworkTurn) -> None:
        """Decide how a turn continues whose prompts the CLI has."""
        entries = self.mirror.entries[self._first :]
        if find_answer(entries) is not None and not (self._options.hooks or {}).get("Stop"):
            self.result = make_result(entries, find_session_id(entries) or "")  # it was the result that was lost
            return
        deferred, rejections = find_deferred(entries), []
        if deferred is not None:
            position, call = deferred
            name, id_ = str(call.get("name")), str(call.get("id"))
            try:
                answer = await self.gate.ask(turn, name, read_arguments(call), id_)
            except TurnEndedError as error:
                raise turn.ended_by or error from None
            is_rejected = answer is not None and not answer.is_approved
            if is_rejected:
                rejections = [f"{name}: {describe_rejection(answer)}"]
            # The CLI would make the call again, even if it has made it, and a kill has lost the result.
            self.is_deferred = not is_rejected and (self.gate.is_own(name) or await turn.start_call(name, id_))
            if not self.is_deferred:
                self.mirror.hide_from(self._first + position)
        if not self.is_deferred:
            names = [str(call.get("name")) for call in find_open_calls(entries)]
            effects = [name for name in names if self.gate.is_effect(name)]
            repeated = [REPEAT.format(calls=", ".join(effects))] if effects and not rejections else []
            text = " ".join([CONTINUE, *rejections, *repeated])
            self._prompts = [_message(text, str(uuid.uuid4()))]

    async def send(self, *, until_end: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Yield the prompts for this life of the turn.

        A call that was deferred needs no prompt: the CLI makes it, and continues by itself. With
        `until_end` nothing is yielded until the turn has ended, which keeps the CLI's input open.
        """
        if self.is_deferred:
            try:
                async with asyncio.timeout(LONGEST_START):
                    await self.gate.is_active.wait()
            except TimeoutError:
                yield _message(CONTINUE, str(uuid.uuid4()))
            else:
                if until_end:
                    await self._ended.wait()
        for message in self._prompts:
            yield message

    def make_options(self) -> ClaudeAgentOptions:
        """Return the options for a CLI that has the stored conversation."""
        given = self._options
        id_ = find_session_id(self.mirror.entries)
        hooks = dict(given.hooks or {})
        ours = HookMatcher(hooks=[self.gate.before_call], timeout=LONGEST_HOOK)
        return replace(
            given,
            session_store=self.mirror,
            session_store_flush="eager",
            resume=id_,
            session_id=str(uuid.uuid4()) if id_ is None else None,
            cwd=self._workspace if given.cwd is None else given.cwd,
            env={**given.env, **mark_session(self._session.location, self._session.session_id)},
            hooks={**hooks, "PreToolUse": [*hooks.get("PreToolUse", []), ours]},
            allowed_tools=[tool for tool in given.allowed_tools if not self.gate.needs_person(tool.partition("(")[0])],
            mcp_servers=self.gate.wrap_servers() or given.mcp_servers,
        )

    # -- messages, and the end of a turn -------------------------------------------------------------------------------

    def note(self, message: Message) -> None:
        """Note a message of the CLI; raise what has ended the turn, if anything has."""
        self.gate.is_active.set()
        if isinstance(message, ResultMessage):
            self.result = message
            self._ended.set()
        elif self._turn is not None and self._turn.ended_by is not None and not self.gate.is_waiting:
            raise self._turn.ended_by

    async def end(self) -> TurnEnd | None:
        """Return the end of the turn; None if it is not finished. Later entries belong to no turn."""
        turn, result = self._turn, self.result
        await self.mirror.set_turn(None)
        self._turn = None
        if turn is None or result is None or turn.ended_by is not None or not _is_finished(result):
            return None
        entries = self.mirror.entries
        recorded = {
            "first": self._first,
            "end": len(entries),
            "result": dump_result(result, entries[self._first :]),
        }
        return self.mirror.end_turn(turn, recorded)

    def load_turn(self, recorded: Mapping[str, Any]) -> list[Message]:
        """Return the messages of a finished turn."""
        with self._session.guard_state():
            entries: Sequence[Any] = self._session.state.get(MESSAGES, [])[recorded["first"] : recorded["end"]]
            return [*load_messages(entries), load_result(recorded["result"], entries)]


async def stop_client(client: ClaudeSDKClient, *, is_busy: bool) -> None:
    """Stop the CLI. One that is busy is interrupted: at the end of its input it would go on for seconds.

    Its messages are read up to the result, because the SDK has stored the transcript by then.
    """
    if is_busy:
        with suppress(ClaudeSDKError, TimeoutError):
            async with asyncio.timeout(LONGEST_INTERRUPT):
                await client.interrupt()
                async for message in ClaudeSDKClient.receive_messages(client):
                    if isinstance(message, ResultMessage):
                        break
    await ClaudeSDKClient.disconnect(client)


def _is_finished(result: ResultMessage) -> bool:
    """Return whether a result ends its turn. After a failure, the same call continues the turn."""
    was_stopped = str(result.terminal_reason or "").startswith("aborted")
    return not result.is_error or result.subtype.startswith("error_max") or was_stopped


def _messages_of(given: Any, turn: str) -> list[dict[str, Any]]:
    """Return a prompt as messages with ids that are the same in every life."""
    messages = [_message(given, "")] if isinstance(given, str) else given
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, f"holdfast:{turn}")
    return [{**item, "uuid": str(uuid.uuid5(namespace, str(number)))} for number, item in enumerate(messages)]


def _message(text: str, id_: str) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "", "uuid": id_}
