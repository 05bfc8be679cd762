"""Copies of an adapter's state, so that no object of it is shared with the framework or the user.

The session keeps the state of its last turn in memory, and uses it for the next one. What it keeps
must stay equal to what is stored, whatever the program does with messages and results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError

_IMMUTABLE = frozenset((str, int, float, bool, bytes, type(None)))


class StateCopy(Mapping[str, Any]):
    """A copy of a restored state, which may be changed and handed out.

    A value is copied when it is read.
    """

    def __init__(self, restored: Mapping[str, Any], codec: Codec) -> None:
        self._restored = dict(restored)
        self._codec = codec
        self._copied: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._copied:
            self._copied[name] = copy_value(self._restored[name], self._codec)
        return self._copied[name]

    def __contains__(self, name: object) -> bool:
        return name in self._restored

    def __iter__(self) -> Iterator[str]:
        return iter(self._restored)

    def __len__(self) -> int:
        return len(self._restored)

    def update(self, values: Mapping[str, Any]) -> None:
        """Take further values, which are saved with the state."""
        for name, value in values.items():
            self._restored[name] = self._copied[name] = value


def copy_value(value: Any, codec: Codec) -> Any:
    """Return a deep copy of a restored value. Most of it is plain data, which Python copies fast."""
    kind = type(value)
    if kind is dict:  # most of what it has is copied without a call
        return {name: item if type(item) in _IMMUTABLE else copy_value(item, codec) for name, item in value.items()}
    if kind is list:
        return [item if type(item) in _IMMUTABLE else copy_value(item, codec) for item in value]
    return value if kind in _IMMUTABLE else codec.decode(codec.encode(value))


def list_in(state: Mapping[str, Any], name: str) -> Sequence[Any]:
    """Return a list of a state, empty if there is none; raise `CorruptError` if it is something else."""
    found = state.get(name, [])
    if type(found) is not list:
        raise CorruptError(
            f"execution_state.{name} is a {type(found).__name__}, not a list: something else has changed it. Nothing "
            "was called. Roll the session back"
        )
    return found


def as_restored(value: Any, codec: Codec, path: str) -> Any:
    """Return a value as a restore will: encoded and decoded.

    Raise `UnsupportedValueError` if it can't be stored.
    """
    if type(value) is list:
        return restored_elements(value, codec, path)
    return codec.decode(codec.encode(value, path))


def restored_elements(elements: Sequence[Any], codec: Codec, path: str, start: int = 0) -> list[Any]:
    """Return the elements of a list as a restore will; the first one is number `start`."""
    return [codec.decode(item) for item in codec.encode_each(elements, path, start)]


def state_as_restored(state: Mapping[str, Any], codec: Codec) -> dict[str, Any]:
    return {name: as_restored(value, codec, f"execution_state.{name}") for name, value in state.items()}
