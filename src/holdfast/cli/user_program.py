"""The user's own programs, named on the command line: MODULE:NAME."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.client import Client


def open_async_client(store: str | None) -> Client:
    """Return a client for programs that are coroutines, with their registered types and migrations."""
    from holdfast.cli.store_location import key_options, locate
    from holdfast.client.client import Client

    where = locate(store)
    keys = key_options(where.directory)
    if where.path is None:
        return Client.open(str(where.url), **keys)
    return Client.files(where.path, **keys) if where.kind == "files" else Client.sqlite(where.path, **keys)


def load_program(text: str) -> Any:
    """Return the object that `MODULE:NAME` names."""
    import importlib
    import os
    import sys

    from holdfast.errors import UsageError

    module, _, name = text.partition(":")
    if not module or not name:
        raise UsageError(f"{text!r:.80} names no program: write MODULE:NAME, such as agent:main")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - as text, as sys.path has it
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as above
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"there is no module {error.name!r:.80} here: it is looked for in this directory, too"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"module {module!r:.80} has no {name!r:.80}")
        found = getattr(found, part)
    return found
