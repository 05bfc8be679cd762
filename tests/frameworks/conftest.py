"""Tests of adapters with the real frameworks: `make framework-tests` runs them in their environments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from framework_environments import name_files_of_others
from servers.prefixes import delete_prefixes
from servers.schemas import drop_schemas
from stores import Store

collect_ignore = name_files_of_others(Path(__file__).parent)

# Warnings are errors, but those that a framework raises about itself are its maintainers' business. Each is named.
WARNINGS = [
    # A cycle of imports in crewai.rag, seen by the import system when it binds the submodule.
    r"ignore:Cannot set an attribute on 'crewai:ImportWarning",
    # CrewAI reads fields that it has deprecated itself.
    r"ignore:function_calling_llm is deprecated:DeprecationWarning",
    r"ignore:deprecated$:DeprecationWarning",
]


def pytest_configure(config: pytest.Config) -> None:
    for warning in WARNINGS:
        config.addinivalue_line("filterwarnings", warning)


SERVERS = {  # the fixture that says where a kind's server is, and what clears it
    "postgres": ("postgres_dsn", drop_schemas),
    "redis": ("redis_url", delete_prefixes),
}
KINDS = ("sqlite", *(pytest.param(kind, marks=pytest.mark.servers) for kind in ("postgres", "redis")))


class Places:
    """Stores of one kind on one server, each with a directory for what a program does outside."""

    def __init__(self, kind: str, where: Path, server: str) -> None:
        self.kind = kind
        self._where = where
        self._server = server

    def make(self, name: str) -> tuple[str, Path]:
        """Return the URL of an empty store, and an empty directory."""
        directory, inside = self._where / name, self._where / f"{name}-store"
        directory.mkdir()
        inside.mkdir()
        return Store(self.kind, inside, self._server).url, directory


@pytest.fixture
def sqlite_places(tmp_path: Path) -> Places:
    return Places("sqlite", tmp_path, "")


@pytest.fixture(params=KINDS)
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    """Stores of each kind that survives its program: SQLite, PostgreSQL, Redis."""
    fixture, clean = SERVERS.get(request.param, ("", None))
    server = request.getfixturevalue(fixture) if fixture else ""
    yield Places(request.param, tmp_path, server)
    if clean is not None:
        clean(server)
