"""A message as a member of a group gets it, and the reader that makes it of a record."""

from __future__ import annotations

from typing import Any

from holdfast.coordination import contract_use
from holdfast.coordination.contract import Contract
from holdfast.coordination.message_stream import make_message
from holdfast.errors import ContractError, NewerContractError, UsageError
from holdfast.format.state.record import StoredRecord
from holdfast.model.event import Cursor
from holdfast.model.message import TopicMessage
from holdfast.operations import group as groups
from holdfast.operations import publish
from holdfast.operations.context import StoreContext
from holdfast.operations.group import ClaimedMessage, PassedOverError, TopicGroup, UnreadableMessageError

MOST_AT_ONCE = 64


class GroupMessage:
    """A message that was delivered to a group."""

    def __init__(self, delivered: ClaimedMessage) -> None:
        assert isinstance(delivered.value, TopicMessage)
        self.message = delivered.value
        """The message, with its key and publisher."""
        self.attempts = delivered.attempts
        """How many attempts have failed."""

    @property
    def value(self) -> Any:
        """The value, as the class of the contract if one was given."""
        return self.message.value

    @property
    def message_id(self) -> str:
        return self.message.message_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.message!r}>"


class MessageReader:
    """The reader of a group's messages, as its contract gives them."""

    def __init__(self, ctx: StoreContext, contract: Contract[Any] | None) -> None:
        self._ctx = ctx
        self._contract = contract

    @property
    def label(self) -> str | None:
        return None if self._contract is None else self._contract.label

    async def begin(self, group: TopicGroup, start: Cursor | None) -> None:
        """Register the contract and the topic, and create the group."""
        if self._contract is not None:
            await contract_use.register(self._ctx, self._contract)
        await publish.register(self._ctx, group.topic)
        await groups.begin(self._ctx, group, start)

    async def read(self, stored: StoredRecord) -> TopicMessage:
        """Return a message; leave one of a newer contract to others, and report one that is invalid."""
        try:
            value = await contract_use.read_message(self._ctx, stored, self._contract)
        except NewerContractError as error:
            raise PassedOverError from error
        except ContractError as error:
            raise UnreadableMessageError(str(error)) from error
        return make_message(stored, value, "")


def check_batch(batch: Any) -> int:
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MOST_AT_ONCE:
        raise UsageError(f"batch is {batch!r:.60}: it must be a whole number from 1 to {MOST_AT_ONCE}")
    return batch
