"""The keys of a sealed store, as people see them: names and counts, never a key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStatus:
    """What protects a sealed store.

    `protected_by` names the keys that the store's own key is wrapped by, `primary` is the primary key of
    the ring. `is_current` says that no other key is needed to open the store.

    `epoch` is that of the keys which new data is sealed under, and `old_epochs` are those whose keys the
    store still accepts. Of `trees` with a key, `trees_current` have one of the newest epoch.
    `is_resealing` says that `rekey(data=True)` began and has not finished.
    """

    store_id: str
    protected_by: tuple[str, ...]
    primary: str
    trees: int
    trees_current: int
    epoch: int
    old_epochs: tuple[int, ...]
    is_resealing: bool

    @property
    def is_current(self) -> bool:
        return self.protected_by == (self.primary,)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyImport:
    """The result of an import of key rows: how many were put back, and how many were there already."""

    put_back: int
    already_there: int
