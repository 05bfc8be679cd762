"""`holdfast ui`: the web page and the HTTP API of a store, on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import common_options
from holdfast.cli.options_workspace import directory_option, find_workspace, try_workspace
from holdfast.cli.output.listing import print_result
from holdfast.cli.store_location import locate
from holdfast.errors import HoldfastError, KeyMissingError, TamperedError, UsageError

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

BUNDLE = ".hf"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
EXPORTED = "it is an exported file, which is only read. Import it into a store to change it"


@click.command(short_help="Open the web page of a store or an exported file.")
@click.argument("source", metavar="[STORE|FILE.hf]", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on.  [default: a free one]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--allow-remote", metavar="NAME", multiple=True,
    help="Name by which other machines reach the page, as in their address bar; repeatable. Needs --token-file.",
)  # fmt: skip
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Bearer token of scripts, made if the file is missing. Cookies stay valid over a restart.",
)
@click.option("--write/--read-only", "write", default=None, help="Allow changes.  [default: not to a server's store]")
@click.option("--no-open", is_flag=True, help="Do not open a browser; only print the link.")
@click.option("--log", is_flag=True, help="Log requests to stderr, without their queries.")
@directory_option
@common_options
def ui(
    source: str | None, port: int, host: str, allow_remote: tuple[str, ...], token_file: Path | None,
    write: bool | None, no_open: bool, log: bool, directory: str | None, store: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Serve the web page and the HTTP API of a store, and open it in a browser. Ctrl-C ends it.

    The link works once, in one browser. Only this machine can reach the page, unless --host and
    --allow-remote say otherwise: then put TLS in front of it. An exported file, and by default a
    store on PostgreSQL or Redis, is only read.
    """
    _require_extra()
    from holdfast.web import Access, app
    from holdfast.web.server import Server

    if source is not None and store is not None:
        raise click.UsageError("STORE and --store are the same thing: give one")
    _check_host(host, allow_remote, token_file)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO if log else logging.WARNING, format="%(message)s")
    access = Access(token=None if token_file is None else _read_token(token_file), names=allow_remote)
    with _open(source if source is not None else store, write=write) as (client, about):
        if about.get("source") != "bundle":
            about["workspace"] = try_workspace(client, directory, find_workspace)
        try:
            server = Server(app(client, access=access, **about), host, port)
        except OSError as error:
            raise UsageError(f"can't listen on {host} port {port}: {error.strerror}. Choose another --port") from error
        url = server.url
        print_result({"url": url, "origin": server.origin, "port": server.port}, url, as_json=as_json)
        sys.stdout.flush()  # a script waits for the line
        click.echo("the link works once; Ctrl-C ends the server", err=True)
        if allow_remote:
            click.echo(f"others reach it as {', '.join(allow_remote)}: put TLS in front of it", err=True)
        if not no_open:
            webbrowser.open(url)  # it waits for the socket, which listens already
        with contextlib.suppress(KeyboardInterrupt):
            server.run()


def _require_extra() -> None:
    import importlib.util

    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"the page needs {' and '.join(missing)}: pip install 'holdfast[ui]'")


def _check_host(host: str, allow_remote: tuple[str, ...], token_file: Path | None) -> None:
    if host not in LOOPBACK and not allow_remote:
        raise UsageError(
            f"other machines could reach {host}. Name the page for them with --allow-remote NAME, give your own "
            "token with --token-file, and put TLS in front of it; or leave out --host"
        )
    if allow_remote and token_file is None:
        raise UsageError("--allow-remote needs a token of your own: add --token-file FILE")


def _read_token(file: Path) -> str:
    """Return the token in a file that only its owner may read; make both if the file is missing."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    except OSError as error:
        raise UsageError(f"{file} can't be made: {error.strerror}") from error
    else:
        with open(descriptor, "w", encoding="ascii") as made:  # noqa: PTH123 - of a descriptor
            made.write(f"{secrets.token_urlsafe(32)}\n")
    try:
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise UsageError(f"others may read {file}: chmod 600 it, and change the token")
        return file.read_text("ascii").strip()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{file} can't be read as a token: {error}") from error


def _require_keys(client: SyncClient) -> None:
    """Raise an error now, not on each page, if the keys of the store are missing or wrong.

    Pages show other errors.
    """
    from holdfast.backends.bridge.step import run_inline

    try:
        run_inline(client._ctx.backend.rows([]))
    except (KeyMissingError, TamperedError):
        raise
    except HoldfastError:
        return


@contextlib.contextmanager
def _open(named: str | None, *, write: bool | None) -> Iterator[tuple[SyncClient, dict[str, Any]]]:
    """Open a store, or an exported file in a temporary store, with what the page says of it."""
    if named is not None and named.endswith(BUNDLE) and Path(named).is_file():
        if write:
            raise UsageError(f"{named} can't be opened with --write: {EXPORTED}")
        from holdfast.client.sync import SyncClient

        with (
            tempfile.TemporaryDirectory(prefix="holdfast-ui-") as directory,
            SyncClient.sqlite(Path(directory, "store.db"), durability="fast") as client,
        ):
            click.echo(f"reading {named}…", err=True)
            client.import_(named)
            about = {"store": named, "source": "bundle", "writable": False, "read_only_because": EXPORTED}
            yield client, about
        return
    location = locate(named)
    with location.open() as client:
        _require_keys(client)
        yield client, {"store": str(location), "found_by": location.how, "writable": write}
