"""A store with some of everything, and its expected content.

`python tests/support/story.py 0.1` writes the golden files of a version. Run it once, when the version is
released: a golden file is never written again."""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from holdfast import CheckpointExpiredError, SyncClient

HERE = Path(__file__).parents[1] / "compat"
KINDS: dict[str, Callable[[Path], SyncClient]] = {
    "sqlite": lambda where: SyncClient.sqlite(where / "store.db"),
    "files": lambda where: SyncClient.files(where / "store"),
}

VALUES: dict[str, Any] = {
    "none": None,
    "bools": [True, False],
    "ints": [0, -1, 2**63, -(2**200)],
    "floats": [0.0, -0.0, 1.5, float("inf"), float("nan")],
    "texts": ["", "ünï", "\ud800 alone", "\0"],
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b"changeable"),
    "tuple": (1, (2, ()), [3]),
    "set": {1, 2, 3},
    "frozenset": frozenset({4}),
    "keys": {1: "int", None: "none", (1, 2): "tuple", 2.5: "float", False: "bool"},
    "datetime": datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC),
    "naive": datetime(2026, 3, 1, 12, 30),
    "date": datetime(2026, 3, 1, tzinfo=UTC).date(),
    "timedelta": timedelta(days=-3, microseconds=7),
    "decimal": Decimal("-12.340"),
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "complex": 1 - 2j,
}


def messages(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"role": ("user", "assistant")[n % 2], "n": n, "content": f"message {n}: " + f"{n * n} and so on, " * 40}
        for n in range(start, start + count)
    ]


def tell(client: SyncClient) -> None:
    """Fills the store: each thing that is stored in a way of its own is there at least once."""
    values = client.save(
        "keeper", execution_state=VALUES, context={"note": "exact"}, session_id="values", app_version="7"
    )
    client.pin(values, "never to be lost")

    long = {"values": {"messages": messages(150)}, "big": "B" * 9000, "raw": bytes(range(256)) * 40}
    first = client.save("writer", "langgraph", long, "long", tasks=[{"id": "t", "status": "pending"}], team="blue")
    for n in range(150, 170):  # appended one by one, some of them sealed
        long["values"]["messages"] += messages(1, n)
        middle = client.save("writer", "langgraph", long, "long", step_name=f"step {n}")
    client.save("writer", execution_state={"plan": 1}, session_id="long", append={"values.messages": messages(2, 170)})
    long["values"]["messages"][5] = {"edited": True}
    del long["values"]["messages"][60]
    edited = client.save("writer", "langgraph", long, "long", ttl_seconds=10**9)
    client.tag("the edited one", edited)

    fork = client.fork(middle, "another way")
    client.save("writer", execution_state={"tried": "something else"}, session_id=fork.session_id, state_version=3)
    client.rollback("long", middle)

    for n in range(12):
        client.save("counter", execution_state={"n": n}, session_id="short")
    client.retain(keep_last=4, session_id="short", dry_run=False)
    undone = client.save("counter", execution_state={"n": "expired, and can be had back"}, session_id="short")
    client.save("counter", execution_state={"n": "last"}, session_id="short")
    client.expire(undone)

    taken = client.handoff(first, "reviewer", "draft/1")
    with client.claim(taken, agent_id="reviewer") as claim:
        client.save("reviewer", execution_state={"verdict": "good"}, lease=claim.lease)
    client.handoff(client.save("a", execution_state={"for": "b"}, session_id="waiting"), "b")
    client.lease("held once", seconds=1, holder="a process that is long gone")
    client.save("odd", execution_state={}, session_id="../\0 ödd \ud800 session")


def found(client: SyncClient) -> dict[str, Any]:
    """What a reader finds, as JSON: Python's own words for every value, type and order included."""
    checkpoints: dict[str, Any] = {}
    timelines: dict[str, Any] = {}
    for session in client.sessions():
        name = repr(session.session_id)
        timelines[name] = [entry.checkpoint_id for entry in client.timeline(session_id=session.session_id, limit=None)]
        for id_ in timelines[name]:
            restored = client.restore(id_)
            checkpoints[id_] = {key: _told(value) for key, value in sorted(restored.as_dict().items())}
    return {
        "checkpoints": checkpoints,
        "timelines": timelines,
        "heads": {repr(session.session_id): session.head.checkpoint_id for session in client.sessions()},
        "expired": sorted({id_ for session in client.session_ids() for id_ in client.tree(session).expired}),
        "pins": sorted([pin.checkpoint_id, repr(pin.note)] for pin in client.pins()),
        "tags": sorted([tag.name, tag.checkpoint_id] for tag in client.tags()),
        "inbox of b": [handoff.handoff_id for handoff in client.inbox("b")],
        "inbox of reviewer": [handoff.handoff_id for handoff in client.inbox("reviewer", include_claimed=True)],
        "events": [event.checkpoint.checkpoint_id for event in client.events(after="start", follow=False)],
    }


def _told(value: Any) -> str:
    told = repr(value)
    return told if len(told) < 200 else f"sha256 {hashlib.sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()}"


def unpack(archive: Path, where: Path) -> None:
    with tarfile.open(archive) as stored:
        stored.extractall(where, filter="data")


def write(version: str) -> None:
    folder = HERE / version
    folder.mkdir()
    for kind, opened in KINDS.items():
        with tempfile.TemporaryDirectory() as where:
            with opened(Path(where)) as client:
                tell(client)
                (folder / f"{kind}.json").write_text(json.dumps(found(client), indent=1) + "\n")
                if kind == "sqlite":
                    client.export(folder / "export.holdfast")
            with tarfile.open(folder / f"{kind}.tar.gz", "x:gz") as archive:
                for path in sorted(Path(where).iterdir()):
                    archive.add(path, path.name)


def is_gone(client: SyncClient, checkpoint_id: str) -> bool:
    try:
        client.restore(checkpoint_id)
    except CheckpointExpiredError:
        return True
    return False


if __name__ == "__main__":
    write(sys.argv[1])
