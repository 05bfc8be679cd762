"""Encoding ahead: a state is encoded before the store is asked what its parent has, so that it need not be asked twice.

All of the state is encoded at one moment, as by `Split`. What is not known yet is how many elements of each long list are the
parent's, so most of a list is encoded in stretches and hashed, its last elements one by one: the end of the parent's list is
expected to be among these. If it is not, or if the parent has no such list, encoding ahead was in vain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.codec.codec import Codec
from holdfast.codec.parts import Ref
from holdfast.objects.chain import Chain
from holdfast.objects.groups import EMPTY, GROUP, Groups
from holdfast.objects.manifest import ListEntry, Path
from holdfast.objects.split import LIST, LONG_BYTES, Appended, Image, KnownList, Split, path_text

ONE_BY_ONE = 16  # at least so many of the last elements: more than a step adds, mostly
# From here on a list is long, however its elements are encoded. In stretches, some may be taken for what takes less room.
_SURELY_LONG = 4 * LONG_BYTES


class _Begun(NamedTuple):
    """A list without its last elements, which are its image's `fresh` ones; nothing says yet that these encodings are exact."""

    first: Groups
    chain: Chain


class Ahead(Split):
    """A state in its parts before it is known what it follows."""

    def __init__(self, codec: Codec) -> None:
        super().__init__(codec, lambda _: None)
        self.is_taken = False
        self._begun: dict[Path, _Begun] = {}
        self._appended: set[Path] = set()

    def try_to_take(self, execution_state: Any, agent_context: Any) -> None:
        """Splits a state, if it can be: whoever finds it not `is_taken` splits it once the parent is known, and hears then
        what is wrong with it."""
        try:
            self.take(execution_state, agent_context)
        except Exception:
            return
        self.is_taken = True

    def follows(self, known: Callable[[Path], KnownList | None]) -> bool:
        """Takes up what is known of the parent's lists. False if the state has to be split anew."""
        bound: list[Image] = []
        for image in self.lists:
            of_parent = known(image.path)
            followed = self._followed(image, of_parent.entry if of_parent is not None else None)
            if followed is None:
                return False
            bound.append(followed)
        self.lists = bound
        return True

    def _followed(self, image: Image, entry: ListEntry | None) -> Image | None:
        path, begun = image.path, self._begun.get(image.path)
        if path in self._appended:
            if entry is None:
                return None
            return self._made(path, entry.length + len(image.fresh), None, image.fresh, entry, None)
        if begun is not None:
            # Encodings of what holds `bytes` need a closer look, which was not taken: see `Codec.encode_joined`.
            return None if entry is None or entry.has_bytes else self._proven(image, entry, *begun)
        return image if entry is None else self._proven(image, entry, EMPTY, Chain()) or image

    def _proven(self, image: Image, entry: ListEntry, first: Groups, chain: Chain) -> Image | None:
        """The image of a list that begins with all of the parent's elements; None if it does not."""
        count = entry.length - first.length
        if not 0 <= count <= len(image.fresh):
            return None
        of_parent = b"".join(image.fresh[:count])
        chain = chain.copy()
        chain.update(of_parent)
        if first.size + len(of_parent) != entry.size or chain.digest() != entry.digest:
            return None
        fresh = image.fresh[count:]
        chain.update(b"".join(fresh))
        return self._made(image.path, image.length, first.followed_by(image.fresh), fresh, entry, chain)

    def _image(self, value: list[Any], path: Path) -> Image | None:
        first = (len(value) - ONE_BY_ONE) // GROUP * GROUP
        if first <= 0:
            return super()._image(value, path)
        text = path_text(path)
        stretches = []
        chain = Chain()
        for start in range(0, first, GROUP):
            stretch = self.codec.encode_joined(value[start : start + GROUP], text, no_bytes=True)
            chain.update(stretch)
            stretches.append(stretch)
        groups = Groups(first, sum(map(len, stretches)), tuple(stretches))
        if groups.size < _SURELY_LONG:
            return super()._image(value, path)
        last = self.codec.encode_each(value[first:], text, first)
        self._begun[path] = _Begun(groups, chain)
        return self._made(path, len(value), None, last, None, None)

    def _declared(self, appended: Appended, path: Path) -> Ref:
        fresh = self.codec.encode_each(appended.elements, path_text(path))
        self._appended.add(path)
        self.lists.append(self._made(path, len(fresh), None, fresh, None, None))
        return Ref(LIST, len(self.lists) - 1)
