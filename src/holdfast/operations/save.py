"""save: a new checkpoint becomes the head of its session."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.backends.port import Backend, Commit, CommitConflict, RowKey, Run, RunWrite, Span
from holdfast.errors import ConflictError, CorruptError, NewerStateError, StoreError, UsageError
from holdfast.model import ids
from holdfast.model.migrations import FIRST_VERSION
from holdfast.model.snapshot_reference import is_ours
from holdfast.objects import plan, rows
from holdfast.objects.ahead import Ahead
from holdfast.objects.ledger import LEDGER
from holdfast.objects.manifest import Manifest
from holdfast.objects.record import LIVE, Stored
from holdfast.objects.split import KnownList, Split, whole
from holdfast.operations import appends, reading, state_versions
from holdfast.operations import lease as leasing
from holdfast.operations.arguments import FilesLostError, SaveRequest
from holdfast.operations.child import child, fields_of
from holdfast.operations.memory import Line
from holdfast.operations.services import Services

MAX_ATTEMPTS = 200


async def save(services: Services, request: SaveRequest) -> Stored:
    """Saves, and returns the record. The state is encoded before anything is written: it may be changed at once.

    Another writer may move the head between reading and committing. Then the commit is refused as a whole, the
    checkpoint is linked to the new head, and committed again; with `expect_head`, `ConflictError` is raised instead.
    """
    session = rows.session_key(request.session_id)
    attempt = _Attempt(services, request, session)
    doubted: bytes | None = None  # the checkpoint that could not be followed last time
    for number in range(MAX_ATTEMPTS):
        if request.checkpoint_id is not None:
            known = await reading.find_record(services, request.checkpoint_id)
            if known is not None:
                return await _repeated(services, request, attempt.fields, known)
        # What this process remembers is built upon at once. Who has to look at the store does so in turn, so that of
        # many saves that begin together only the first one has to.
        try:
            remembered = reading.remembered_line(services, session) if number == 0 else None
            if remembered is not None:
                stored, line, outcome = await attempt.commit(remembered)
            else:
                async with services.backend.turn(session):
                    stored, line, outcome = await attempt.meet()
        except (CorruptError, UsageError, NewerStateError):
            tip = attempt.line.tip if attempt.line else None
            if tip is None or tip.id == doubted:
                raise
            # Before damage or a wrong argument is believed: what this process remembers may have been collected, or
            # belong to a commit that is under way or has failed. So the store is asked again where the session stands.
            doubted = tip.id
            services.memory.drop(session)
            continue
        try:
            await outcome
        except CommitConflict as conflict:
            services.memory.drop_failed(session, line)
            if conflict.kind == "run" and isinstance(conflict.detail, int):
                attempt.closed.add(conflict.detail)
            if conflict.kind == "require" and request.files is not None and request.files.relies_on(conflict.detail):
                raise FilesLostError from conflict
            if conflict.kind == "row" and isinstance(conflict.detail, RowKey) and conflict.detail.space == LEDGER:
                raise ConflictError(
                    f"session {request.session_id!r:.60}: an effect whose result would be saved was changed meanwhile. Look at it "
                    "(`holdfast effects`), then go on. Nothing was saved"
                ) from conflict  # as often as it is tried
        except StoreError as error:
            services.memory.drop_failed(session, line)
            error.checkpoint_id = ids.to_text(stored.id)
            raise
        except BaseException:
            services.memory.drop_failed(session, line)
            raise
        else:
            return stored
    raise ConflictError(
        f"session {request.session_id!r:.60} is being written by so many at once that {MAX_ATTEMPTS} attempts to follow "
        "its head were overtaken. Save to sessions of their own, or take turns"
    )


class _Followed(NamedTuple):
    """A commit that was carried out: the record, the line it leads to, and what was wrong with it."""

    stored: Stored
    line: Line
    error: BaseException | None


async def _outcome(error: BaseException | None) -> None:
    if error is not None:
        raise error


class _Attempt:
    """One save, from one attempt to the next: what was encoded, and which logs another branch has gone on in."""

    def __init__(self, services: Services, request: SaveRequest, session: bytes) -> None:
        self.services = services
        self.request = request
        self.session = session
        self.fields = fields_of(services, request)
        self.closed: set[int] = set()
        self.line: Line | None = None
        self._skeleton: bytes | None = None  # of a state that is whole: whatever it follows
        self._split: Split | None = None
        self._base: Line | None = None  # the line that the state was split for

    async def commit(self, line: Line) -> tuple[Stored, Line, Awaitable[None]]:
        """Puts a commit in line that follows the head; the record, the line it leads to, and its outcome to await."""
        services, request = self.services, self.request
        if not _stands_at_parent(services, request, line):
            line = await _at_parent(services, request, self.session)
        self.line = line
        if request.workspace is not None:
            _refuse_foreign_files(request, line)
        state_versions.check_parent(services, request, self.fields.get("sv", FIRST_VERSION), line.tip)
        manifest = self._small(line)
        runs: Sequence[RunWrite] = ()
        blobs: Mapping[bytes, bytes] | None = None
        if manifest is None:
            manifest, runs, blobs = await self._planned(line)
        lease = request.lease
        commit, stored, next_line = child(
            services,
            line,
            line.tip,
            self.fields,
            manifest,
            id_=request.checkpoint_id,
            step_index=request.step_index,
            lease=line.head.lease if lease is not None else None,  # without one: one that is over is cleared away
            claimed=lease.claimed if lease is not None else None,
            runs=runs,
            blobs=blobs,
        )
        if request.beside is not None:
            commit.rows = [*commit.rows, *request.beside(stored)]
        if request.files is not None:
            commit.blobs = {**commit.blobs, **request.files.blobs}
            commit.require = [
                *commit.require,
                *((id_, LIVE) for id_ in (*request.files.require, *(held for held, _ in request.files.held))),
            ]
            commit.delete_records = [*commit.delete_records, *request.files.held]
        if manifest.lists:
            assert self._split is not None
            for image, entry in zip(self._split.lists, manifest.lists, strict=True):
                next_line.lists[entry.path] = KnownList(entry, image.groups, image.chain, image.groups is None)
        services.memory.put(self.session, next_line)
        return stored, next_line, services.backend.commit(commit)

    async def meet(self) -> tuple[Stored, Line, Awaitable[None]]:
        """The same for a session that this process may not remember. Where a thread would look at the store and come back, and
        go again to commit, the state is encoded first, and the thread goes on from what it finds."""
        services, request = self.services, self.request
        line = reading.remembered_line(services, self.session)
        if line is None and self._is_new() and services.backend.is_idle and not services.codec.types.plain:
            ahead = Ahead(services.codec)
            self._encode(ahead)
            if ahead.is_taken:

                async def follow(backend: Backend) -> tuple[Line, _Followed | None]:
                    there = services.over(backend)
                    seen = await reading.standing(there, self.session, request.append or ())
                    if not ahead.follows(seen.known):
                        return seen, None
                    if request.append:
                        await appends.check_parent(there, request, seen)
                    self._take_up(ahead, seen)
                    return seen, await self._follow(there, seen)

                line, followed = await services.backend.together(follow)
                if followed is not None:
                    return followed.stored, followed.line, _outcome(followed.error)
        if line is None:
            line = await reading.standing(services, self.session, request.append or ())
        return await self.commit(line)

    def _is_new(self) -> bool:
        """Whether nothing was encoded yet."""
        return self._split is None and self._skeleton is None

    def _encode(self, ahead: Ahead) -> None:
        request = self.request
        state = request.execution_state, request.agent_context
        if request.append:
            try:
                state = appends.with_appends_to_logs(request)
            except UsageError:  # for the split that knows the parent to say
                return
        ahead.try_to_take(*state)

    def _take_up(self, ahead: Ahead, line: Line) -> None:
        """What was encoded ahead is the state of this attempt."""
        if ahead.lists or ahead.blobs or len(ahead.skeleton) > plan.INLINE_ALONE_BYTES:
            self._split, self._base = ahead, line
        else:
            self._skeleton = ahead.skeleton

    async def _follow(self, services: Services, line: Line) -> _Followed:
        self.services, before = services, self.services
        try:
            stored, next_line, outcome = await self.commit(line)
        finally:
            self.services = before
        try:
            await outcome
        except BaseException as error:
            services.memory.drop_failed(self.session, next_line)
            return _Followed(stored, next_line, error)
        return _Followed(stored, next_line, None)

    def _small(self, line: Line) -> Manifest | None:
        """The manifest of a state that is small and given whole, which takes no reading and no planning; None for others."""
        request = self.request
        if self._skeleton is None and self._split is None and not request.append:
            # A guess: a state is about as large as the one before it, and the first one of a session is small.
            before = line.manifest
            if before is None or not (before.lists or before.blobs):
                self._skeleton = whole(self.services.codec, request.execution_state, request.agent_context)
        return None if self._skeleton is None else plan.of_small(self._skeleton, line.manifest)

    async def _planned(self, line: Line) -> plan.Plan:
        if self._split is None or self._base is None or self._base.tip is not line.tip:
            if self._skeleton is None:
                self._split = await _split(self.services, self.request, line, self._split)
            else:
                self._split = Split(self.services.codec, line.known, self._skeleton)
            self._base = line
        return await _plan(self.services, self._split, line, self.closed)


def _refuse_foreign_files(request: SaveRequest, line: Line) -> None:
    """A snapshot of ours comes with its files, or is the parent's: nothing else says that the store has them."""
    assert request.workspace is not None
    inherited = line.tip.header.get("ws") if line.tip else None
    if request.files is None and is_ours(request.workspace) and request.workspace != inherited:
        raise UsageError(
            f"the checkpoint names a snapshot of files ({request.workspace:.24}…) that its parent does not have: save it with "
            "`workspace=` the directory, or take it to another store by `copy` or `export`"
        )


def _stands_at_parent(services: Services, request: SaveRequest, line: Line) -> bool:
    """Whether the line stands where the caller wants to go on, and may: mostly it does, since nobody asks for more."""
    head, expected, parent, lease = line.head, request.expect_head, request.parent_id, request.lease
    return (
        (expected is None or expected == head.checkpoint)
        and (parent is None or (line.tip is not None and parent == line.tip.id))
        and ((lease is None and head.lease is None) or leasing.allows(services, head, lease))
    )


async def _at_parent(services: Services, request: SaveRequest, session: bytes) -> Line:
    """The line, as the store says, standing at the parent that was asked for."""
    services.memory.drop(session)  # what this process remembers may be old
    line = await reading.current_line(services, session)
    leasing.refuse(services, request.session_id, line.head, request.lease)
    if request.expect_head is not None and request.expect_head != line.head.checkpoint:
        actual = ids.to_text(line.head.checkpoint) if line.head.checkpoint else "nothing"
        raise ConflictError(
            f"session {request.session_id!r:.60} stands at {actual}, not at the expected "
            f"{ids.to_text(request.expect_head)}: another writer was first. Read `latest`, decide, and save again"
        )
    if request.parent_id is None or (line.tip is not None and request.parent_id == line.tip.id):
        return line
    parent = await reading.live_record(services, request.parent_id)
    if line.tree is not None and parent.tree != line.tree:
        raise UsageError(
            f"parent {ids.to_text(parent.id)} belongs to another tree than session {request.session_id!r:.60}. "
            "A session is one line of one tree: use `fork` to go on from there in a new session"
        )
    return Line(
        tree=line.tree,
        version=line.version,
        head=line.head,
        head_value=line.head_value,
        tip=parent,
        manifest=parent.manifest(),
        reading=line.reading,
    )


async def _split(services: Services, request: SaveRequest, line: Line, earlier: Split | None) -> Split:
    if earlier is None:
        state, context = request.execution_state, request.agent_context
        if request.append:
            state, context = await appends.with_appends(services, request, line)
    else:
        # The caller may have changed the state since: what counts is what was encoded at first.
        state, context = await _thawed(services, request, line, earlier)
    return Split(services.codec, line.known).take(state, context)


async def _thawed(services: Services, request: SaveRequest, line: Line, earlier: Split) -> tuple[Any, Any]:
    state, context = earlier.thaw()
    if request.append:
        state, context = await appends.resolved_anew(services, request, line, (state, context))
    return state, context


async def _plan(services: Services, split: Split, line: Line, closed: set[int]) -> plan.Plan:
    stored: dict[Span, Sequence[Run]] = dict(line.at_hand or ())
    spans = [span for span in plan.wanted(split, line.manifest) if span not in stored]
    if spans:
        stored.update(zip(spans, await services.backend.runs(spans), strict=True))
    needed = plan.logs_needed(split, line.manifest, closed)
    numbers = await services.logs.take(services.backend, needed) if needed else []
    try:
        return plan.Planner(stored, numbers.pop, closed).plan(split, line.manifest)
    finally:
        services.logs.give_back(numbers)


async def _repeated(services: Services, request: SaveRequest, fields: dict[str, Any], known: Stored) -> Stored:
    """The same save again, after an unclear failure perhaps: a no-op if it has the same content, else a conflict."""
    same = (
        not known.is_tombstone
        and all(known.header.get(name) == fields.get(name) for name in {*fields, *known.header} - _BESIDE_THE_CONTENT)
        and (request.step_index is None or request.step_index == known.header.get("step", 0))
        and (request.parent_id is None or request.parent_id == known.parent)
        and await _content(services, request, known) == known.root
    )
    if same:
        if not services.backend.capabilities.seen_is_durable:
            await _confirmed(services, known)
        return known
    raise ConflictError(
        f"checkpoint {ids.to_text(known.id)} is there already, with other content. The stored one is untouched: "
        "leave out checkpoint_id to save a new one"
    )


async def _confirmed(services: Services, known: Stored) -> None:
    """Waits until what is there is durable: the first attempt may have failed just because it was not."""
    try:
        await services.backend.commit(Commit(tree=known.tree))
    except StoreError as error:
        error.checkpoint_id = ids.to_text(known.id)
        raise


async def _content(services: Services, request: SaveRequest, known: Stored) -> bytes | None:
    """The root digest that this request would have had in the place of the known checkpoint."""
    state: tuple[Any, Any] | None = (request.execution_state, request.agent_context)
    if request.append:
        stored_state = await reading.load_state(services, known.manifest(), verify=True)
        state = appends.as_stored(services, request, stored_state)
        if state is None:
            return None
    assert state is not None
    split = Split(services.codec, lambda _: None).take(*state)
    return plan.Planner({}, lambda: 0).plan(split, None).manifest.root()


# Not of the content: decided at the commit, and where a directory was, which may have been moved since.
_BESIDE_THE_CONTENT = frozenset(("id", "seq", "at", "tree", "parent", "psum", "step", "dir"))
