"""Restores and retention in two steps: a plan to look at, then the plan as it was shown, or nothing."""

from __future__ import annotations

import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from holdfast.errors import UsageError
from holdfast.json_form.operation import report_fields, retention_fields
from holdfast.json_form.values import format_time
from holdfast.model.file_restore_report import RestoreReport
from holdfast.web.answer import RefusedRequest
from holdfast.web.endpoint import DRY_RUN, Endpoint
from holdfast.web.request import Ask, BodyField
from holdfast.web.routes.actions import last_operation, newest
from holdfast.web.site import Site

VALID_SECONDS = 600
MOST_PLANS = 100
LONGEST = 10**9  # seconds of `older_than`


class Plan(NamedTuple):
    kind: str
    shown: str
    expires_at: datetime
    act: Callable[[bool], dict[str, Any]]  # with dry_run


class Plans:
    """The plans of a site that were shown and not yet applied."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    def add(self, kind: str, act: Callable[[bool], dict[str, Any]]) -> dict[str, Any]:
        fields = act(True)
        name = f"p_{secrets.token_hex(12)}"
        expires_at = datetime.now(UTC) + timedelta(seconds=VALID_SECONDS)
        with self._lock:
            self._plans[name] = Plan(kind, json.dumps(fields, sort_keys=True), expires_at, act)
            while len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
        return {"plan": name, "expires_at": format_time(expires_at), **fields}

    def apply(self, kind: str, name: str, *, dry_run: bool) -> dict[str, Any]:
        """Apply a plan if it would still do exactly what was shown."""
        with self._lock:
            plan = self._plans.get(name)
        if plan is None or plan.kind != kind or plan.expires_at < datetime.now(UTC):
            raise RefusedRequest(409, "plan_stale", f"there is no plan {name!r:.60} any more", "Make a new plan")
        fields = plan.act(True)
        if json.dumps(fields, sort_keys=True) != plan.shown:
            raise RefusedRequest(
                409, "plan_stale", "something has changed since the plan was shown, so it was not applied",
                "Make a new plan, and look at what it would do now",
            )  # fmt: skip
        if dry_run:
            return fields
        with self._lock:
            self._plans.pop(name, None)
        return plan.act(False)


_plans: WeakKeyDictionary[Any, Plans] = WeakKeyDictionary()


def plans_of(site: Site) -> Plans:
    return _plans.setdefault(site.client, Plans())


def plan_restore(site: Site, ask: Ask) -> dict[str, Any]:
    body = ask.body
    target, scope = site.client.resolve(body["ref"]), body["scope"] or "files"
    if site.workspace is None and scope != "state":
        raise RefusedRequest(
            409, "no_workspace", "the server was started without a directory, so it restores no files",
            "Start `holdfast ui` in the directory, or with --dir",
        )  # fmt: skip
    for path in body["paths"] or ():
        if path.startswith(("/", "~")) or ".." in path.split("/") or "\0" in path:
            raise UsageError(f"{path!r:.120} is no path within the directory: leave out `/` at the start, and `..`")
    how = {"keep": body["keep"], "force": body["force"], "paths": tuple(body["paths"] or ())}

    def act(dry_run: bool) -> dict[str, Any]:
        if scope == "state":
            session = site.client.get(target).session_id
            moved = site.client.rollback(session, target, by=site.by, dry_run=dry_run)
            report = RestoreReport(dry_run=dry_run, scope=scope, target_id=target, safety_id=None, state=moved)
        else:
            assert site.workspace is not None
            report = site.workspace.restore(target, scope=scope, dry_run=dry_run, **how)
        return report_fields(report)

    return plans_of(site).add("restore", act)


def apply_restore(site: Site, ask: Ask) -> dict[str, Any]:
    before = newest(site, "restore"), newest(site, "rollback")
    fields = plans_of(site).apply("restore", ask.body["plan"], dry_run=ask.body["dry_run"])
    operation = last_operation(site, "restore", before[0]) or last_operation(site, "rollback", before[1])
    return {**fields, "operation": None if ask.body["dry_run"] else operation}


def plan_retention(site: Site, ask: Ask) -> dict[str, Any]:
    body = ask.body
    if body["older_than"] is not None and body["older_than"] > LONGEST:
        raise UsageError(f"older_than is {body['older_than']} seconds: at most {LONGEST} can be said")
    older = None if body["older_than"] is None else timedelta(seconds=body["older_than"])
    rules = {name: body[name] for name in ("keep_last", "keep_every", "max_bytes")}
    if older is None and all(rule is None for rule in rules.values()):
        raise UsageError("say what to keep: keep_last, keep_every, older_than or max_bytes")

    def act(dry_run: bool) -> dict[str, Any]:
        report = site.client.retain(
            **rules, older_than=older, session_id=body["session"], agent_id=body["agent"], dry_run=dry_run
        )
        return retention_fields(report)

    return plans_of(site).add("retain", act)


def apply_retention(site: Site, ask: Ask) -> dict[str, Any]:
    return plans_of(site).apply("retain", ask.body["plan"], dry_run=ask.body["dry_run"])


PLAN = (BodyField("plan", "text", "The plan, as it was named when it was shown.", required=True), DRY_RUN)
ROUTES = (
    Endpoint(
        "/restore/plan",
        plan_restore,
        "Plan a restore of the server's directory, of a session's state, or both.",
        body=(
            BodyField("ref", "text", "A reference to the checkpoint.", required=True),
            BodyField("scope", "choice", "What goes back.", choices=("files", "state", "both")),
            BodyField("keep", "choice", "`user` keeps files that were changed since.", choices=("user",)),
            BodyField("force", "flag", "Overwrite files that were changed since."),
            BodyField("paths", "texts", "Only these files and directories."),
            DRY_RUN,
        ),
    ),
    Endpoint("/restore/apply", apply_restore, "Apply a plan of a restore.", body=PLAN, changes=True),
    Endpoint(
        "/retain/plan",
        plan_retention,
        "Plan what a retention policy removes.",
        body=(
            BodyField("keep_last", "number", "Keep the newest of each session."),
            BodyField("keep_every", "number", "Keep each Nth."),
            BodyField("older_than", "number", "Remove only what is older, in seconds."),
            BodyField("max_bytes", "number", "Remove only as much as needed for this size."),
            BodyField("session", "text", "Only of this session."),
            BodyField("agent", "text", "Only of this agent."),
            DRY_RUN,
        ),
        is_slow=True,
    ),
    Endpoint("/retain/apply", apply_retention, "Apply a plan of a retention policy.", body=PLAN, changes=True),
)
