"""A store with a canary in every field, and the changes that an attacker with write access can make."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stores import Recorder, Store

from holdfast import SyncClient
from holdfast.backends.port import BlobInfo, Commit, Record, RecordWrite, Row, RowKey, RowWrite, SegmentInfo, Span
from holdfast.sealing.row_names import SPACES

EVERY_SPACE = (*SPACES, "lgitem", "lgvectors", "lgserver", "keys")
CANARY = "canary-7e1f"


def tell(client: SyncClient, directory: Path) -> str:
    """Saves, tags, pins, hands over, publishes, carries out an effect, asks for an approval and takes a snapshot."""
    directory.mkdir(exist_ok=True)
    (directory / f"{CANARY}-file.txt").write_text(f"{CANARY} content")
    last = ""
    for number in range(12):
        last = client.save(
            agent_id=f"{CANARY}-agent",
            session_id=f"{CANARY}-session",
            step_name=f"{CANARY}-step",
            execution_state={
                f"{CANARY}-key": [{"n": n, "text": f"{CANARY}-element {n} " * 20} for n in range(number * 3)],
                "blob": f"{CANARY}-blob " * 600,
            },
            context={"note": f"{CANARY}-context"},
            tasks={"task": f"{CANARY}-task"},
            app_version=f"{CANARY}-app",
            about=f"{CANARY}-metadata",
        )
    client.tag(f"{CANARY}-tag", last)
    client.pin(last, f"{CANARY}-note")
    client.handoff(last, f"{CANARY}-target")
    client.save(agent_id="a", session_id="files", workspace=client.workspace(directory))
    client.publish(f"{CANARY}-topic", {"said": f"{CANARY}-message"}, key=f"{CANARY}-order", agent_id="a")
    with client.run(f"{CANARY}-run", agent_id="a") as run:
        run.step(f"{CANARY}-step", lambda: f"{CANARY}-result")
        run.effect(f"{CANARY}-tool", lambda **_: f"{CANARY}-paid", to=f"{CANARY}-payee", key=f"{CANARY}-effect")
    return last


def everything_given(recorder: Recorder) -> Iterator[bytes]:
    """Every byte that a backend was given in commits, keys and names included."""
    for commit in recorder.commits:
        yield commit.tree
        for record in (*((commit.record,) if commit.record else ()), *commit.more_records):
            yield from (record.id, record.session, record.data, record.feed or b"", record.replaces or b"")
            yield repr(record.labels).encode()
        for segment in commit.segments:
            yield segment.data
        for hash_, data in commit.blobs.items():
            yield from (hash_, data)
        for row in commit.rows:
            yield from (row.key.key, row.key.tree, row.value or b"", row.was or b"")
        for key, _ in commit.require_rows:
            yield from (key.key, key.tree)
        for delete in commit.delete_segments:
            yield from (data for _, _, data in delete.pieces)


@dataclass
class Raw:
    """The store as an attacker sees and changes it: by the port, below the keys."""

    backend: Any

    @classmethod
    def of(cls, store: Store) -> Raw:
        return cls(store.backend())

    def commit(self, commit: Commit) -> None:
        [outcome] = self.backend.commit_all([commit])
        if outcome is not None:
            raise outcome

    def records(self) -> list[Record]:
        return self.backend.page_records(None, 1000)

    def record(self, id_: bytes) -> Record:
        [found] = self.backend.records([id_])
        assert found is not None
        return found

    def put_record(self, found: Record, data: bytes) -> None:
        """Puts other bytes in the place of a record."""
        write = RecordWrite(found.id, found.session, found.sequence, data, replaces=found.data)
        self.commit(Commit(found.id, write))

    def rows(self, space: str) -> list[tuple[RowKey, Row]]:
        return self.backend.scan(space)

    def put_row(self, key: RowKey, value: bytes | None) -> None:
        self.commit(Commit(key.tree, rows=[RowWrite(key, value)]))

    def segments(self) -> list[SegmentInfo]:
        return self.backend.page_segments(None, 1000)

    def segment(self, info: SegmentInfo) -> bytes:
        [[found]] = self.backend.segments([Span(info.log, info.first, info.first + info.length)])
        return found.data

    def put_segment(self, info: SegmentInfo, data: bytes) -> None:
        from holdfast.backends.port import SegmentDelete

        pieces = ((info.first, info.length, data),)
        self.commit(Commit(b"", delete_segments=[SegmentDelete(info.log, info.first, info.length, pieces)]))

    def blobs(self) -> list[BlobInfo]:
        return self.backend.page_blobs(None, 1000)

    def blob(self, info: BlobInfo) -> bytes:
        [found] = self.backend.blobs([info.hash])
        assert found is not None
        return found

    def put_blob(self, address: bytes, data: bytes) -> None:
        self.commit(Commit(b"", delete_blobs={address: 2**62}))
        self.commit(Commit(b"", blobs={address: data}))

    def dump(self) -> list[Any]:
        """All that is stored, to compare."""
        rows = [entry for space in EVERY_SPACE for entry in self.rows(space)]
        segments = [(info, self.segment(info)) for info in self.segments()]
        return [self.records(), rows, segments, [(info, self.blob(info)) for info in self.blobs()]]


def with_crc(data: bytes) -> bytes:
    """An envelope whose outer CRC is right again."""
    return data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "big")
