"""Runs, effects, approvals, handoffs, teams and operations."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from holdfast.errors import CheckpointNotFoundError, HoldfastError, UsageError
from holdfast.format.rows import inbox as entries
from holdfast.json_form.ledger import approval_fields
from holdfast.json_form.operation import operation_fields
from holdfast.json_form.run import run_fields
from holdfast.json_form.team import handoff_fields, team_fields
from holdfast.model import ids
from holdfast.model.approval import Approval
from holdfast.model.effect import EffectRecord, EffectState
from holdfast.model.handoff import Handoff
from holdfast.model.run_status import RunState, RunStatus
from holdfast.web.cut import CutLimits, cut
from holdfast.web.endpoint import AFTER, LIMIT, OFFSET, SESSION, Endpoint, page
from holdfast.web.request import Ask, Parameter
from holdfast.web.routes.checkpoints import shown_effect
from holdfast.web.routes.sessions import shown_checkpoint
from holdfast.web.site import Site

RUN_STATES = tuple(str(state) for state in RunState)
STATES = ("in_doubt", *(str(state) for state in EffectState))
CALL = CutLimits(depth=8, items=200, text=20_000, values=2000, characters=200_000)
"""The arguments of a call that a person decides about are shown as whole as can be."""


def shown_run(run: RunStatus) -> dict[str, Any]:
    """Return the fields of a run, with its result cut."""
    fields = run_fields(replace(run, head=None, result=None))
    return {**fields, "result": cut(run.result, CALL), "head": shown_checkpoint(run.head) if run.head else None}


def shown_approval(approval: Approval) -> dict[str, Any]:
    """Return the fields of an approval, with its values cut."""
    call = approval.call
    fields = approval_fields(replace(approval, call=replace(call, arguments={}, identity={}), decision=None))
    decision = approval.decision
    if decision is not None:
        shown = approval_fields(replace(approval, decision=replace(decision, arguments=None)))["decision"]
        changed = None if decision.arguments is None else cut(dict(decision.arguments), CALL)
        fields["decision"] = {**shown, "arguments": changed}
    return {**fields, "arguments": cut(dict(call.arguments), CALL), "identity": cut(dict(call.identity), CALL)}


def shown_handoff(handoff: Handoff) -> dict[str, Any]:
    return {**handoff_fields(handoff), "checkpoint": shown_checkpoint(handoff.checkpoint)}


def list_runs(site: Site, ask: Ask) -> dict[str, Any]:
    every, status = site.client.runs(), ask.query["status"]
    counts = Counter(str(run_status.status) for run_status in every)
    found = [run_status for run_status in every if status in (None, str(run_status.status))]
    rows = page("runs", found, ask.query["limit"], str(ask.query["offset"]), counts=dict(counts))
    return {**rows, "runs": [shown_run(run) for run in rows["runs"]]}


def list_effects(site: Site, ask: Ask) -> dict[str, Any]:
    state = ask.query["state"]
    damaged: list[str] = []
    every = site.effects(damaged, ask.query["session"])
    counts = Counter(str(record.state) for record in every)
    counts["in_doubt"] = sum(record.is_in_doubt for record in every)
    found = [
        record for record in every if state in (None, str(record.state)) or (state == "in_doubt" and record.is_in_doubt)
    ]
    if state is None:
        found.sort(key=lambda record: not record.is_in_doubt)
    rows = page("effects", found, ask.query["limit"], ask.query["after"], counts=dict(counts), damaged=damaged)
    return {**rows, "effects": [shown_effect(effect) for effect in rows["effects"]]}


def find_effect(site: Site, ref: str) -> EffectRecord:
    found: EffectRecord = _find(site.effects([]), "effect_id", ref, "effect")
    return found


def find_approval(site: Site, ref: str) -> Approval:
    found: Approval = _find(site.client.approvals(pending=False), "approval_id", ref, "approval")
    return found


def _find(rows: list[Any], name: str, ref: str, kind: str) -> Any:
    digits = ref.replace("-", "").lower()
    found = [row for row in rows if getattr(row, name).replace("-", "").endswith(digits)] if ids.is_like_id(ref) else []
    if len(found) > 1:
        raise UsageError(f"{ref!r:.60} is the end of more than one id. Give more digits, or the whole id")
    if not found:
        raise CheckpointNotFoundError(f"there is no {kind} {ref!r:.60} here. /api/v1/{kind}s lists them")
    return found[0]


def show_effect(site: Site, ask: Ask) -> dict[str, Any]:
    return shown_effect(find_effect(site, ask.path["effect"]))


def list_approvals(site: Site, ask: Ask) -> dict[str, Any]:
    is_pending = ask.query["state"] == "pending"
    found = site.client.approvals(ask.query["session"], pending=is_pending)
    found = found if is_pending else found[::-1]
    rows = page("approvals", found, ask.query["limit"], ask.query["after"])
    return {**rows, "approvals": [shown_approval(approval) for approval in rows["approvals"]]}


def show_approval(site: Site, ask: Ask) -> dict[str, Any]:
    return shown_approval(find_approval(site, ask.path["approval"]))


def list_agents(site: Site) -> list[str]:
    """Return the agents that have an inbox, by name."""
    agents: set[str] = set()
    for key, _ in site.run(site.client._ctx.backend.scan(entries.INBOX)):
        size = int.from_bytes(key.key[:4], "big")
        agents.add(key.key[4 : 4 + size].decode("utf-8", "surrogatepass"))
    return sorted(agents)


def list_inbox(site: Site, ask: Ask) -> dict[str, Any]:
    agents, agent = list_agents(site), ask.query["agent"]
    found: list[Handoff] = []
    for name in agents if agent is None else [agent]:
        found += site.client.inbox(name, include_claimed=ask.query["all"])
    found.sort(key=lambda handoff: handoff.offered_at)
    rows = page("handoffs", found, ask.query["limit"], ask.query["after"], agents=agents)
    return {**rows, "handoffs": [shown_handoff(handoff) for handoff in rows["handoffs"]]}


def show_team(site: Site, ask: Ask) -> dict[str, Any]:
    fields = team_fields(site.client.team(ask.path["session"]))
    for member in fields["members"]:
        member["handoffs"] = [cut(handoff, CALL) for handoff in member["handoffs"]]
    return fields


def list_operations(site: Site, ask: Ask) -> dict[str, Any]:
    damaged: list[str] = []
    found = site.operations(damaged, ask.query["session"])
    rows = page("operations", found, ask.query["limit"], ask.query["after"], damaged=damaged)
    return {**rows, "operations": [operation_fields(operation) for operation in rows["operations"]]}


def show_status(site: Site, _ask: Ask) -> dict[str, Any]:
    from holdfast import __version__
    from holdfast.json_form.values import format_time

    found = site.client.overview()
    cursor = None
    try:
        cursor = site.client.cursor()
    except HoldfastError:
        cursor = None  # the newest record is damaged
    return {
        "store": site.store,
        "found_by": site.found_by,
        "backend": found.backend,
        "durability": found.durability,
        "stored_bytes": found.stored_bytes,
        "sessions": found.sessions,
        "saves": found.saves,
        "approvals": found.approvals,
        "alive": [shown_run(run_status) for run_status in found.alive],
        "version": __version__,
        "writable": site.read_only_because is None,
        "read_only_because": site.read_only_because,
        "source": site.source,
        "cursor": cursor,
        "user": site.by,
        "workspace": None if site.workspace is None else str(site.workspace.path),
        "started": format_time(site.started),
    }


ROUTES = (
    Endpoint("/status", show_status, "The store at a glance, and what may be done here."),
    Endpoint(
        "/runs",
        list_runs,
        "List runs, with the number of each status.",
        (Parameter("status", "choice", "Only with this status.", choices=RUN_STATES), OFFSET, LIMIT),
    ),
    Endpoint(
        "/effects",
        list_effects,
        "List effects, those with unknown outcome first.",
        (SESSION, Parameter("state", "choice", "Only in this state.", choices=STATES), AFTER, LIMIT),
    ),
    Endpoint("/effects/{effect}", show_effect, "Show an effect."),
    Endpoint(
        "/approvals",
        list_approvals,
        "List approvals: pending ones, oldest first, or all, newest first.",
        (
            SESSION,
            Parameter("state", "choice", "Which.", default="pending", choices=("pending", "all")),
            AFTER,
            LIMIT,
        ),
    ),
    Endpoint("/approvals/{approval}", show_approval, "Show an approval."),
    Endpoint(
        "/inbox",
        list_inbox,
        "List handoffs, oldest first.",
        (
            Parameter("agent", "text", "Only to this agent."),
            Parameter("all", "flag", "With claimed and ended ones.", default=False),
            AFTER,
            LIMIT,
        ),
    ),
    Endpoint("/team/{session}", show_team, "Who works on what a session delegated."),
    Endpoint("/operations", list_operations, "List operations, newest first.", (SESSION, AFTER, LIMIT)),
)
