"""Tests for authors of backends: the contract as a test class, and the content of a store as a value.

May import `backends`, and all below it; pytest.
Start with `contract.py`.
"""

from holdfast.testing.contract import BackendContract
from holdfast.testing.store_dump import StoreDump, dump

__all__ = ["BackendContract", "StoreDump", "dump"]
