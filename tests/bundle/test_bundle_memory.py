"""Exporting and importing hold pieces in memory, never what is being moved."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import python

STORE_BYTES = 80 * 1024 * 1024
ALLOWED_GROWTH = 32 * 1024 * 1024

FILL = """
    import os, sys
    from holdfast import SyncClient
    with SyncClient.sqlite(sys.argv[1], durability="fast", cache_bytes=0) as client:
        client.save("a", execution_state={"messages": [os.urandom(10_000) for _ in range(10)]}, session_id="s")
        written = 0
        while written < int(sys.argv[2]):
            client.save("a", append={("messages",): [os.urandom(10_000) for _ in range(200)]}, session_id="s")
            client.save("a", execution_state={"text": os.urandom(400_000)}, session_id="blobs")
            written += 2_400_000
"""

MOVE = """
    import resource, sys
    from holdfast import SyncClient

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    with SyncClient.sqlite(sys.argv[1], durability="fast") as client:
        client.sessions()
        if sys.argv[2] == "export":
            before = peak()
            client.export(sys.argv[3])
        else:
            before = peak()
            client.import_(sys.argv[3])
        print(peak() - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_store(tmp_path: Path) -> None:
    source, target, file = (str(tmp_path / name) for name in ("source.db", "target.db", "x.holdfast"))
    python(FILL, source, str(STORE_BYTES), timeout=800)
    for step, store in (("export", source), ("import", target)):
        growth = int(python(MOVE, store, step, file, timeout=800).stdout)
        assert growth < ALLOWED_GROWTH, f"{step} took {growth / 1e6:.0f} MB more"
    assert Path(file).stat().st_size > STORE_BYTES
    check = (
        "import sys; from holdfast import SyncClient; "
        'print(SyncClient.sqlite(sys.argv[1]).latest(session_id="s").sequence)'
    )
    assert python(check, source).stdout == python(check, target).stdout
