"""`holdfast convert`: continue a session in another framework; show first what that loses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.conversation import print_conversation
from holdfast.cli.output.json import print_json
from holdfast.cli.output.operation import print_how_to_undo
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape, format_identifier
from holdfast.cli.terminal.table import print_table
from holdfast.client.conversion_targets import TARGETS
from holdfast.json_form.values import to_json
from holdfast.model.loss import Loss, Severity

if TYPE_CHECKING:
    from holdfast.client.resume_plan import SyncResumePlan

POLICIES = ("ledger", "answer", "drop", "raise")  # "execute" needs a program
_ORDER = [Severity.MEANING, Severity.CONTENT, Severity.COSMETIC]


@click.command(short_help="Continue a session in another framework.")
@click.argument("ref")
@click.option("--to", "framework", metavar="FRAMEWORK", required=True, help="Target, such as crewai or openai_chat.")
@click.option("--accept", metavar="KIND", multiple=True, help="Accept losses of this kind; repeatable.")
@click.option("--tool", "tools", metavar="OLD[=NEW]", multiple=True, help="A tool that the target has; repeatable.")
@click.option(
    "--dangling", type=click.Choice(POLICIES), default="ledger", show_default=True, help="What becomes of open calls."
)
@click.option("--carry", metavar="NAME[=NEW]", multiple=True, help="Carry a value of the state over; repeatable.")
@click.option("--at", type=click.Choice(["last_turn"]), help="Leave out a turn that was cut off.")
@click.option(
    "--approvals", type=click.Choice(["reask", "raise"]), default="reask", show_default=True,
    help="What becomes of approvals that wait.",
)  # fmt: skip
@click.option("--while-running", is_flag=True, help="Convert a session that a live process works on.")
@click.option("--messages", "show_messages", is_flag=True, help="Show the conversation as the target has it.")
@click.option("--save", is_flag=True, help="Make the new session; without it, only the plan is shown.")
@click.option("--session", metavar="NAME", help="Name of the new session.  [default: SESSION-FRAMEWORK-N]")
@click.option("--agent", metavar="AGENT", help="Agent that continues.  [default: the source's]")
@common_options
def convert(
    ref: str,
    framework: str,
    accept: tuple[str, ...],
    tools: tuple[str, ...],
    dangling: str,
    carry: tuple[str, ...],
    at: str | None,
    approvals: str,
    while_running: bool,
    show_messages: bool,
    save: bool,
    session: str | None,
    agent: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Continue a session in another framework.

    REF is a checkpoint, as for `holdfast fork`. The plan says what the target can't keep. Nothing is written without
    --save; then a new session begins in the same tree, and the source stays as it is. Losses of severity "meaning" are
    refused unless --accept names their kinds.

    With --tool, the target has these tools only, OLD under the name NEW: calls of others become notes. Without it, the
    target has the source's tools.
    """
    if not save and (session is not None or agent is not None):
        raise click.UsageError("--session and --agent are for the new session: add --save")
    with open_store(store) as client:
        plan = client.resume_as(
            ref,
            framework,
            tools=_pairs(tools) or None,
            dangling=dangling,
            accept=accept,
            carry=_pairs(carry),
            at=at,
            approvals=approvals,
            while_running=while_running,
        )
        name = None
        if save:
            name = plan.save(agent or client.get(plan.source_id).agent_id, session_id=session)
        if as_json:
            print_json(_fields(plan, name))
        else:
            _print_plan(plan, name, show_messages=show_messages)
        if name is not None:
            print_how_to_undo(client, "convert", name)
        elif not as_json:
            click.echo("nothing was saved: add --save to make the new session", err=True)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    """Return `OLD=NEW` as pairs; a name alone stays as it is."""
    split = [text.partition("=") for text in given]
    return {old: new if equals else old for old, equals, new in split}


def _fields(plan: SyncResumePlan, session: str | None) -> dict[str, Any]:
    return {
        "source_id": plan.source_id,
        "framework": plan.framework,
        "session_id": session,
        "losses": [loss.to_json() for loss in plan.losses],
        "messages": [to_json(message.to_json()) for message in plan.messages],
        "instructions": list(plan.instructions),
        "renamed": [{"from": old, "to": new} for old, new in plan.renamed.items()],
        "native_id": plan.native_id,
    }


def _print_plan(plan: SyncResumePlan, session: str | None, *, show_messages: bool) -> None:
    title = TARGETS[plan.framework].title
    click.echo(f"{plan.source_id[-8:]} to {title}: {len(plan.messages)} messages")
    if plan.native_id is not None:
        click.echo(f"continues the state of {title} that {plan.native_id[-8:]} has")
    if plan.losses:
        print_table(["severity", "kind", "count", "first", "what"], list(_rows(plan.losses)), right=["count"])
    else:
        click.echo("nothing is lost")
    if show_messages:
        print_conversation(plan.messages)
    if session is not None:
        click.echo(f"session {format_identifier(session)}")
        click.echo(f"continue: {_next_step(plan.framework, session)}", err=True)


def _rows(losses: Sequence[Loss]) -> list[list[str]]:
    """Return a row for each kind of loss, the most severe first."""
    kinds = sorted(
        {loss.kind: loss for loss in reversed(losses)}.values(), key=lambda loss: _ORDER.index(loss.severity)
    )
    return [
        [str(kind.severity), kind.kind, str(sum(other.kind == kind.kind for other in losses)), escape(kind.path, 40),
         escape(kind.what, 200)]
        for kind in kinds
    ]  # fmt: skip


def _next_step(framework: str, session: str) -> str:
    if framework == "langgraph":
        return f"invoke the graph with the thread {escape(session.removeprefix('lg/'))}"
    if TARGETS[framework].shape is not None:
        return f"holdfast show {format_identifier(session)} --messages"
    return f"holdfast.{framework}.resumable, with the session {format_identifier(session)}"
