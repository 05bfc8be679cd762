"""`resumable(options, ...)`: conversations with Claude whose turns continue after a crash."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Message, ResultMessage

from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.session import ResumableSession
from holdfast.adapters.claude_agent.client import ResumableClaudeClient
from holdfast.adapters.claude_agent.conversation import ENTRY, ClaudeConversation, stop_client
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect, declared_effects

warn_if_untested("claude-agent-sdk", "0.2.182", "0.3")

_OF_THE_STORE = (
    "session_store", "resume", "continue_conversation", "session_id", "fork_session", "resume_session_at",
    "resume_drops_turn", "enable_file_checkpointing",
)  # fmt: skip


def resumable(
    target: ClaudeAgentOptions | None = None,
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> ResumableClaude:
    """Return a conversation with `query` and `client`, whose turns continue after a crash.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. `workspace` is the directory whose
    files are saved with the conversation; Claude works in it unless the `cwd` of the options says otherwise.
    `tools` declares what tools do, by their names.
    """
    return ResumableClaude(
        target, session_id=session_id, store=store, agent_id=agent_id, workspace=workspace, tools=tools
    )


class ResumableClaude:
    """A conversation in a store, by the SDK's own entry points.

    `turn` identifies a turn, for example by the id of the message that it answers. Without it, a
    turn is known by its prompt, and by how many turns with that prompt this process has finished.
    """

    def __init__(
        self,
        options: ClaudeAgentOptions | None = None,
        *,
        session_id: str,
        agent_id: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        tools: Mapping[str, Effect | str] | None = None,
        store: Any = None,
    ) -> None:
        self.options = ClaudeAgentOptions() if options is None else options
        if not isinstance(self.options, ClaudeAgentOptions):
            raise UsageError(f"resumable() takes ClaudeAgentOptions, not a {type(options).__name__}")
        given = next((name for name in _OF_THE_STORE if getattr(self.options, name)), None)
        if given is not None:
            raise UsageError(f"options.{given} can't be given: the store has the conversation. Leave it out")
        self._tools = declared_effects(tools)
        self._workspace = workspace
        self._session = ResumableSession(
            Framework.CLAUDE_AGENT,
            session_id=session_id,
            store=store,
            agent_id=agent_id or "claude",
            workspace=workspace,
        )
        self._talk()  # raises now if the declarations are wrong

    async def query(
        self, prompt: str | AsyncIterable[dict[str, Any]], *, turn: str | None = None
    ) -> AsyncIterator[Message]:
        """Yield the messages of a turn, which begins or continues; of a finished one, the recorded messages.

        Messages of an async iterable are read before the turn begins.
        """
        given = prompt if isinstance(prompt, str) else [message async for message in prompt]
        talk = self._talk()
        await talk.gate.check_tools()
        failed: Exception | None = None
        async with self._session.open_turn(ENTRY, given, turn) as opened:
            if opened.turn is None:
                for message in talk.load_turn(opened.recorded):
                    yield message
                return
            await talk.begin(opened.turn, given)
            for message in talk.known:
                yield message
            # The SDK's own `query` does not wait for the end of the CLI where a reader stops early.
            client = ClaudeSDKClient(talk.make_options())
            try:
                if talk.result is None:
                    await client.connect(talk.send(until_end=True))
                    async for message in client.receive_messages():
                        talk.note(message)
                        if not isinstance(message, ResultMessage):
                            yield message
            except Exception as error:  # raised below, after the turn has its end
                failed = error
            finally:
                await stop_client(client, is_busy=talk.result is None)
            opened.end = await talk.end()
            if failed is not None and opened.end is None:
                if talk.result is not None:
                    yield talk.result
                raise failed
        if talk.result is not None:
            yield talk.result
        if failed is not None:
            raise failed

    def client(self) -> ResumableClaudeClient:
        """Return a client for several turns with one CLI: `async with agent.client() as client:`."""
        return ResumableClaudeClient(self._session, self._talk())

    def _talk(self) -> ClaudeConversation:
        return ClaudeConversation(self._session, self.options, self._tools, self._workspace)
