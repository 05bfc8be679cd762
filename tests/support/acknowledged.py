"""What a writer process said it did, and whether the store still agrees.

A writer says one JSON line for each thing it is about to do or has done, in one `write`: a line that is whole was
said, however the writer ended. `findings` is the judge of every crash test: it returns what is wrong, and a test of
its own (the controls) shows that it finds what broken writers do.
"""

import hashlib
import json
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import Checkpoint, SyncClient
from holdfast.errors import CheckpointExpiredError, HoldfastError

ALL = 1_000_000


def open_client(kind: str, path: str | Path, **options: Any) -> SyncClient:
    return SyncClient.sqlite(path, **options) if kind == "sqlite" else SyncClient.files(path, **options)


def say(**what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def digest(execution_state: Any, agent_context: Any) -> str:
    """Tells states apart, their types and the order of their keys too."""
    return hashlib.sha256(repr((execution_state, agent_context)).encode()).hexdigest()[:16]


def digest_of(checkpoint: Checkpoint) -> str:
    return digest(checkpoint.execution_state, checkpoint.agent_context)


@dataclass
class Said:
    """What writers said, added up."""

    saved: dict[str, str] = field(default_factory=dict)  # id → digest
    heads: dict[str, str] = field(default_factory=dict)  # session → where it was left
    aims: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # session → where it may have gone
    expiring: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)  # appended to the list that all writers share
    failures: list[str] = field(default_factory=list)
    finished: int = 0

    def listen(self, output: bytes) -> "Said":
        """Adds a writer's output. A line without its end was never said."""
        for line in output.splitlines(keepends=True):
            if line.endswith(b"\n"):
                self._hear(json.loads(line))
        return self

    def allow(self, later: "Said") -> "Said":
        """Adds what may have happened as well: things that were said when it no longer counted."""
        for session, head in later.heads.items():
            self.aims[session].add(head)
        for session, heads in later.aims.items():
            self.aims[session] |= heads
        self.expiring |= later.expiring
        return self

    def _hear(self, said: dict[str, Any]) -> None:
        match said:
            case {"saved": id_, "digest": of_state}:
                self.saved[id_] = of_state
                if "session" in said:
                    self.heads[said["session"]] = id_
            case {"token": token, "checkpoint": id_}:
                self.tokens.add(token)
                self.saved[id_] = ""
            case {"aim": id_, "session": session}:
                self.aims[session].add(id_)
            case {"head": id_, "session": session}:
                self.heads[session] = id_
            case {"expiring": id_}:
                self.expiring.add(id_)
            case {"expired": id_}:
                self.expired.add(id_)
            case {"failed": text}:
                self.failures.append(text)
            case {"finished": True}:
                self.finished += 1
            case _:
                raise AssertionError(f"a writer said what nobody understands: {said}")


def findings(client: SyncClient, said: Said, *, in_flight: int) -> list[str]:
    """All that is wrong with the store, given what was said. `in_flight` is how many checkpoints may be there that
    nobody acknowledged: one for each writer that was interrupted."""
    found = lost_or_wrong(client, said)
    try:
        found += _torn(client)
        found += _unexpected(client, said, in_flight)
        found += _missed_or_repeated(client)
        found += _misplaced_heads(client, said)
        found += _cannot_go_on(client)
    except HoldfastError as error:
        found.append(f"torn: the store can't be gone through: {error}")
    return found


def lost_or_wrong(client: SyncClient, said: Said) -> list[str]:
    """Every acknowledged checkpoint restores exactly; one whose expiry was acknowledged does not."""
    found = []
    for id_, expected in said.saved.items():
        try:
            restored = client.restore(id_)
        except CheckpointExpiredError as error:
            if id_ not in said.expiring:
                found.append(f"lost: {id_}: {error}")
        except HoldfastError as error:
            found.append(f"lost: {id_}: {error}")
        else:
            if id_ in said.expired:
                found.append(f"revived: {id_} was expired, and is there again")
            if digest_of(restored) != (expected or restored.metadata["digest"] or digest_of(restored)):
                found.append(f"wrong: {id_} is there with another state")
    return found


def _torn(client: SyncClient) -> list[str]:
    return [f"torn: {problem.checkpoint_id}: {problem.message}" for problem in client.verify().problems]


def _unexpected(client: SyncClient, said: Said, in_flight: int) -> list[str]:
    """What nobody acknowledged is whole all the same, there is not more of it than could be, and nothing is there
    twice: each save has a name of its own."""
    found = []
    unacknowledged = 0
    for session in client.sessions():
        entries = client.timeline(session_id=session.session_id, limit=ALL)
        sequences = [entry.sequence for entry in entries]
        if sequences != sorted(set(sequences), reverse=True):
            found.append(f"disorder: {session.session_id} has the sequence numbers {sequences}")
        saves = [entry for entry in entries if entry.handoff_target is None]  # a handoff keeps its source's metadata
        for name, count in Counter(entry.metadata.get("name") for entry in saves).items():
            if name is not None and count > 1:
                found.append(f"doubled: {count} checkpoints of {session.session_id} are the one save {name}")
        for entry in entries:
            if entry.checkpoint_id in said.saved:
                continue
            unacknowledged += 1
            try:
                restored = client.restore(entry.checkpoint_id)
            except HoldfastError as error:
                found.append(f"torn: unacknowledged {entry.checkpoint_id}: {error}")
            else:
                if entry.metadata["digest"] not in ("", digest_of(restored)):
                    found.append(f"wrong: unacknowledged {entry.checkpoint_id} is there with another state")
    if unacknowledged > in_flight:
        found.append(f"too many: {unacknowledged} checkpoints that nobody acknowledged, at most {in_flight} could be")
    return found


def _missed_or_repeated(client: SyncClient) -> list[str]:
    """Events tell of every checkpoint that is there, once, each session's in its order; and of what is saved next."""
    found = []
    stream = client.events(after="start", follow=False)
    told = [(event.checkpoint.session_id, event.checkpoint.sequence) for event in stream]
    for session in {name for name, _ in told} | {session.session_id for session in client.sessions()}:
        there = [entry.sequence for entry in reversed(client.timeline(session_id=session, limit=ALL))]
        events = [sequence for name, sequence in told if name == session]
        if events != there:
            found.append(f"events: session {session} has the checkpoints {there}, events tell of {events}")
    id_ = client.save("checker", session_id="one more")
    if [event.checkpoint.checkpoint_id for event in stream] != [id_]:
        found.append("events: what was saved after the crash is not what comes next")
    return found


def _misplaced_heads(client: SyncClient, said: Said) -> list[str]:
    """A session stands where it was left, or where the interrupted operation was taking it."""
    found = []
    for session, head in said.heads.items():
        latest = client.latest(session_id=session)
        if latest is None:
            found.append(f"lost: session {session} has no head")
        elif not (
            latest.checkpoint_id == head
            or latest.checkpoint_id in said.aims[session]
            or (latest.checkpoint_id not in said.saved and latest.parent_id in {head, *said.aims[session]})
        ):
            found.append(f"head: session {session} stands at {latest.checkpoint_id}, it was left at {head}")
    return found


def _cannot_go_on(client: SyncClient) -> list[str]:
    """A further save to every session works, and to a new one."""
    found = []
    for session in [*(session.session_id for session in client.sessions()), "a new session"]:
        state = {"after": "the crash", "session": session}
        id_ = client.save("checker", execution_state=state, session_id=session)
        if client.restore(id_).execution_state != state:
            found.append(f"wrong: a save to {session} after the crash is not what was saved")
        if client.latest(session_id=session).checkpoint_id != id_:
            found.append(f"head: a save to {session} after the crash did not become its head")
    return found
