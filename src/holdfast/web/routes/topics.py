"""Topics: how far their groups are, their messages, and those that groups have given up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from holdfast.errors import CheckpointNotFoundError, HoldfastError, StoreError
from holdfast.json_form.topic import dead_fields, message_fields, topic_fields
from holdfast.model.message import TopicMessage
from holdfast.operations import topic_status
from holdfast.web.cut import CutLimits, cut
from holdfast.web.endpoint import AFTER, LIMIT, Endpoint, page
from holdfast.web.request import Ask, Parameter
from holdfast.web.site import Site

VALUE = CutLimits(values=1000, characters=20_000)


def list_topics(site: Site, ask: Ask) -> dict[str, Any]:
    names = site.run(topic_status.topic_names(site.client._ctx))
    rows = page("topics", names, ask.query["limit"], ask.query["after"])
    return {**rows, "topics": [topic_fields(topic) for name in rows["topics"] for topic in site.client.topics(name)]}


def find_topic(site: Site, topic: str) -> str:
    if topic not in site.run(topic_status.topic_names(site.client._ctx)):
        raise CheckpointNotFoundError(f"there is no topic {topic!r:.200} here. /api/v1/topics lists them")
    return topic


def show_topic(site: Site, ask: Ask) -> dict[str, Any]:
    [found] = site.client.topics(find_topic(site, ask.path["topic"]))
    return topic_fields(found)


def shown_message(message: TopicMessage) -> dict[str, Any]:
    """Return the fields of a message, with its value cut."""
    return {**message_fields(replace(message, value=None)), "value": cut(message.value, VALUE)}


def list_messages(site: Site, ask: Ask) -> dict[str, Any]:
    topic, limit = find_topic(site, ask.path["topic"]), ask.query["limit"]
    found = list(islice(_read(site, topic, ask.query["after"]), limit + 1))
    following = found[limit - 1]["cursor"] if len(found) > limit else None
    return {"topic": topic, "messages": found[:limit], "next": following}


def _read(site: Site, topic: str, after: str) -> Iterator[dict[str, Any]]:
    """Yield the messages after a cursor, in their order; a damaged one says so in its place."""
    stream = site.client.messages(topic, after=after)
    while True:
        before = stream.cursor
        try:
            message = next(stream, None)
        except StoreError:
            raise
        except HoldfastError as error:
            if stream.cursor == before:  # it was not a message that could not be read
                raise
            yield {"cursor": stream.cursor, "damaged": str(error)}
            continue
        if message is None:
            return
        yield shown_message(message)


def list_dead(site: Site, ask: Ask) -> dict[str, Any]:
    topic = find_topic(site, ask.path["topic"])
    found = site.client.dead_messages(topic, ask.query["group"])
    rows = page("dead", found, ask.query["limit"], ask.query["after"], topic=topic)
    return {**rows, "dead": [dead_fields(item) for item in rows["dead"]]}


ROUTES = (
    Endpoint("/topics", list_topics, "List topics with their groups, and what waits.", (AFTER, LIMIT)),
    Endpoint("/topics/{topic}", show_topic, "Show a topic with its groups."),
    Endpoint(
        "/topics/{topic}/messages",
        list_messages,
        "List the messages of a topic, oldest first, with their values cut. It consumes none.",
        (AFTER._replace(about="A cursor: only the messages after it.", default="start"), LIMIT),
    ),
    Endpoint(
        "/topics/{topic}/dead",
        list_dead,
        "List the messages that groups have given up, the last first, and why.",
        (Parameter("group", "text", "Only of this group."), AFTER, LIMIT),
    ),
)
