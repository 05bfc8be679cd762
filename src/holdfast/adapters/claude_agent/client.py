"""`ResumableClaudeClient`: the SDK's client, whose turns are stored and continue after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from claude_agent_sdk import ClaudeSDKClient, Message, ResultMessage

from holdfast.adapters.base.session import OpenTurn, ResumableSession
from holdfast.adapters.claude_agent.conversation import ENTRY, ClaudeConversation, stop_client
from holdfast.adapters.claude_agent.entries import find_deferred
from holdfast.errors import HoldfastError, UsageError


class ResumableClaudeClient(ClaudeSDKClient):
    """A `ClaudeSDKClient` over a stored conversation. A `query` and its result are one turn.

    The response to a query is read to its end before the next query. Between two turns another
    process may take one: then the CLI is started again, with the conversation as it is stored.
    """

    def __init__(self, session: ResumableSession, talk: ClaudeConversation) -> None:
        super().__init__()
        self._session = session
        self._talk = talk
        self._opened: OpenTurn | None = None
        self._block: AbstractAsyncContextManager[OpenTurn] | None = None  # of the turn
        self._known: list[Message] = []  # to be yielded before those of the CLI
        self._is_running = False
        self._sending: asyncio.Task[None] | None = None

    async def connect(self, prompt: str | AsyncIterable[dict[str, Any]] | None = None) -> None:
        """Start the CLI with the stored conversation; with a prompt, begin a turn, too.

        A CLI that is to make a call for which a person was asked is started by the turn's `query`.
        """
        self._talk.mirror.use_state(await self._session.load_state())
        if find_deferred(self._talk.mirror.entries) is None:
            await self._start()
        if prompt is not None:
            await self.query(prompt)

    async def query(
        self, prompt: str | AsyncIterable[dict[str, Any]], session_id: str = "default", *, turn: str | None = None
    ) -> None:
        """Begin a turn, or continue it. Of a finished one, `receive_response` yields the recorded messages.

        `session_id` is the SDK's, and has no meaning here.
        """
        if self._opened is not None:
            raise UsageError("the response to the last query is not read to its end: read it, then ask again")
        given = prompt if isinstance(prompt, str) else [message async for message in prompt]
        await self._talk.gate.check_tools()
        talk, block = self._talk, self._session.open_turn(ENTRY, given, turn)
        opened = await block.__aenter__()
        self._block, self._opened = block, opened
        try:
            if opened.turn is None:
                self._known = talk.load_turn(opened.recorded)
                await self._leave(None)
                return
            await talk.begin(opened.turn, given, self._stop)
            self._known = list(talk.known)
            if talk.result is not None:
                self._known.append(talk.result)
                await self._finish()
                return
            if not self._is_running:
                await self._start()
            if talk.is_deferred:  # nothing is sent, unless the CLI does nothing by itself
                self._sending = asyncio.create_task(super().query(talk.send()))
            else:
                await super().query(talk.send())
        except BaseException as error:
            await self._leave(error)
            raise

    async def receive_messages(self) -> AsyncIterator[Message]:
        """Yield the messages of the CLI, after those that the store has of the turn."""
        while self._known:
            yield self._known.pop(0)
        try:
            async for message in super().receive_messages():
                if self._opened is not None:
                    self._talk.note(message)
                    if isinstance(message, ResultMessage):
                        await self._finish()
                yield message
                while self._known:
                    yield self._known.pop(0)
        except HoldfastError as error:
            await self._stop(is_busy=self._talk.result is None)
            await self._leave(error)
            raise
        except Exception as error:
            self._is_running = False
            await self._leave(error)
            raise

    async def disconnect(self) -> None:
        """Stop the CLI. A turn that has no result yet stays unfinished: the same query continues it."""
        await self._stop(is_busy=self._opened is not None)
        await self._leave(None)

    # -- the CLI -------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self.options = self._talk.make_options()
        await super().connect()
        self._is_running = True

    async def _stop(self, *, is_busy: bool = False) -> None:
        is_running, self._is_running = self._is_running, False
        await stop_client(self, is_busy=is_busy and is_running)

    # -- the turn ------------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Record the end of the turn, if it has one."""
        assert self._opened is not None
        self._opened.end = await self._talk.end()
        await self._leave(None)

    async def _leave(self, error: BaseException | None) -> None:
        """Leave the turn; raise what has ended it, unless that is the error itself."""
        block, self._block, self._opened = self._block, None, None
        if block is None:
            return
        if self._sending is not None:
            self._sending.cancel()
        await self._talk.mirror.set_turn(None)
        try:
            await block.__aexit__(None if error is None else type(error), error, None)
        except BaseException as raised:
            if raised is not error:
                raise
