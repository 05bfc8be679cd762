"""Refuses stored data that a framework can't read: a store may be a stranger's, or a later version's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holdfast.errors import CorruptError, HoldfastError

LONGEST_CAUSE = 200


def check_texts(value: Any) -> None:
    """Raise if a text within a value has a lone surrogate, which the framework can't send to a model."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, Mapping):
        for name, item in value.items():
            check_texts(name)
            check_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            check_texts(item)


@contextmanager
def refuse_unreadable(subject: str) -> Iterator[None]:
    """Raise `CorruptError` for any error of a framework that makes its objects of what is stored."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:  # of any kind: frameworks check what they are given, or use it unchecked
        cause = f"{type(error).__name__}: {error}"[:LONGEST_CAUSE]
        raise CorruptError(
            f"{subject} can't be read ({cause}). Another version of the framework has saved it, or something else has "
            "changed the store. Nothing was called. Use the version that saved it, or roll the session back"
        ) from error
