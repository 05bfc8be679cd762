"""Reading of topics for tests."""

from __future__ import annotations


def values(client, topic="drafts", **options):
    return [one.value for one in client.messages(topic, **options)]
