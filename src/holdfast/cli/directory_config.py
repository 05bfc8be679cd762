"""A directory's configuration as commands use it: its settings, their need of trust, and the trust."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from holdfast.cli.config_file import ConfigFile, read_config_files
from holdfast.cli.store_location import DIRECTORY, FILES_NAME, SQLITE_NAME, without_password
from holdfast.cli.terminal.sanitize import escape
from holdfast.cli.trust_needs import ConfigSource, Facts, NeedScope, Want, find_wants
from holdfast.cli.trust_records import TrustRecord, read_trust_record
from holdfast.errors import HoldfastError, UsageError

SHOWN = 300  # characters of a value: a URL must show its host


class UntrustedError(HoldfastError):
    """A directory's configuration that needs trust and does not have it. Nothing was done."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings of a directory's files; `wants` are those that need trust, `digest` covers all of them."""

    directory: Path
    files: tuple[ConfigFile, ...]
    store: str | None  # a path or a URL that is good from anywhere
    store_file: Path | None
    keys: Path | None  # the real path of a key file
    workspace: dict[str, Any]
    wants: tuple[Want, ...]
    digest: str

    def state(self) -> TrustState:
        record = read_trust_record(self.directory) if self.wants else None
        return TrustState(self, record)

    def require_trust(self, *scopes: NeedScope) -> None:
        """Raise `UntrustedError` if something of these scopes needs trust that the directory has not."""
        if any(want.scope in scopes for want in self.wants):
            state = self.state()
            if not state.is_trusted:
                raise UntrustedError(state.refusal())


@dataclass(frozen=True, slots=True)
class TrustState:
    """Whether a directory has the trust that its configuration needs."""

    configuration: Configuration
    record: TrustRecord | None

    @property
    def is_trusted(self) -> bool:
        return self.record is not None and self.record.digest == self.configuration.digest

    def refusal(self) -> str:
        """Return one line: everything that needs trust, and how to allow it."""
        directory = escape(str(self.configuration.directory))
        asked = "; ".join(format_want(want) for want in self.configuration.wants)
        state = (
            "is not trusted"
            if self.record is None
            else f"was trusted on {self.record.trusted_at[:10]}, but its configuration has changed since"
        )
        return (
            f"the configuration of {directory} asks for what needs trust: {asked}. This directory "
            f"{state}: nothing was done. If you want what it "
            f"asks for: holdfast trust {shlex.quote(directory)}"
        )


def format_want(want: Want) -> str:
    """Return one want for people, in one line."""
    return f"{want.setting} = {escape(without_password(want.value), SHOWN)} ({want.why})"


def find_configuration() -> Configuration | None:
    """Return the configuration of the nearest directory from here upward that has one, or None."""
    cwd = Path.cwd()
    found = (read_configuration(directory) for directory in (cwd, *cwd.parents))
    return next((configuration for configuration in found if configuration.files or configuration.wants), None)


def read_configuration(directory: Path) -> Configuration:
    """Read what the files of a directory say about holdfast, and decide what of it needs trust."""
    real = Path(os.path.realpath(directory))
    files = read_config_files(directory)
    naming = next((file for file in files if file.store is not None), None)
    store, path = (None, None) if naming is None else _named_store(naming, directory)
    keys = next((_named_keys(file) for file in files if file.keys is not None), None)
    workspace = next((file.workspace for file in files if file.workspace is not None), {})
    found = directory / DIRECTORY
    is_found = os.path.lexists(found)
    facts = Facts(
        directory=real,
        own_ids=_own_ids(),
        files=tuple(_source(file.path) for file in files),
        url=store if path is None else None,
        places=() if path is None else _places(path, real),
        keys=keys,
        found=_source(found) if is_found else None,
        found_places=_places(found, real) if is_found else (),
    )
    wants = find_wants(workspace, facts)
    return Configuration(
        directory=real,
        files=files,
        store=store,
        store_file=None if naming is None else naming.path,
        keys=keys,
        workspace=workspace,
        wants=wants,
        digest=_digest(files, wants, facts),
    )


def _digest(files: tuple[ConfigFile, ...], wants: tuple[Want, ...], facts: Facts) -> str:
    """Return the digest of all settings and of the places outside that the store leads to now."""
    outside = [
        str(place) for place in (*facts.places, *facts.found_places) if not place.is_relative_to(facts.directory)
    ]
    fields = {
        "files": {file.path.name: hashlib.sha256(file.content).hexdigest() for file in files},
        "wants": [[want.scope, want.setting, want.value] for want in wants],
        "outside": outside,
    }
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode("ascii")).hexdigest()


def _named_store(file: ConfigFile, directory: Path) -> tuple[str, Path | None]:
    """Return the store as a path or URL that has one reading only, and its path, if it is one.

    A relative path is meant from where the file is. No variables are replaced: a configuration
    can't send these anywhere.
    """
    store = str(file.store)
    scheme, separator, rest = store.partition("://")
    if not separator:
        try:
            path = directory / Path(store).expanduser()
        except RuntimeError as error:
            raise UsageError(f"{file.path}: store is {escape(store, 200)!r}, and there is no such user") from error
        return str(path), path
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        path = directory / rest[1:]
        return f"sqlite:///{path}", path
    if scheme == "file" and rest.startswith("/"):
        if any(mark in rest for mark in "?#\t\r\n") or "%00" in rest:  # readers of URLs differ in what becomes of these
            raise UsageError(f"{file.path}: store is {escape(store, 200)!r}, which is no URL of a directory")
        path = Path(os.fsdecode(unquote_to_bytes(rest)))
        return f"file://{quote(os.fsencode(path))}", path
    return store, None


def _named_keys(file: ConfigFile) -> Path:
    try:
        return Path(os.path.realpath(Path(str(file.keys)).expanduser()))
    except RuntimeError as error:
        raise UsageError(f"{file.path}: keys is {escape(str(file.keys), 200)!r}, and there is no such user") from error


def _places(store: Path, directory: Path) -> tuple[Path, ...]:
    """Return the real paths of everything that a store of this name may be, and of its parent directories.

    See `store_location`.
    """
    within = [path / name for path in (store, store / DIRECTORY) for name in ("", SQLITE_NAME, FILES_NAME)]
    real = [Path(os.path.realpath(path)) for path in within]
    if real[0] != directory:  # a link may lead back in from a directory outside, where a store's other files would be
        real.append(Path(os.path.realpath(store.parent)))
    return tuple(real)


def _source(path: Path) -> ConfigSource:
    owners = set()
    for follow in (False, True):
        try:
            owners.add(path.stat(follow_symlinks=follow).st_uid)
        except OSError:  # a link that leads nowhere
            continue
    return ConfigSource(path.name, Path(os.path.realpath(path)), frozenset(owners))


def _own_ids() -> frozenset[int] | None:
    """Return the users whose files are the caller's own: the caller, root, and the user behind sudo."""
    if not hasattr(os, "geteuid"):
        return None
    ids = {os.geteuid(), 0}
    sudo = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and sudo.isascii() and sudo.isdigit():
        ids.add(int(sudo))
    return frozenset(ids)
