"""A checkpnt payload as values, and the verdict of its checksum.

checkpnt packs a datetime as its isoformat() but computes the checksum over its str(): such a row
fails its own check. That difference tells datetimes from strings: if the checksum matches once
texts are made datetimes again, they were datetimes. A dict with keys that are no strings is packed
well, and only checkpnt refuses to unpack it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import ormsgpack

from holdfast.codec.map_keys import keys_are_spread

MAX_GROUPS = 6  # of texts that may have been datetimes: each doubles the attempts
_OPTIONS = ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_DATETIME_AS_TIMESTAMP_EXT
Where = tuple[Any, ...]  # the keys that lead to a value; an index of a list is None


class Content(NamedTuple):
    execution_state: Any
    agent_context: Any


class JudgedContent(NamedTuple):
    """A judged content. `matches`: the checksum does. `datetimes`: some were restored.

    `other_keys`: some keys are no strings.
    """

    content: Content
    matches: bool
    datetimes: bool
    other_keys: bool


def unpack(payload: object) -> dict[Any, Any]:
    """Return the checkpoint as checkpnt packed it; raise `ValueError` that says what is wrong."""
    if not isinstance(payload, bytes):
        raise ValueError(f"its payload is {type(payload).__name__}, not bytes")  # noqa: TRY004 - one error for all
    if not keys_are_spread(payload):
        raise ValueError("its payload has a map whose keys can't be told apart")
    try:
        value = ormsgpack.unpackb(payload, ext_hook=_refuse_extension, option=_OPTIONS)
    except RecursionError:
        raise ValueError("its payload is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"its payload can't be read as MessagePack: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"its payload is a {type(value).__name__}, not a map")  # noqa: TRY004 - as above
    return value


def judge(content: Content, checksum: Any) -> JudgedContent:
    """Return the content as it was saved, as far as the checksum can prove it."""
    other_keys = _has_other_keys([*content])
    if _checksum(content) == checksum:
        return JudgedContent(content, matches=True, datetimes=False, other_keys=other_keys)
    groups = sorted(set(_moments(content._asdict())), key=repr)
    for chosen in _choices(groups):
        restored = Content(**_restore_value(content._asdict(), chosen))
        if _checksum(restored) == checksum:
            return JudgedContent(restored, matches=True, datetimes=True, other_keys=other_keys)
    return JudgedContent(content, matches=False, datetimes=False, other_keys=other_keys)


def _checksum(content: Content) -> str | None:
    try:
        text = json.dumps(content._asdict(), sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):  # checkpnt could not have saved this
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _choices(groups: list[Where]) -> Iterator[frozenset[Where]]:
    """Yield sets of texts that may have been datetimes: all, then all but few.

    Texts under the same keys are of the same kind.
    """
    if not groups:
        return
    yield frozenset(groups)
    if len(groups) <= MAX_GROUPS:
        for size in range(len(groups) - 1, 0, -1):
            yield from map(frozenset, itertools.combinations(groups, size))


def _moments(value: Any, where: Where = ()) -> Iterator[Where]:
    """Yield the locations of texts that may have been datetimes."""
    if type(value) is dict:
        for key, item in value.items():
            yield from _moments(item, (*where, key))
    elif type(value) is list:
        for item in value:
            yield from _moments(item, (*where, None))
    elif _is_moment(value):
        yield where


def _is_moment(value: Any) -> bool:
    if type(value) is not str or not 19 <= len(value) <= 42 or value[10] != "T":
        return False
    try:
        return datetime.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _restore_value(value: Any, chosen: frozenset[Where], where: Where = ()) -> Any:
    if type(value) is dict:
        return {key: _restore_value(item, chosen, (*where, key)) for key, item in value.items()}
    if type(value) is list:
        return [_restore_value(item, chosen, (*where, None)) for item in value]
    return datetime.fromisoformat(value) if where in chosen and _is_moment(value) else value


def _has_other_keys(value: Any) -> bool:
    if type(value) is dict:
        return any(type(key) not in (str, bytes) for key in value) or any(map(_has_other_keys, value.values()))
    return type(value) is list and any(map(_has_other_keys, value))


def _refuse_extension(code: int, _data: bytes) -> Any:
    raise ValueError(f"it holds an extension type ({code}) that is not checkpnt's")
