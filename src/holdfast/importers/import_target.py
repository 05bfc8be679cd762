"""The store that is imported to: saves under ids derived from the source, and builds the report.

Importing again does nothing, since the ids are the same. A session that has continued here since is
never moved back: its new rows are left out, and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.errors import HoldfastError, StoreError
from holdfast.format.rows import head
from holdfast.format.state.record import StoredRecord
from holdfast.format.state.split import Split
from holdfast.model import ids
from holdfast.model.reports import ImportedReport, ImportRemark
from holdfast.operations import lookup, rollback
from holdfast.operations import save as saving
from holdfast.operations.context import StoreContext
from holdfast.operations.new_checkpoint import header_fields
from holdfast.operations.repeat_save import content_root
from holdfast.operations.validate import SaveRequest


class ImportTarget:
    """The target of an import; `may_follow` says whether a session's head came from this source."""

    def __init__(self, ctx: StoreContext, *, dry_run: bool, may_follow: Callable[[StoredRecord], bool]) -> None:
        self._ctx = ctx
        self._dry_run = dry_run
        self._may_follow = may_follow
        self._closed: dict[str, str | None] = {}  # by session: why nothing new may be saved to it
        self._heads: dict[str, bytes] = {}  # the last saved checkpoint of each session
        self._imported = self._already = self._recovered = 0
        self.expired = 0
        self._skipped: list[ImportRemark] = []
        self._warnings: list[ImportRemark] = []

    def skip(self, where: str, checkpoint_id: str | None, reason: str) -> None:
        self._skipped.append(ImportRemark(where=where, checkpoint_id=checkpoint_id, message=reason))

    def warn(self, where: str, checkpoint_id: str | None, message: str) -> None:
        self._warnings.append(ImportRemark(where=where, checkpoint_id=checkpoint_id, message=message))

    def now_us(self) -> int:
        return self._ctx.now_us()

    async def put(
        self,
        request: SaveRequest,
        where: str,
        their_id: str | None,
        *,
        remarks: Iterable[str] = (),
        recovered: bool = False,
    ) -> bool:
        """Save the checkpoint, unless it is here already; return whether others can follow it now.

        They can't if it was skipped, which is reported, or was imported before and has expired
        since. If the checkpoint is saved, `remarks` become warnings.
        """
        assert request.checkpoint_id is not None
        try:
            known = await lookup.find_record(self._ctx, request.checkpoint_id)
            if known is not None:
                return await self._is_same(request, known, where, their_id)
            closed = await self._why_closed(request.session_id)
            if closed is not None:
                self.skip(where, their_id, closed)
                return False
            if self._dry_run:
                self._check(request)
            else:
                await saving.save(self._ctx, request)
        except StoreError:
            raise  # the store is full, gone or locked: the next row would fail, too
        except HoldfastError as error:
            self.skip(where, their_id, str(error))
            return False
        for remark in remarks:
            self.warn(where, their_id, remark)
        self._imported += 1
        self._recovered += recovered
        self._heads[request.session_id] = request.checkpoint_id
        return True

    async def stand_at(self, session_id: str, newest: bytes) -> None:
        """Move the head of a session that was saved to, if its last save is not its newest checkpoint."""
        last = self._heads.get(session_id)
        if last is None or last == newest or self._dry_run:
            return
        try:
            await rollback.rollback(self._ctx, session_id, newest, expect_head=last)
        except StoreError:
            raise
        except HoldfastError as error:  # another writer is active in it
            self.warn(
                f"session {session_id!r:.60}", None, f"it stands at an older checkpoint than it did there: {error}"
            )

    def report(self, source: str) -> ImportedReport:
        return ImportedReport(
            source=source,
            dry_run=self._dry_run,
            imported=self._imported,
            already=self._already,
            recovered=self._recovered,
            expired=self.expired,
            sessions=tuple(self._heads),
            skipped=tuple(self._skipped),
            warnings=tuple(self._warnings),
        )

    async def _is_same(self, request: SaveRequest, known: StoredRecord, where: str, their_id: str | None) -> bool:
        if known.is_tombstone:
            self._already += 1
            return False
        # Its place may differ from the one we would choose today (a parent has expired since): its content
        # may not.
        root = await content_root(self._ctx, request, known)
        if known.session == request.session_id and root == known.root:
            self._already += 1
            return True
        self.skip(where, their_id, f"checkpoint {ids.to_text(known.id)} is here already, with other content")
        return False

    async def _why_closed(self, session_id: str) -> str | None:
        if session_id not in self._closed:
            line = await lookup.load_tip(self._ctx, head.session_key(session_id))
            self._closed[session_id] = (
                None
                if line.checkpoint is None or self._may_follow(line.checkpoint)
                else f"session {session_id!r:.60} is in this store already and stands at "
                f"{ids.to_text(line.checkpoint.id)}, which "
                "was not imported from here: to append older checkpoints would take it back. Import to another store"
            )
        return self._closed[session_id]

    def _check(self, request: SaveRequest) -> None:
        """Raise the errors that saving would raise about the values."""
        header_fields(self._ctx, request)
        Split(self._ctx.codec, lambda _: None).take(request.execution_state, request.agent_context)
