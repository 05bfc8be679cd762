"""The part of the client for topics: publish messages, read them, and look after groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.client.factory import ClientBase
from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.operations import validate

if TYPE_CHECKING:
    from holdfast.coordination.contract import Contract
    from holdfast.coordination.message_stream import MessageStream
    from holdfast.coordination.subscription import Subscription
    from holdfast.model.message import DeadMessage, Message, TopicStatus
    from holdfast.operations.message_write import MessageWrite


class ClientTopics(ClientBase):
    """The part of `Client` that is about topics."""

    async def publish(
        self,
        topic: str,
        value: Any,
        *,
        contract: Contract[Any] | None = None,
        key: str | None = None,
        message_id: str | None = None,
        agent_id: str = "agent",
        ttl: float = 7 * 86400.0,
        max_ttl: float = 30 * 86400.0,
        max_waiting: int = 10_000,
        wait: float = 0.0,
    ) -> str:
        """Publishes a message to a topic, and returns its id. It is durable then.

        A `contract` validates the value first. Messages with the same `key` reach a group in order,
        one at a time. `message_id`, any UUID, makes a repetition a no-op; with other content it is a
        conflict. The message is kept for `ttl` seconds, and longer while a group has not consumed
        it, up to `max_ttl`. If a group has `max_waiting` messages left, `TopicFullError` is raised,
        once `wait` seconds have passed without room.

        To publish together with a checkpoint, use `save(..., publish=[Message(...)])` or
        `run.publish`.
        """
        from holdfast.coordination import contract_use
        from holdfast.coordination.message_stream import check_message
        from holdfast.model.message import Message
        from holdfast.operations import publish as publishing

        message = check_message(
            Message(
                topic, value, contract=contract, key=key, ttl=ttl, max_ttl=max_ttl, max_waiting=max_waiting, wait=wait
            )
        )
        agent = validate.name("agent_id", agent_id)
        given = validate.optional_id(message_id)
        plain = await contract_use.encode_message(self._ctx, message)
        return ids.to_text((await publishing.publish(self._ctx, plain, agent, given)).id)

    async def _prepare_messages(self, given: Sequence[Message]) -> list[MessageWrite]:
        """Return messages for a commit; nothing is written if one is wrong."""
        from holdfast.coordination import contract_use
        from holdfast.coordination.message_stream import check_message
        from holdfast.model.message import Message
        from holdfast.operations import publish as publishing

        if isinstance(given, Message):
            raise UsageError("publish is a Message: give a list of them, publish=[Message(...)]")
        checked = [check_message(message) for message in given]
        plain = [await contract_use.encode_message(self._ctx, message) for message in checked]
        return [await publishing.prepare(self._ctx, message) for message in plain]

    def messages(
        self,
        topic: str,
        *,
        contract: Contract[Any] | None = None,
        after: str | None = "start",
        follow: bool = False,
        poll_seconds: float = 1.0,
    ) -> MessageStream:
        """Streams the retained messages of a topic: `async for message in client.messages("drafts"):`.

        It consumes nothing: it has no group. `after` is the `cursor` of the last message that was
        read; None begins with the messages from now on. With `follow` the stream waits for more.
        """
        from holdfast.coordination import message_stream

        return message_stream.open_messages(self._ctx, topic, contract, after, follow=follow, poll_seconds=poll_seconds)

    def subscribe(
        self,
        topic: str,
        group: str,
        *,
        contract: Contract[Any] | None = None,
        from_: str = "start",
        batch: int = 1,
        seconds: float = 60.0,
        timeout: float | None = None,
        poll_seconds: float = 1.0,
    ) -> Subscription:
        """Consumes a topic as a member of a group: `async with client.subscribe(...) as messages:`.

        Each message goes to one consumer of the group, *at least once*: `ack()` it when it is
        handled. One that is not acknowledged within `seconds`, or whose process ends, is delivered
        again. After five failed attempts it is dead. A run's `receive` consumes exactly once.

        A new group begins with the first retained message, with `from_="now"` after the last one,
        or after a cursor. The loop ends once `timeout` seconds have passed without a message.
        """
        from holdfast.coordination import subscription

        return subscription.open_subscription(
            self._ctx, topic, group, contract, from_, batch=batch, seconds=seconds, timeout=timeout,
            poll_seconds=poll_seconds,
        )  # fmt: skip

    async def topics(self, topic: str | None = None) -> list[TopicStatus]:
        """Lists the topics, or one, with their messages and groups."""
        from holdfast.model.message import check_topic
        from holdfast.operations import topic_status

        return await topic_status.topics(self._ctx, None if topic is None else check_topic(topic))

    async def dead_messages(self, topic: str, group: str | None = None) -> list[DeadMessage]:
        """Lists the messages that a topic's groups have given up, and why."""
        from holdfast.model.message import check_topic
        from holdfast.operations import topic_status

        return await topic_status.list_dead(self._ctx, check_topic(topic), group and check_topic(group, "group"))

    async def redeliver(self, topic: str, group: str, message_id: str) -> None:
        """Delivers a message to a group again, whether it is dead or was consumed.

        Its effects happen again then: decide so for a message whose consumer was rolled back, or
        after the cause of its failures is repaired.
        """
        from holdfast.operations import topic_status

        await topic_status.redeliver(self._ctx, topic, group, ids.from_text(message_id, "a message id"))

    async def discard(self, topic: str, group: str, message_id: str) -> bool:
        """Removes a dead message from a group's list; False if it is not dead."""
        from holdfast.operations import topic_status

        return await topic_status.discard(self._ctx, topic, group, ids.from_text(message_id, "a message id"))
