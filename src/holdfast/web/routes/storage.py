"""Disk usage and verification."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from holdfast.json_form.tree import damaged_fields
from holdfast.model.listing import DamagedCheckpoint
from holdfast.operations import disk_usage
from holdfast.operations import verify as verification
from holdfast.web.endpoint import LIMIT, SESSION, Endpoint
from holdfast.web.request import Ask
from holdfast.web.site import Site


def show_usage(site: Site, ask: Ask) -> dict[str, Any]:
    """Show the usage of what can be read, and name what can't."""
    site.forget_states()
    damaged: list[DamagedCheckpoint] = []
    usage = site.run(disk_usage.du(site.client._ctx, ask.query["session"], damaged=damaged))
    stats = site.run(verification.stats(site.client._ctx, []))
    fields, most = asdict(usage), ask.query["limit"]
    return {
        **fields,
        "sessions": fields["sessions"][:most],
        "sessions_total": len(usage.sessions),
        "parts": usage.parts,
        "logical_bytes": stats.logical_bytes,
        "dedup_ratio": round(stats.ratio, 2),
        "damaged": [damaged_fields(checkpoint) for checkpoint in damaged[:most]],
        "damaged_total": len(damaged),
    }


def verify(site: Site, ask: Ask) -> dict[str, Any]:
    report = site.client.verify(ask.query["session"])
    fields, most = asdict(report), ask.query["limit"]
    problems = [
        {
            **asdict(problem),
            "checkpoint_id": problem.checkpoint_id or None,
            "affected": list(problem.affected)[:most],
        }
        for problem in report.problems[:most]
    ]
    return {**fields, "ok": not report.problems, "problems": problems, "problems_total": len(report.problems)}


ROUTES = (
    Endpoint("/du", show_usage, "Disk usage by session and kind.", (SESSION, LIMIT), is_slow=True),
    Endpoint("/verify", verify, "Read everything, and verify its checksums.", (SESSION, LIMIT), is_slow=True),
)
