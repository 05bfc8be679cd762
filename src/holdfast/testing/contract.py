"""The contract of a backend, as tests. Whoever writes a backend runs it like this:

    # tests/test_my_backend.py
    from pathlib import Path

    from holdfast.testing import BackendContract
    from my_package import MyBackend


    class TestMyBackend(BackendContract):
        def open_backend(self, where: Path) -> MyBackend:
            return MyBackend(where / "store")

and `pytest tests/test_my_backend.py` says whether it holds. `open_backend` is called with a new directory for each
test, and again with the same one where a test needs a second handle; what the backend's capabilities say it can't do
is skipped. Any of pytest's own means may be added to the class: fixtures, marks, parameters, tests of your own.

A test that fails says which rule of `holdfast.backends.port` was broken, then what was expected.
"""

from __future__ import annotations

from holdfast.testing.contract_blobs import BlobContract
from holdfast.testing.contract_changes import ChangeContract
from holdfast.testing.contract_commits import CommitContract
from holdfast.testing.contract_records import RecordContract
from holdfast.testing.contract_rows import RowContract
from holdfast.testing.contract_runs import RunContract
from holdfast.testing.contract_sharing import SharingContract


class BackendContract(
    RowContract, RunContract, RecordContract, BlobContract, CommitContract, ChangeContract, SharingContract
):
    """Subclass it, name the class `Test…`, define `open_backend`."""
