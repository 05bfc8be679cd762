"""`holdfast init`: make a store, and print the lines that use it."""

from __future__ import annotations

import shlex

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import StoreLocation, make_store


@click.command(short_help="Create a store, and print the code that uses it.")
@click.argument("url", metavar="[URL|PATH]", required=False)
@common_options
def init(url: str | None, store: str | None, as_json: bool) -> None:
    """Create a store, and print three lines of Python that save to it.

    Without URL, it is the SQLite file .holdfast/store.db here: commands in this directory and below find it. A URL
    or path names another one: sqlite:///runs.db, file:///srv/runs, postgresql://host/base, redis://host. An
    existing store does not change.
    """
    location, made = make_store(url if url is not None else store)
    snippet = _snippet(location, is_found_here=url is None and store is None)
    if as_json:
        print_json({"store": str(location), "kind": location.kind, "made": made, "snippet": snippet})
        return
    words = {True: "made {}", False: "{} is there already, and stays as it is", None: "{} is ready"}
    click.echo(words[made].format(location), err=True)
    if url is not None or store is not None:
        click.echo(f"commands find it by: export HOLDFAST_URL={shlex.quote(str(location))}", err=True)
    click.echo(snippet)


def _snippet(location: StoreLocation, *, is_found_here: bool) -> str:
    """Three lines to paste."""
    opened = {
        "sqlite": "SyncClient.sqlite()" if is_found_here else f"SyncClient.sqlite({str(location.path)!r})",
        "files": f"SyncClient.files({str(location.path)!r})",
        "url": "SyncClient.from_env()",  # HOLDFAST_URL: a URL may hold a password, which belongs into no program
    }[location.kind]
    return (
        "from holdfast import SyncClient\n"
        f"client = {opened}\n"
        'client.save(agent_id="my-agent", session_id="my-run", execution_state={"messages": []})'
    )
