"""What people and programs are told about a restore of files."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.printable import printable
from holdfast.model.restore_plan import Action
from holdfast.model.restore_report import RestoreReport

SHOWN = 40
FLAGS = {
    "escapes": "is a link that leads out of the directory, to",
    "case": "differs only in case from",
    "unicode": "differs only in how its letters are put together from",
    "reserved": "is no name that Windows has",
    "long": "is longer than Windows takes",
}


def path_text(path: bytes) -> str:
    """A path for people: bytes that are no UTF-8 as escapes."""
    return printable(path.decode("utf-8", "backslashreplace"))


def report_fields(report: RestoreReport) -> dict[str, Any]:
    """docs/json-output.md documents them."""
    return {
        "dry_run": report.dry_run,
        "scope": report.scope,
        "target_id": report.target_id,
        "safety_id": report.safety_id,
        "actions": [
            {"action": action.doing, **_kinds(action), "path": _json(action.path)} for action in report.actions
        ],
        "conflicts": [_json(path) for path in report.conflicts],
        "overwritten": [_json(path) for path in report.overwritten],
        "left": [{"path": _json(one.path), "reason": one.reason} for one in report.left],
        "flags": [{"kind": one.kind, "path": _json(one.path), "other": _json(one.other)} for one in report.flags],
        "skipped": [{"path": _json(one.path), "reason": one.reason} for one in report.skipped],
        "excluded": report.excluded,
        "state": None
        if report.state is None
        else {"session_id": report.state.session_id, "from_id": report.state.from_id, "to_id": report.state.to_id},
    }


def say_report(report: RestoreReport) -> None:
    """What is or was to be done, line by line, and what was left."""
    for action in report.actions[:SHOWN]:
        click.echo(f"  {_word(action)}  {path_text(action.path)}", err=True)
    _more(len(report.actions))
    for path in report.conflicts[:SHOWN]:
        click.echo(f"  changed since the last snapshot: {path_text(path)}", err=True)
    for one in report.left[:SHOWN]:
        click.echo(f"  left: {path_text(one.path)} ({printable(one.reason)})", err=True)
    _more(len(report.left), "left")
    for flag in report.flags[:SHOWN]:
        other = f" {path_text(flag.other)}" if flag.other else ""
        click.echo(f"  note: {path_text(flag.path)} {FLAGS[flag.kind]}{other}", err=True)
    for skipped in report.skipped[:SHOWN]:
        click.echo(f"  not in the snapshot: {path_text(skipped.path)} ({printable(skipped.reason)})", err=True)
    if report.state is not None:
        for effect in (*report.state.effects, *report.state.unknown):
            click.echo(f"  stays done, or may: {printable(str(effect.tool), 60)} ({effect.effect_id})", err=True)
        for handed in report.state.consumers:
            click.echo(f"  another agent has gone on from {handed.checkpoint.checkpoint_id}", err=True)
    if report.excluded:
        paths = "1 path is" if report.excluded == 1 else f"{report.excluded} paths are"
        click.echo(f"  {paths} excluded by rules: neither written nor deleted", err=True)


def summary(report: RestoreReport) -> str:
    """One line: how much of what."""
    counts = {word: sum(_word(action).strip() == word for action in report.actions) for word in ("+", "-", "~", "m")}
    words = {"+": "made", "-": "deleted", "~": "replaced", "m": "given another mode"}
    parts = [f"{count} {words[sign]}" for sign, count in counts.items() if count]
    if report.state is not None:
        parts.append(f"session at {report.state.to_id[-8:]}")
    if not parts and report.left:
        return "nothing to do: what is not as in the checkpoint is left as it is"
    return ", ".join(parts) or "nothing to do: everything is as in the checkpoint"


def _kinds(action: Action) -> dict[str, str | None]:
    return {
        "before": None if action.before is None else action.before.kind,
        "after": None if action.after is None else action.after.kind,
    }


def _word(action: Action) -> str:
    return {"create": "+", "delete": "-", "replace": "~", "chmod": "m"}[action.doing]


def _more(count: int, word: str = "") -> None:
    if count > SHOWN:
        click.echo(f"  … and {count - SHOWN} more{f' {word}' if word else ''}", err=True)


def _json(path: bytes) -> str:
    """As Python decodes names: what is no UTF-8 is a lone surrogate, which JSON can say."""
    return path.decode("utf-8", "surrogateescape")
