"""The needs of a directory's configuration that exceed those allowed without trust. Reads no file.

A configuration may choose a store within its own directory, and leave out more of the files.
Everything else, a key file too, is a *want*: it needs the user's trust (see trust_records.py). A setting without a
rule here is a want, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from holdfast.workspace.limits import WorkspaceLimits

_DEFAULTS = WorkspaceLimits()


class NeedScope(StrEnum):
    """The subject of a want: a command refuses only for settings that it would use."""

    FILE = "file"  # the configuration file itself: its owner, where it is
    FOUND = "found"  # the `.holdfast/` of the directory: its owner, where it leads to
    STORE = "store"  # the store that a file names
    KEYS = "keys"  # the key file that a file names
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class Want:
    """One thing that needs trust. `value` is exact, and covered by the trust; `why` is for people."""

    scope: NeedScope
    setting: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """A file or directory with settings: its real path, and its owners (of the link and its target)."""

    name: str
    real: Path
    owners: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about the directory. Places are the real paths that a store would have, its own first."""

    directory: Path
    own_ids: frozenset[int] | None  # users whose files are the caller's own; None where the system knows no users
    files: tuple[ConfigSource, ...] = ()  # the configuration files that say something
    url: str | None = None  # the store that a file names, if it is not a path
    places: tuple[Path, ...] = ()  # of the store that a file names
    keys: Path | None = None  # the key file that a file names
    found: ConfigSource | None = None  # `.holdfast`, if there is one
    found_places: tuple[Path, ...] = ()


def find_wants(workspace: Mapping[str, Any], facts: Facts) -> tuple[Want, ...]:
    """Return everything that needs trust; nothing if the directory stays within its own bounds."""
    wants = [want for file in facts.files for want in _source_wants(file, facts)]
    if facts.url is not None:
        wants.append(Want(NeedScope.STORE, "store", facts.url, "it is a URL: what is saved would go there"))
    wants += _place_wants(facts.places, NeedScope.STORE, "store", facts)
    if facts.keys is not None:
        risk = "what is saved is encrypted under its keys: anyone who has them can read it"
        wants.append(Want(NeedScope.KEYS, "keys", str(facts.keys), risk))
    if facts.found is not None:
        wants += _owner_wants(facts.found, NeedScope.FOUND, facts)
        wants += _place_wants(facts.found_places, NeedScope.FOUND, facts.found.name, facts)
    for name, value in workspace.items():
        why = explain_loosened(name, value)
        if why is not None:
            wants.append(Want(NeedScope.WORKSPACE, f"workspace.{name}", _text(value), why))
    return tuple(wants)


def _source_wants(file: ConfigSource, facts: Facts) -> list[Want]:
    wants = _owner_wants(file, NeedScope.FILE, facts)
    return [*wants, *_place_wants((file.real,), NeedScope.FILE, file.name, facts)]


def _place_wants(places: tuple[Path, ...], scope: NeedScope, setting: str, facts: Facts) -> list[Want]:
    outside = [place for place in places if not place.is_relative_to(facts.directory)]
    return [Want(scope, setting, str(place), "it is outside the directory") for place in outside[:1]]


def _owner_wants(source: ConfigSource, scope: NeedScope, facts: Facts) -> list[Want]:
    """Return the wants for a foreign owner, as git's safe.directory: /tmp may hold any user's file."""
    strangers = sorted(source.owners - facts.own_ids) if facts.own_ids is not None else []
    return [Want(scope, f"owner of {source.name}", f"uid {uid}", "it belongs to another user") for uid in strangers]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def explain_loosened(name: str, value: Any) -> str | None:
    """Return why a setting of `[workspace]` needs trust; None if it only leaves out more than without it."""
    rule = WORKSPACE_RULES.get(name)
    return "this setting has no rule" if rule is None else rule(value)


def _check_most(name: str) -> Callable[[Any], str | None]:
    most = getattr(_DEFAULTS, name)
    return lambda value: f"it is more than the default, {most:g}" if value > most else None


def _check_least(name: str) -> Callable[[Any], str | None]:
    least = getattr(_DEFAULTS, name)
    return lambda value: f"it is less than the default, {least:g}" if value < least else None


WORKSPACE_RULES: dict[str, Callable[[Any], str | None]] = {
    "include_git": lambda value: "snapshots would take in .git" if value else None,
    "gitignore": lambda value: None if value else "snapshots would take in what .gitignore leaves out",
    "default_excludes": lambda value: None if value else "snapshots would take in what is left out by default",
    "secrets": lambda value: None if value in ("skip", "refuse") else "snapshots would take in keys and passwords",
    "max_files": _check_most("max_files"),
    "max_bytes": _check_most("max_bytes"),
    "max_file_bytes": _check_most("max_file_bytes"),
    "max_seconds": _check_most("max_seconds"),
    "min_free_bytes": _check_least("min_free_bytes"),
}
