"""A model client that gives the recorded answer to a request, or asks the user's own client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autogen_core.models import ChatCompletionClient, CreateResult, SystemMessage

from holdfast.adapters.base.turn import FrameworkTurn, TurnEndedError
from holdfast.adapters.base.unreadable import check_texts

if TYPE_CHECKING:
    from holdfast.adapters.autogen.journal import TeamJournal


class TurnStoppedError(RuntimeError):
    """The turn can't continue. AutoGen passes on what a model raises, and ends the run."""


def dump_answer(answer: CreateResult) -> dict[str, Any]:
    return dict(answer.model_dump(mode="json", exclude_none=True))


def load_answer(recorded: Mapping[str, Any]) -> CreateResult:
    check_texts(recorded)
    return CreateResult.model_validate(recorded)


class JournaledClient(ChatCompletionClient):
    """A model client whose answers are recorded, for one agent."""

    def __init__(self, client: ChatCompletionClient, journal: TeamJournal, agent: str) -> None:
        self._client = client
        self._journal = journal
        self._agent = agent

    async def create(self, messages: Sequence[Any], **options: Any) -> CreateResult:
        turn = self._turn(options.get("cancellation_token"))
        if turn is None:
            return await self._client.create(messages, **options)

        async def ask() -> dict[str, Any]:
            return dump_answer(await self._client.create(messages, **options))

        try:
            return await turn.call_model(self._agent, self._request(messages, **options), ask, load_answer)
        except TurnEndedError as error:
            raise TurnStoppedError(str(error)) from error

    async def create_stream(self, messages: Sequence[Any], **options: Any) -> AsyncGenerator[Any, None]:
        turn = self._turn(options.get("cancellation_token"))
        if turn is None:
            async for event in self._client.create_stream(messages, **options):
                yield event
            return
        try:
            events = turn.stream_model(
                self._agent,
                self._request(messages, **options),
                lambda: self._client.create_stream(messages, **options),
                lambda event: dump_answer(event) if isinstance(event, CreateResult) else None,
                _replay,
            )
            async for event in events:
                yield event
        except TurnEndedError as error:
            raise TurnStoppedError(str(error)) from error

    def _turn(self, cancellation_token: Any) -> FrameworkTurn | None:
        is_cancelled = cancellation_token is not None and cancellation_token.is_cancelled()
        if self._journal.turn is not None and (self._journal.is_stopped or is_cancelled):
            raise TurnStoppedError("the turn was cancelled")
        return self._journal.turn

    def _request(
        self, messages: Sequence[Any], *, tools: Any = (), tool_choice: Any = "auto", json_output: Any = None, **_: Any
    ) -> dict[str, Any]:
        """Return what identifies a request. Instructions are left out: they often have the time of day."""
        return {
            "messages": self._journal.digests.digest(
                [message for message in messages if not isinstance(message, SystemMessage)]
            ),
            "tools": sorted(map(_name_of, tools)),
            "tool_choice": tool_choice if isinstance(tool_choice, str) else _name_of(tool_choice),
            "output": json_output.__name__ if isinstance(json_output, type) else json_output,
        }

    async def close(self) -> None:
        await self._client.close()

    def actual_usage(self) -> Any:
        return self._client.actual_usage()

    def total_usage(self) -> Any:
        return self._client.total_usage()

    def count_tokens(self, messages: Sequence[Any], **options: Any) -> int:
        return int(self._client.count_tokens(messages, **options))

    def remaining_tokens(self, messages: Sequence[Any], **options: Any) -> int:
        return int(self._client.remaining_tokens(messages, **options))

    @property
    def capabilities(self) -> Any:
        return self._client.capabilities

    @property
    def model_info(self) -> Any:
        return self._client.model_info

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def _replay(recorded: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the events of a recorded answer: its text in one piece, then the whole answer."""
    answer = load_answer(recorded)
    if isinstance(answer.content, str) and answer.content:
        yield answer.content
    yield answer


def _name_of(tool: Any) -> str:
    return str(tool["name"] if isinstance(tool, Mapping) else tool.name)
