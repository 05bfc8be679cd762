"""scan: where stored values are met by redaction rules. Names paths, never values. Only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.codec.redact import Redactor, RuleMatch
from holdfast.codec.secret_types import Redaction
from holdfast.codec.stored_objects import stored_codec
from holdfast.errors import HoldfastError, StoreError
from holdfast.format.rows import head
from holdfast.format.state import assemble, run_journal
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.reports import ScanFinding, ScanReport
from holdfast.operations import ledger, lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.record_pages import PAGE, record_pages

Progress = Callable[[int, int], None]
_UNREADABLE = "unreadable"  # instead of a rule: a damaged part hides what it holds


async def scan(
    ctx: StoreContext,
    redaction: Redaction,
    *,
    session_id: str | None = None,
    every: bool = False,
    progress: Progress | None = None,
) -> ScanReport:
    """Search each session's head or, with `every`, each live checkpoint; and the effects of their trees."""
    only = head.session_key(session_id) if session_id is not None else None
    codec = stored_codec(ctx.codec)
    found: list[ScanFinding] = []
    checked = 0
    trees: set[bytes] = set()
    async for session, stored in _checkpoints(ctx, only) if every else _heads(ctx, only):
        checked += 1
        if isinstance(stored, HoldfastError):
            damage = RuleMatch("checkpoint", _UNREADABLE, type(stored).__name__)
            found.append(_make_finding(head.session_name(session), None, damage))
            continue
        trees.add(stored.tree)
        if progress is not None:
            progress(checked, checked)
        found += [
            _make_finding(stored.session, stored.id, rule_match)
            for rule_match in await _scan_checkpoint(ctx, codec, redaction, stored)
        ]
    for tree in sorted(trees):
        for entry in await ledger.load_entries(ctx, tree):
            parts = {"arguments": entry.arguments, "identity": entry.identified, "result": entry.result}
            matches = [
                rule_match
                for name, data in parts.items()
                if data is not None
                for rule_match in _scan_encoded(codec, redaction, data, name)
            ]
            if entry.error is not None:
                matches += _scan_value(codec, redaction, entry.error, "exception")
            where = f"effect {ids.to_text(entry.id)}"
            found += [_make_finding(entry.session, entry.anchor, rule_match, f"{where}: ") for rule_match in matches]
    return ScanReport(checked=checked, findings=tuple(dict.fromkeys(found)))


def _make_finding(session: str, id_: bytes | None, match: RuleMatch, where: str = "") -> ScanFinding:
    return ScanFinding(
        session_id=session,
        checkpoint_id=ids.to_text(id_) if id_ else "",
        path=where + match.path,
        rule=match.rule,
        type=match.type,
    )


# -- which checkpoints -------------------------------------------------------------------------------------------------


Candidates = AsyncIterator[tuple[bytes, StoredRecord | HoldfastError]]
"""A session, and a live checkpoint of it or what is wrong with it."""


async def _heads(ctx: StoreContext, only: bytes | None) -> Candidates:
    if only is not None:
        async for item in _attempt_read(only, _head(ctx, only)):
            yield item
        return
    after: bytes | None = None
    while page := await ctx.backend.scan(head.HEAD, after=after, limit=PAGE):
        for key, _ in page:
            async for item in _attempt_read(key.key, _head(ctx, key.key)):
                yield item
        after = page[-1][0].key


async def _checkpoints(ctx: StoreContext, only: bytes | None) -> Candidates:
    async for page in record_pages(ctx):
        for found in page:
            if only in (None, found.session):
                async for item in _attempt_read(found.session, lookup.unpack_live(ctx, found)):
                    yield item


async def _head(ctx: StoreContext, session: bytes) -> StoredRecord | None:
    return (await lookup.load_tip(ctx, session)).checkpoint


async def _attempt_read(session: bytes, load: Awaitable[StoredRecord | None]) -> Candidates:
    try:
        stored = await load
    except StoreError:
        raise
    except HoldfastError as error:
        yield session, error
        return
    if stored is not None:
        yield session, stored


# -- one checkpoint ----------------------------------------------------------------------------------------------------


async def _scan_checkpoint(
    ctx: StoreContext, codec: Codec, redaction: Redaction, stored: StoredRecord
) -> list[RuleMatch]:
    found: list[RuleMatch] = []
    for name, key in (("metadata", "meta"), ("tasks", "tasks")):
        if key in stored.header:
            found += _scan_encoded(codec, redaction, stored.header[key], name)
    try:
        parts = await lookup.load_parts(ctx.backend, stored.manifest())
        state, context = assemble.assemble(codec, stored.manifest(), *parts, verify=True)
    except HoldfastError as error:
        return [*found, RuleMatch("execution_state", _UNREADABLE, type(error).__name__)]
    found += _scan_value(codec, redaction, state, "execution_state")
    found += _scan_value(codec, redaction, context, "agent_context")
    for place, payload in _results(context):
        found += _scan_encoded(codec, redaction, payload, "result", f"{run_journal.name_of(place)}: ")
    return found


def _results(context: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the places and encoded results of a run's journal."""
    if isinstance(context, dict) and run_journal.KEY in context:
        _, journal, _ = run_journal.from_context(context, "a checkpoint")
        for record in journal:
            if record.payload:
                yield record.place, record.payload


def _scan_encoded(codec: Codec, redaction: Redaction, data: bytes, path: str, where: str = "") -> list[RuleMatch]:
    try:
        value = codec.decode(data)
    except HoldfastError as error:
        return [RuleMatch(where + path, _UNREADABLE, type(error).__name__)]
    return [
        rule_match._replace(path=where + rule_match.path) for rule_match in _scan_value(codec, redaction, value, path)
    ]


def _scan_value(codec: Codec, redaction: Redaction, value: Any, path: str) -> list[RuleMatch]:
    found: list[RuleMatch] = []
    Redactor(codec, redaction, path, found.append).apply(value)
    return found
