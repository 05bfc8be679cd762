"""A function that tests of steps call."""

from __future__ import annotations


class Calls:
    """Remembers what it was called with."""

    def __init__(self) -> None:
        self.made: list[object] = []

    def __call__(self, value: object = None, *more: object) -> object:
        self.made.append(value)
        return value
