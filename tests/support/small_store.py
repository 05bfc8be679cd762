"""A small store with one of everything, its expected content, and a check of a store against it."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast import Checkpoint, SyncClient
from holdfast.errors import HoldfastError

SESSIONS = ("main", "side", "täsks")
LIMIT = 50
EXPIRED = ("expired", "buried")  # must not be restored: each is an error of ours
DENSE_PAGE = 512  # the smallest that SQLite has: little of the file is empty


def open_client(kind: str, path: Path) -> SyncClient:
    return SyncClient.sqlite(path) if kind == "sqlite" else SyncClient.files(path)


def tell(client: SyncClient) -> dict[str, str]:
    """A nested long list, a sealed run, an unsealed one, a blob, a skeleton in a log, a fork whose line leaves the log,
    a handoff, a tombstone, a grave, metadata, tasks, context, a time to live. Names of checkpoints, and their ids."""
    messages = [{"role": "user", "content": f"{number} " + "a" * 6000} for number in range(12)]  # sealed at once
    ids = {}
    ids["plan"] = client.save("ann", execution_state={"plan": (1, 2.5, None)}, session_id="main", colour="blue")
    ids["buried"] = client.save("ann", execution_state={"secret": 0}, session_id="main")
    client.expire(ids["buried"])
    assert client.gc().tombstones_packed == 1
    ids["long"] = client.save(
        "ann",
        "langgraph",
        {"values": {"messages": messages}, "notes": "n" * 300},
        "main",
        context={"document": "d" * 5000, "bytes": bytes(5000)},
        step_name="think",
        ttl_seconds=10**9,
        cost=0.25,
    )
    messages = [*messages, {"role": "assistant", "content": "short"}]
    ids["longer"] = client.save("ann", "langgraph", {"values": {"messages": messages}, "notes": "m" * 300}, "main")
    ids["fork"] = client.fork(ids["long"], "side").checkpoint_id
    branch = [*messages[:12], {"role": "tool", "content": "another way"}]
    ids["branch"] = client.save("bob", "crewai", {"values": {"messages": branch}}, "side", app_version="1.2")
    ids["handoff"] = client.handoff(ids["longer"], "carol", schema="review")
    ids["expired"] = client.save("ann", execution_state={"secret": 1}, session_id="main")
    ids["after"] = client.save("ann", execution_state={"after": {1: "one", b"two": 2}}, session_id="main")
    ids["tasks"] = client.save("dave", execution_state=[1, 2, 3], session_id="täsks", tasks=[{"id": 1, "done": True}])
    client.expire(ids["expired"])
    return ids


def shown(checkpoint: Checkpoint | None) -> str:
    """Every field, its type and, for the state, the order of its keys."""
    return repr(checkpoint and checkpoint.as_dict())


@dataclass(frozen=True)
class Question:
    """What a store is asked, and what it answers while it is undamaged."""

    verb: str
    about: str  # a checkpoint's id, or a session
    known: str | list[str] | None = None  # None: an error of ours

    def ask(self, client: SyncClient) -> str | list[str]:
        if self.verb == "restore":
            return shown(client.restore(self.about))
        if self.verb == "timeline":
            return [shown(entry) for entry in client.timeline(session_id=self.about)]
        return shown(client.latest(session_id=self.about))


@dataclass(frozen=True)
class Knowledge:
    """What the undamaged store answers."""

    ids: dict[str, str]  # by name
    questions: tuple[Question, ...]

    @classmethod
    def of(cls, client: SyncClient, ids: dict[str, str]) -> "Knowledge":
        questions = [
            *(Question("restore", id_) for name, id_ in ids.items() if name not in EXPIRED),
            *(Question(verb, session) for verb in ("timeline", "latest") for session in SESSIONS),
        ]
        refused = [Question("restore", ids[name]) for name in EXPIRED]
        return cls(ids, (*(replace(question, known=question.ask(client)) for question in questions), *refused))

    def restored(self, name: str) -> str | list[str] | None:
        return next(q.known for q in self.questions if (q.verb, q.about) == ("restore", self.ids[name]))


@dataclass(frozen=True)
class SmallStore:
    kind: str
    path: Path
    knowledge: Knowledge

    def files(self) -> list[Path]:
        """The files that hold anything, in a fixed order; of two names for one file, the first."""
        paths = [self.path] if self.kind == "sqlite" else sorted(p for p in self.path.rglob("*") if p.is_file())
        seen: set[int] = set()
        return [p for p in paths if p.stat().st_size and not (p.stat().st_ino in seen or seen.add(p.stat().st_ino))]

    def client(self) -> SyncClient:
        return open_client(self.kind, self.path)

    def contradictions(self) -> tuple[list[str], int]:
        """Where it answers otherwise without an error of ours, and how many errors of ours it raised."""
        found, refused = self.answers(self.knowledge.questions)
        return found, len(refused)

    def answers(self, questions: Sequence[Question]) -> tuple[list[str], list[Question]]:
        """The same for some questions; and to which of them the answer was an error of ours."""
        try:
            client = self.client()
        except HoldfastError:
            return [], list(questions)
        except Exception as error:
            return [f"opening: {error!r}"], []
        found, refused = [], []
        with client:
            for question in questions:
                try:
                    answer = question.ask(client)
                except HoldfastError:
                    refused.append(question)
                except Exception as error:
                    found.append(f"{question.verb} {question.about}: {error!r}")
                else:
                    if answer != question.known:
                        found.append(f"{question.verb} {question.about}: {answer!r:.300}")
        return found, refused


def build(kind: str, folder: Path, *, dense: bool = True) -> SmallStore:
    path = folder / "store"
    with open_client(kind, path) as client:
        ids = tell(client)
    if kind == "sqlite":
        _put_all_in_one_file(path, DENSE_PAGE if dense else None)
    with open_client(kind, path) as client:
        knowledge = Knowledge.of(client, ids)
        assert client.verify().ok
    store = SmallStore(kind, path, knowledge)
    agrees = store.contradictions() == ([], len(EXPIRED))
    assert agrees, "an undamaged store must agree with itself; only what expired is an error"
    return store


def _put_all_in_one_file(path: Path, page_size: int | None) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=DELETE")
    if page_size:
        connection.execute(f"PRAGMA page_size={page_size}")
        connection.execute("VACUUM")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    assert not path.with_name(f"{path.name}-wal").exists()


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder that costs no disk: thousands of stores are opened in it."""
    shm = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-", dir=shm if os.access(shm, os.W_OK) else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
