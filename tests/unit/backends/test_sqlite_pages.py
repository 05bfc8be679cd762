"""The blobs of a large commit are written in an order that fills pages."""

import hashlib
import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.port import Commit
from holdfast.backends.sqlite import SqliteBackend
from holdfast.backends.sqlite_pages import filling


@given(st.dictionaries(st.binary(min_size=4, max_size=4), st.binary(max_size=300).map(lambda data: data * 30)))
def test_every_blob_is_there_once(blobs: dict[bytes, bytes]) -> None:
    ordered = filling(blobs)
    assert dict(ordered) == blobs
    assert len(ordered) == len(blobs)


def test_small_files_take_little_more_than_their_bytes(tmp_path: Path) -> None:
    numbers = random.Random(1)
    contents = [numbers.randbytes(min(int(numbers.lognormvariate(7.3, 1.0)) + 20, 50_000)) for _ in range(3000)]
    blobs = {hashlib.sha256(content).digest(): content for content in contents}
    backend = SqliteBackend(tmp_path / "store.db", durability="fast")
    assert backend.commit_all([Commit(tree=b"", blobs=blobs)]) == [None]
    backend.close()
    assert (tmp_path / "store.db").stat().st_size < 1.12 * sum(map(len, contents))
