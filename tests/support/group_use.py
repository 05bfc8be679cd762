"""Publish and consume, as the tests of groups do."""

from __future__ import annotations

from holdfast.backends.bridge.step import run_inline
from holdfast.operations import group as groups


def publish(client, count, topic="t", **options):
    return [client.publish(topic, n, **options) for n in range(count)]


def consume(client, session, group="g", topic="t", timeout=0, handle=None, **options):
    """Consume until nothing is left; return the values that this life has handled."""
    got = []
    with client.run(session, agent_id="a") as run:
        run.state.setdefault("seen", [])
        for message in run.receive(topic, group, timeout=timeout, **options):
            run.state["seen"].append(message.value)
            got.append(message.value)
            if handle is not None:
                handle(run, message)
    return got


def seen(client, *sessions):
    return [value for one in sessions for value in client.latest(one).execution_state["seen"]]


def group_of(client, topic="t", name="g"):
    return next(one for one in client.topics(topic)[0].groups if one.group == name)


def load_group(client):
    return run_inline(groups._load(client._ctx, groups.TopicGroup("t", "g")))
