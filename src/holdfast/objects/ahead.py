"""Encoding ahead: a state is encoded before the store is asked what its parent has, so that it need not be asked twice.

That is for a state without long lists, or with such as are given by declared appends. Of any other it is the parent's list that
says which elements are new: nothing is gained by encoding it before that is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.codec.parts import Ref
from holdfast.objects.groups import GROUP
from holdfast.objects.manifest import Path
from holdfast.objects.split import LIST, Appended, Image, KnownList, Split, path_text


class _NeedsParentError(Exception):
    """The state has a long list."""


class Ahead(Split):
    """A state in its parts before it is known what it follows."""

    def __init__(self, codec: Codec) -> None:
        super().__init__(codec, lambda _: None)
        self.is_taken = False

    def try_to_take(self, execution_state: Any, agent_context: Any) -> None:
        """Splits a state, if it can be: whoever finds it not `is_taken` splits it once the parent is known, and hears then
        what is wrong with it."""
        try:
            self.take(execution_state, agent_context)
        except Exception:
            return
        self.is_taken = True

    def follows(self, known: Callable[[Path], KnownList | None]) -> bool:
        """Takes up what is known of the lists that are appended to. False if the state has to be split anew."""
        bound: list[Image] = []
        for image in self.lists:
            parent = known(image.path)
            if parent is None:
                return False
            length = parent.entry.length + len(image.fresh)
            bound.append(self._made(image.path, length, None, image.fresh, parent.entry, None))
        self.lists = bound
        return True

    def _image(self, value: list[Any], path: Path) -> Image | None:
        if len(value) >= GROUP or super()._image(value, path) is not None:
            raise _NeedsParentError
        return None

    def _declared(self, appended: Appended, path: Path) -> Ref:
        fresh = self.codec.encode_each(appended.elements, path_text(path))
        self.lists.append(self._made(path, len(fresh), None, fresh, None, None))
        return Ref(LIST, len(self.lists) - 1)
