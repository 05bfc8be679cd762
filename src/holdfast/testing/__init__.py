"""For those who write a backend, or test with one: the contract as tests, and a store's content as a value."""

from holdfast.testing.contract import BackendContract
from holdfast.testing.snapshot import Snapshot, dump

__all__ = ["BackendContract", "Snapshot", "dump"]
