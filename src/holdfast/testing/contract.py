"""The contract of a backend, as tests.

Authors of a backend run it like this:

    # tests/test_my_backend.py
    from pathlib import Path

    from holdfast.testing import BackendContract
    from my_package import MyBackend


    class TestMyBackend(BackendContract):
        def open_backend(self, where: Path) -> MyBackend:
            return MyBackend(where / "store")

Then `pytest tests/test_my_backend.py` says whether the backend fulfils it. `open_backend` is called
with a new directory for each test, and again with the same one where a test needs a second handle.
Tests of abilities that the backend's capabilities exclude are skipped. The class may have anything
else of pytest: fixtures, marks, parameters, tests of your own.

A failing test says which rule of `holdfast.backends.port` was broken, then what was expected.
"""

from __future__ import annotations

from holdfast.testing.contract_blobs import BlobContract
from holdfast.testing.contract_changes import ChangeContract
from holdfast.testing.contract_commits import CommitContract
from holdfast.testing.contract_concurrency import SharingContract
from holdfast.testing.contract_feeds import FeedContract
from holdfast.testing.contract_records import RecordContract
from holdfast.testing.contract_rows import RowContract
from holdfast.testing.contract_segments import SegmentContract


class BackendContract(
    RowContract,
    SegmentContract,
    RecordContract,
    BlobContract,
    CommitContract,
    ChangeContract,
    FeedContract,
    SharingContract,
):
    """The contract suite: subclass it, name the class `Test…`, define `open_backend`."""
