"""`holdfast bisect`: find the step at which a session went wrong, by a test command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import UsageError
from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.json_form.values import to_json
from holdfast.model.checkpoint import Checkpoint

UNKNOWN_EXIT = 125  # as in `git bisect run`


@click.command(short_help="Find the first bad checkpoint of a session.")
@click.argument("session")
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
@common_options
def bisect(session: str, command: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Find the first bad checkpoint of SESSION. Of n checkpoints, about log n are tested.

    COMMAND runs in a temporary directory, with the checkpoint's files if it has a snapshot. It gets the state as
    JSON on stdin and in the file named by HOLDFAST_STATE (state.json in that directory, without files), and the id
    in HOLDFAST_CHECKPOINT. It exits with 0 for good, with 1 to 124 for bad, and with 125 to stop the search.
    """
    with open_store(store) as client:
        found = client.bisect(session, lambda checkpoint, files: _is_good(checkpoint, files, command), files=True)
    if as_json:
        print_json(
            {
                "session_id": found.session_id,
                "first_bad": checkpoint_fields(found.first_bad) if found.first_bad else None,
                "last_good": checkpoint_fields(found.last_good) if found.last_good else None,
                "looks": [
                    {"checkpoint_id": step.checkpoint.checkpoint_id, "is_good": step.is_good} for step in found.looks
                ],
                "of_all": found.of_all,
            }
        )
        return
    click.echo(escape(found.text()))
    if found.first_bad is not None and found.last_good is not None:
        good, bad = found.last_good.short_id, found.first_bad.short_id
        click.echo(f"see what it changed: holdfast diff {good} {bad}", err=True)


def _is_good(checkpoint: Checkpoint, files: Path | None, command: tuple[str, ...]) -> bool:
    import subprocess
    import tempfile

    state = json.dumps(to_json(checkpoint.execution_state), allow_nan=False)
    with tempfile.TemporaryDirectory(prefix="holdfast-bisect-") as directory:
        written = Path(directory, "state.json")
        written.write_text(state, "ascii")
        environment = {
            **os.environ, "HOLDFAST_CHECKPOINT": checkpoint.checkpoint_id, "HOLDFAST_STATE": str(written)
        }  # fmt: skip
        try:
            # The command's own words go where words go: standard output is for the answer.
            done = subprocess.run(  # noqa: S603 - the user's own command line, as given
                command, input=state, text=True, cwd=files or directory, env=environment, check=False, stdout=2
            )
        except OSError as error:
            raise UsageError(f"{command[0]!r:.80} can't be run ({error.strerror}): check its name and path") from error
    if done.returncode < 0 or done.returncode >= UNKNOWN_EXIT:
        raise UsageError(
            f"the command could not tell whether {checkpoint.short_id} (step {checkpoint.step_index}) "
            f"is good: it ended with {done.returncode}. It must exit with 0 for good and 1 to 124 for bad"
        )
    verdict = "good" if done.returncode == 0 else "bad"
    click.echo(f"step {checkpoint.step_index} {checkpoint.short_id}: {verdict}", err=True)
    return done.returncode == 0
