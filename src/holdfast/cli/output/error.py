"""Failures on stderr: as words, or with `--json` as one JSON object on one line."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast.cli.terminal.sanitize import escape_lines
from holdfast.errors import CheckpointNotFoundError, HoldfastError
from holdfast.json_form.error import error_details, error_kind

AS_JSON = "holdfast.as_json"  # in the meta of a context: whether `--json` was given
COMMAND = "holdfast.command"  # the context of the command that has it
ARGUMENTS = "holdfast.arguments"  # the command line, for when it can't be parsed
JSON = "--json"
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count


def remember_json(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> bool:
    """Record `--json`, as its callback: a failure must know of it wherever it is printed."""
    ctx.meta[AS_JSON] = wanted
    ctx.meta[COMMAND] = ctx
    return wanted


def wants_json(ctx: click.Context | None, arguments: list[str]) -> bool:
    """Return whether `--json` was given; if the command line is not parsed, whether it occurs there."""
    flag = None if ctx is None else ctx.meta.get(AS_JSON)
    if flag is not None:
        return bool(flag)
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return JSON in ours


def print_failure(ctx: click.Context, error: HoldfastError) -> None:
    """Print what went wrong, and names that are like one that is not there."""
    from holdfast.cli.option_words import rephrase_error
    from holdfast.cli.suggestions import format_question, suggest_names

    command = ctx.meta.get(COMMAND)
    like = suggest_names(command) if command and isinstance(error, CheckpointNotFoundError) else []
    message = rephrase_error(error, command)
    if wants_json(ctx, ctx.meta.get(ARGUMENTS, [])):
        print_json_failure(error_kind(error), message, error.exit_code, did_you_mean=like, **error_details(error))
    else:
        asked = format_question(like)
        click.echo(f"holdfast: {escape_lines(message)}" + (f"\n{asked}" if asked else ""), err=True)


def print_json_failure(
    kind: str, message: str, exit_code: int, *, did_you_mean: list[str] | None = None, **details: Any
) -> None:
    fields = {"kind": kind, "message": message, "exit_code": exit_code, "did_you_mean": did_you_mean or [], **details}
    click.echo(json.dumps({"error": fields}, allow_nan=False), err=True)


def print_words(message: str, *, exit_code: int, as_json: bool, kind: str = "error") -> None:
    """Print a failure that has no class of its own."""
    if as_json:
        print_json_failure(kind, message, exit_code)
    else:
        click.echo(f"holdfast: {escape_lines(message)}", err=True)


class JsonFailure(click.ClickException):
    """A usage error or another one of click's, printed as JSON with its own exit code."""

    def __init__(self, error: click.ClickException) -> None:
        super().__init__(error.message)
        self.error = error
        # click reads it from the instance, and declares it in the class.
        self.exit_code = error.exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:  # noqa: ARG002 - click's signature
        like = list(getattr(self.error, "did_you_mean", None) or getattr(self.error, "possibilities", None) or [])
        kind = "usage" if isinstance(self.error, click.UsageError) else "error"
        message = self.error.message if like else self.error.format_message()
        print_json_failure(kind, message, self.exit_code, did_you_mean=like)
