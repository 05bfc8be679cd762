"""A list that is dumped repeatedly; unchanged elements are the same objects in each dump.

So a save stores the new ones only, and notices if a step has changed an element in place.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable
from typing import Any


class DumpedList:
    """The last dump of a list, or what the store has of it."""

    def __init__(self, dumped: Iterable[Any] = ()) -> None:
        self.dumped = list(dumped)
        self._images = list(map(_image_of, self.dumped))

    def update(self, elements: Iterable[Any], dump: Callable[[Any], Any]) -> list[Any]:
        """Dump the list as it is now; plain elements that are as they were are not dumped again."""
        dumped, images = [], []
        for number, element in enumerate(elements):
            image, tree = _image_of(element), None
            if image is None:  # no plain data, but its dump is
                tree = dump(element)
                image = _image_of(tree)
            if image is not None and number < len(self._images) and image == self._images[number]:
                tree = self.dumped[number]
            elif tree is None:
                tree = dump(element)
            dumped.append(tree)
            images.append(image)
        self.dumped, self._images = dumped, images
        return dumped


def _image_of(value: Any) -> bytes | None:
    """Return bytes that are equal for equal plain data of the same types; None for anything else."""
    try:
        return marshal.dumps(value, 2)  # a version without references, which depend on the objects
    except ValueError:
        return None
