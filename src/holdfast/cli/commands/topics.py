"""`holdfast topics`, `publish`, `messages`, `dead` and `redeliver`: topics, their groups and messages."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.commands.save import AGENT, read_json
from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import Column, print_listing
from holdfast.cli.store_location import open_or_make_store, open_store
from holdfast.cli.terminal.sanitize import escape, format_identifier, format_name, format_number, format_utc
from holdfast.errors import CheckpointNotFoundError
from holdfast.json_form.topic import dead_fields, message_fields, topic_fields
from holdfast.json_form.values import to_json
from holdfast.model.ids import short

if TYPE_CHECKING:
    from holdfast.model.message import DeadMessage, GroupStatus, TopicMessage

WIDTH = 100


@click.command(short_help="List topics, and how far their groups are.")
@click.argument("topic", required=False)
@common_options
def topics(topic: str | None, store: str | None, as_json: bool) -> None:
    """List all topics, or TOPIC, with the messages that are kept and the groups that consume them.

    A group that was not seen for 30 days is not live: no message is kept for it.
    """
    with open_store(store) as client:
        found = client.topics(topic)
    if topic is not None and not found:
        raise CheckpointNotFoundError(f"there is no topic {topic!r:.60}. `holdfast topics` lists those that are there")
    if as_json:
        print_json({"topics": [topic_fields(topic_status) for topic_status in found]})
        return
    for topic_status in found:
        dates = (
            f", {format_utc(topic_status.oldest)} to {format_utc(topic_status.newest)} UTC"
            if topic_status.oldest and topic_status.newest
            else ""
        )
        click.echo(f"{escape(topic_status.topic, WIDTH)}  {format_number(topic_status.messages)} messages{dates}")
        for group in topic_status.groups:
            click.echo(f"  {group_line(group)}")


def group_line(group: GroupStatus) -> str:
    """Return a group, and how far it is, as one line."""
    words = [escape(group.group, WIDTH), f"{format_number(group.waiting)} waiting"]
    if group.oldest is not None:
        words.append(f"the oldest of {format_utc(group.oldest)} UTC")
    if group.in_flight:
        words.append(f"{format_number(group.in_flight)} in flight")
    if group.dead:
        words.append(f"{format_number(group.dead)} dead")
    if group.contract is not None:
        words.append(format_identifier(group.contract))
    words.append(f"seen {format_utc(group.last_seen)} UTC" + ("" if group.is_live else ", not live"))
    return "  ".join(words)


@click.command(short_help="Publish a message, given as JSON, to a topic.")
@click.argument("topic")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("--key", metavar="KEY", help="Ordering key: messages of one key are delivered in order.")
@click.option("--id", "message_id", metavar="UUID", help="Id of the message: a repetition is a no-op.")
@click.option("--agent", metavar="A", default=AGENT, show_default=True, help="Agent that publishes it.")
@common_options
def publish(
    topic: str, file: str, key: str | None, message_id: str | None, agent: str, store: str | None, as_json: bool
) -> None:
    """Publish FILE, or stdin for -, to TOPIC, and print the id of the message.

    FILE holds one JSON value. Without a store, creates one in .holdfast/ here.
    """
    value = read_json(file)
    with open_or_make_store(store) as client:
        id_ = client.publish(topic, value, key=key, message_id=message_id, agent_id=agent)
    if as_json:
        print_json({"message_id": id_, "topic": topic, "key": key})
    else:
        click.echo(id_)


@click.command(short_help="Print the messages of a topic.")
@click.argument("topic")
@click.option("--after", metavar="CURSOR", default="start", help="Start after this cursor.  [default: start]")
@click.option("--follow/--no-follow", default=False, help="Wait for more, or stop at the end.  [default: stop]")
@common_options
def messages(topic: str, after: str, follow: bool, store: str | None, as_json: bool) -> None:
    """Print the messages of TOPIC that are kept, oldest first, one per line. It consumes none.

    Each line starts with its cursor: `--after CURSOR` prints the messages after it. With `--json`, each line is a
    JSON object with the whole value. Stop with Ctrl-C.
    """
    with open_store(store) as client:
        for message in client.messages(topic, after=after, follow=follow):
            sys.stdout.write(_json_line(message) if as_json else _line(message))
            sys.stdout.flush()  # a live reader must not wait for a full buffer


def _json_line(message: TopicMessage) -> str:
    return json.dumps(message_fields(message), allow_nan=False) + "\n"


def _line(message: TopicMessage) -> str:
    words = [message.cursor, format_utc(message.published_at), short(message.message_id)]
    words.append(format_identifier(message.agent_id))
    if message.key is not None:
        words.append(f"key {format_identifier(message.key)}")
    words.append(escape(json.dumps(to_json(message.value), ensure_ascii=False), WIDTH))
    return "  ".join(words) + "\n"


COLUMNS: tuple[Column[DeadMessage], ...] = (
    Column("message", lambda message: short(message.message_id)),
    Column("group", lambda message: format_identifier(message.group), "whole"),
    Column("since (UTC)", lambda message: format_utc(message.since)),
    Column("attempts", lambda message: format_number(message.attempts)),
    Column("last reason", lambda message: format_name(message.reasons[-1] if message.reasons else None), "shrinks"),
)


@click.command(short_help="List messages that groups have given up.")
@click.argument("topic")
@click.option("--group", metavar="G", help="List those of one group.")
@click.option("--discard", metavar="MESSAGE", help="Remove this one from the list of --group.")
@common_options
def dead(topic: str, group: str | None, discard: str | None, store: str | None, as_json: bool) -> None:
    """List the messages of TOPIC that a group has given up, the last first, and why.

    A message is dead after five failed attempts, at once if a consumer rejects it, or if it can't be read. `holdfast
    redeliver TOPIC GROUP MESSAGE` delivers it again.
    """
    if discard is not None and group is None:
        raise click.UsageError("--discard needs --group: the message may be dead in several groups")
    with open_store(store) as client:
        if discard is not None and group is not None and not client.discard(topic, group, client.resolve(discard)):
            raise CheckpointNotFoundError(f"message {discard:.60} is not dead in group {group!r:.60}")
        found = client.dead_messages(topic, group)
    print_listing("dead", found, dead_fields, COLUMNS, nothing="no dead messages", as_json=as_json)


@click.command(short_help="Deliver a message to a group again.")
@click.argument("topic")
@click.argument("group")
@click.argument("message")
@common_options
def redeliver(topic: str, group: str, message: str, store: str | None, as_json: bool) -> None:
    """Deliver MESSAGE of TOPIC to GROUP again, whether it is dead or was consumed.

    Its effects happen again then.
    """
    with open_store(store) as client:
        id_ = client.resolve(message)
        client.redeliver(topic, group, id_)
    if as_json:
        print_json({"message_id": id_, "topic": topic, "group": group})
    else:
        click.echo(f"message {short(id_)} will be delivered to {escape(group, WIDTH)} again", err=True)
