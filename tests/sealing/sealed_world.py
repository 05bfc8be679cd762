"""A sealed store with rows of every kind, what it answers, and each item that an attacker can change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealed_story import EVERY_SPACE, Raw
from stores import Store

from holdfast import HoldfastError, SyncClient
from holdfast.backends.port import RowKey

LIST = [{"n": number, "text": "a long text " * 10} for number in range(60)]
SESSIONS = ("one", "two", "side", "files", "paid-1", "paid-2", "boss", "started")
FOREIGN = "an error that is none of ours"
Answers = dict[str, Any]


class Refused(str):
    """The name of the error of ours that a question was answered with."""

    __slots__ = ()


@dataclass(frozen=True)
class World:
    """The checkpoints and approvals of the store."""

    checkpoints: dict[str, str]
    approvals: tuple[str, ...]

    def ask(self, client: SyncClient) -> Answers:
        """Ask everything that reads; an error of ours is an answer."""
        answers: Answers = {}
        for name, question in self._questions():
            try:
                answers[name] = question(client)
            except HoldfastError as error:
                answers[name] = Refused(type(error).__name__)
            except Exception as error:
                answers[name] = f"{FOREIGN}: {error!r}"
        return answers

    def _questions(self) -> Iterator[tuple[str, Callable[[SyncClient], Any]]]:
        for checkpoint in self.checkpoints.values():
            yield f"restore {checkpoint}", lambda client, of=checkpoint: repr(client.restore(of).as_dict())
        for session in SESSIONS:
            yield f"latest {session}", lambda client, of=session: _shown(client.latest(session_id=of))
            yield f"timeline {session}", lambda client, of=session: [*map(_shown, client.timeline(session_id=of))]
            yield f"status {session}", lambda client, of=session: repr(client.run_status(of))
        for approval in self.approvals:
            yield f"approval {approval}", lambda client, of=approval: repr(client.approval(of))
        for name in ("sessions", "session_ids", "tags", "pins", "effects", "operations", "topics", "runs", "contracts"):
            yield name, lambda client, of=name: sorted(map(repr, getattr(client, of)()))
        yield "approvals", lambda client: sorted(map(repr, client.approvals(pending=False)))
        for agent in ("carol", "worker"):
            yield f"inbox {agent}", lambda client, of=agent: sorted(map(repr, client.inbox(of, include_claimed=True)))
        yield "messages", lambda client: [message.value for message in client.messages("topic")]
        yield "dead", lambda client: repr(client.dead_messages("other"))
        yield "file", lambda client: client.read_file("files@", "a.txt") + client.read_file("files@", "b.bin")
        yield "tagged", lambda client: repr(client.tagged("first"))
        yield "tree", lambda client: repr(client.tree("one"))
        yield "team", lambda client: repr(client.team("boss"))
        yield "names", lambda client: [client.resolve(name) for name in ("one@", "first", "two@-")]
        yield "difference", lambda client: repr(client.diff("one@-", "one@"))
        yield "verify", lambda client: client.verify().ok


def _shown(checkpoint: Any) -> str:
    return repr(checkpoint and checkpoint.as_dict())


def build(store: Store, directory: Path) -> World:
    """Fill a store: two sessions, a fork, files, tags, pins, a handoff, messages, effects, approvals and runs."""
    client = store.client()
    directory.mkdir()
    (directory / "a.txt").write_text("content")
    (directory / "b.bin").write_bytes(random.Random(1).randbytes(9000))
    saved: dict[str, str] = {}
    for session in ("one", "two"):
        for number in range(3):
            saved[f"{session} {number}"] = client.save(
                "ann",
                session_id=session,
                execution_state={"list": LIST[: 40 + number], "blob": f"{session} " * 2000},
                context={"n": number},
                tasks=[{"id": 1, "done": True}],
            )
    saved["fork"] = client.fork(saved["one 1"], "side").checkpoint_id
    client.save("bob", session_id="side", execution_state={"list": [*LIST[:41], "other"]})
    expired = client.save("ann", session_id="two", execution_state={"gone": 1})
    saved["after"] = client.save("ann", session_id="two", execution_state={"after": 1})
    client.expire(expired)
    client.tag("first", saved["one 0"])
    client.tag("second", saved["two 0"])
    client.pin(saved["one 1"], "why")
    client.pin(saved["two 1"], "why not")
    client.claim(client.handoff(saved["one 2"], "carol"), "carol", seconds=10**5)
    client.handoff(saved["two 2"], "carol")
    client.save("a", session_id="files", workspace=client.workspace(directory))
    for number in range(3):
        client.publish("topic", {"n": number}, key="key", agent_id="a")
    client.publish("other", {"n": 0}, agent_id="a")
    with client.subscribe("topic", "group", timeout=0) as messages:
        next(iter(messages)).ack()
    with client.subscribe("other", "group", timeout=0) as messages:
        next(iter(messages)).reject("no")
    for name in ("paid-1", "paid-2"):
        with client.run(name, agent_id="a") as run:
            run.step("step", lambda of=name: of)
            run.effect("pay", lambda of=name, **_: f"paid {of}", to="bob", key=f"invoice {name}")
    asked = [
        client.request_approval(session, "pay", {"to": to}, identity=("to",))
        for session, to in (("one", "bob"), ("one", "eve"), ("one", "zoe"))
    ]
    client.decide(asked[1].approval_id, "approve", by="me")
    client.decide(asked[2].approval_id, "reject", by="me")
    with client.run("boss", agent_id="a") as run:
        run.delegate("worker", ["first question", "second question"])
    client.start("a function", 1, session_id="started")
    client.start("a function", 2, session_id="started later")
    client.rollback("two", saved["two 1"])
    for _ in range(2):
        client.gc()
    return World(saved, tuple(approval.approval_id for approval in asked))


@dataclass(frozen=True)
class Item:
    """A stored item of a kind, in its place."""

    kind: str
    place: Any
    data: bytes

    def put(self, raw: Raw, data: bytes | None) -> None:
        """Put other bytes in its place; None deletes a row."""
        if isinstance(self.place, RowKey):
            raw.put_row(self.place, data)
            return
        assert data is not None
        if self.kind == "record":
            raw.put_record(raw.record(self.place.id), data)
        elif self.kind == "segment":
            raw.put_segment(self.place, data)
        else:
            raw.put_blob(self.place.hash, data)


def items(raw: Raw) -> list[Item]:
    """Return all that is stored."""
    return [
        *(Item("record", found, found.data) for found in raw.records()),
        *(Item("segment", info, raw.segment(info)) for info in raw.segments()),
        *(Item("blob", info, raw.blob(info)) for info in raw.blobs()),
        *(Item(space, key, row.value) for space in EVERY_SPACE for key, row in raw.rows(space)),
    ]
