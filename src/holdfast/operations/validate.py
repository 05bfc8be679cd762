"""Checks of callers' arguments: a wrong one is refused by name before anything is stored."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.model.framework import Framework
from holdfast.model.lease import LeaseTerms

if TYPE_CHECKING:
    from datetime import timedelta

    from holdfast.backends.port import RowWrite
    from holdfast.format.rows.operation_log import Origin
    from holdfast.format.state.manifest import Path
    from holdfast.format.state.record import StoredRecord
    from holdfast.model.retention import Retention
    from holdfast.model.run_status import RunState
    from holdfast.model.snapshot import Home
    from holdfast.operations.message_write import Consumption, MessageWrite

F = TypeVar("F", bound=Callable[..., Any])

PARAMETERS = frozenset(
    (
        "agent_id", "framework", "execution_state", "session_id", "parent_id", "context", "step_index", "step_name",
        "ttl_seconds", "checkpoint_id", "append", "expect_head", "lease", "tasks", "app_version", "state_version",
        "workspace", "tag", "move_tag", "pin", "publish",
    )
)  # fmt: skip
_TAKEN_FOR_OTHERS = PARAMETERS - {"publish"}  # "published" and "publisher" are usual names of metadata
SHORTENED = {  # common names for a parameter that difflib would not match
    "step": "step_index' or 'step_name", "state": "execution_state", "session": "session_id",
    "parent": "parent_id", "agent": "agent_id", "checkpoint": "checkpoint_id", "ttl": "ttl_seconds",
    "head": "expect_head",
    "pinned": "pin",
}  # fmt: skip
RESERVED = frozenset(
    (
        "tenant", "tenant_id", "key_id", "token", "run_id", "schema", "schema_version", "contract",
        "durability", "created_at", "sequence", "tree_id", "checksum", "handoff_target", "handoff_schema", "metadata",
        "agent_context", "effects", "verify",
    )
)  # fmt: skip
MAX_NAME_BYTES = 64 * 1024
_STATES = (Mapping, list, tuple, set)  # usual types of a state, and never of a name
MAX_STEP = 2**63 - 1  # the largest that the databases accept


@dataclass(slots=True)
class SaveRequest:
    """The checked arguments of a save.

    `append` maps paths to the elements that follow the parent's list there. At the paths in
    `lists_of_parent` the parent must have a list; at the others a new list begins if it has none.
    `created_at_us` is for importers alone: the time at which another program saved it. `extra_rows`
    is for adapters: rows of the tree that are written in the same commit, given the record;
    `depends_on`, the checkpoint whose time to live it extends. `files` are the new parts of the
    snapshot that `workspace` names, `home` its directory. `labels` has the tag and the pin of the
    new checkpoint. `origin` is that of delegated work: session, checkpoint, contract of the answer;
    `answer` says how it ended, and by which contract. `message` has the header fields that make the
    checkpoint a message itself; `publish` the messages in the same commit, and `taken` those that
    it consumes. `encoded` is the encoding of state and context, if the caller has made it
    (`encode_whole`).
    """

    agent_id: str
    session_id: str
    framework: Framework = Framework.CUSTOM
    execution_state: Any = None
    agent_context: Any = None
    parent_id: bytes | None = None
    step_index: int | None = None
    step_name: str | None = None
    ttl_seconds: float | None = None
    metadata: Mapping[str, Any] | None = None
    checkpoint_id: bytes | None = None
    append: Mapping[Path, Sequence[Any]] | None = None
    lists_of_parent: frozenset[Path] = frozenset()
    expect_head: bytes | None = None
    lease: LeaseTerms | None = None
    tasks: Any = None
    workspace: str | None = None
    app_version: str | None = None
    state_version: int | None = None
    handoff_target: str | None = None
    handoff_schema: str | None = None
    origin: tuple[str, bytes | None, str | None] | None = None
    answer: tuple[str, str | None] | None = None
    created_at_us: int | None = None
    depends_on: bytes | None = None
    extra_rows: Callable[[StoredRecord], Sequence[RowWrite]] | None = None
    files: FilesWrite | None = None
    home: Home | None = None
    labels: LabelRequest | None = None
    message: Mapping[str, Any] | None = None
    publish: Sequence[MessageWrite] = ()
    taken: Sequence[Consumption] = ()
    encoded: bytes | None = None


class LabelRequest(NamedTuple):
    """The tag and the pin for a new checkpoint, and the author of the request."""

    tag: str | None
    pin: bool
    move_tag: bool
    origin: Origin


@dataclass(slots=True)
class FilesWrite:
    """The parts of a commit that store a snapshot of a directory with it."""

    blobs: Mapping[bytes, bytes]  # those that were not staged
    held: Sequence[tuple[bytes, bytes]] = ()  # checkpoints that hold the staged parts: required, and removed
    require: Sequence[bytes] = ()  # live checkpoints whose snapshots hold the rest

    def relies_on(self, id_: object) -> bool:
        return id_ in self.require or any(id_ == held for held, _ in self.held)


class FilesLostError(Exception):
    """A signal that the base of a snapshot is gone and it must be taken again. Users never see it."""


def name(parameter: str, value: Any) -> str:
    """Return a name from a caller: any text, and only text."""
    if not isinstance(value, str):
        example = "" if isinstance(value, _STATES) else f", such as {parameter}={str(value)!r:.60}"
        raise UsageError(f"{parameter} is a {type(value).__name__}: it must be a str{example}")
    if len(value) > MAX_NAME_BYTES:
        raise UsageError(f"{parameter} has {len(value)} characters: at most {MAX_NAME_BYTES} are allowed")
    return value if type(value) is str else str(value)


def agent_of_save(value: Any) -> str:
    """Return the first argument of `save`, where a state may be given by mistake."""
    if isinstance(value, _STATES):
        raise UsageError(
            f"agent_id is a {type(value).__name__}: the first argument is the agent's name. Give the state by its own: "
            "save('my-agent', execution_state=...)"
        )
    return name("agent_id", value)


def framework_of_save(value: Any) -> Framework:
    """Return the second argument of `save`, where a state or a session may be given by mistake."""
    if not isinstance(value, str):
        raise UsageError(
            f"the second argument of save is the framework, and it is a {type(value).__name__}. If that is the state, "
            "name it: save('my-agent', execution_state=...)"
        )
    try:
        return Framework.of(value)
    except UsageError as error:
        raise UsageError(f"{error}. If that is the session, name it: save('my-agent', session_id=...)") from None


def new_session_id() -> str:
    import uuid

    return str(uuid.uuid4())


def one_of(parameter: str, value: Any, choices: Sequence[str]) -> str:
    if value not in choices:
        raise UsageError(
            f"{parameter} is {value!r:.60}: it must be one of {', '.join(repr(str(choice)) for choice in choices)}"
        )
    return str(value)


def run_states(given: Any) -> tuple[RunState, ...]:
    """Return the states of runs that are named: one, or several."""
    from holdfast.model.run_status import RunState

    named = (given,) if isinstance(given, str) else tuple(given)
    return tuple(RunState(one_of("status", item, tuple(RunState))) for item in named)


def optional_name(parameter: str, value: Any) -> str | None:
    return None if value is None else name(parameter, value)


def labels(tag_name: Any, *, pin: Any, move_tag: Any, origin: Origin) -> LabelRequest:
    """Return the tag and the pin that `save` asks for."""
    for option, value in (("pin", pin), ("move_tag", move_tag)):
        if type(value) is not bool:
            hint = ". `client.pin(id, note)` pins with a note" if option == "pin" else ""
            raise UsageError(f"{option} is {value!r:.60}: it must be True or False{hint}")
    if move_tag and tag_name is None:
        raise UsageError("move_tag moves the tag that `tag` names: give both")
    return LabelRequest(None if tag_name is None else tag(tag_name, "tag"), pin, move_tag, origin)


def tag(value: Any, parameter: str = "name") -> str:
    """Return a tag's name: text that can't be taken for a checkpoint's id or the end of one."""
    text = name(parameter, value)
    if not text or ids.is_like_id(text):
        raise UsageError(
            f"{text!r:.60} can't be a tag: it must have at least one character, and must not read like the id of a "
            "checkpoint. Take a word, such as 'before-refactoring'"
        )
    return text


def policy(
    given: Any, keep_last: int | None, keep_every: int | None, older_than: timedelta | None, max_bytes: int | None
) -> Retention:
    """Return a policy, given as such or by its rules."""
    from holdfast.model.retention import Retention

    if given is None:
        return Retention(keep_last=keep_last, keep_every=keep_every, older_than=older_than, max_bytes=max_bytes)
    if not isinstance(given, Retention):
        raise UsageError(
            f"policy is a {type(given).__name__}: it must be a Retention, or be given as keyword arguments"
        )
    if (keep_last, keep_every, older_than, max_bytes) != (None, None, None, None):
        raise UsageError("give a policy or its rules, not both")
    return given


def session_first(method: F) -> F:
    """Decorate a method whose only positional argument is the session; others get a helpful error.

    In predecessors the agent came first. Taken for a session, its name would find nothing, without
    an explanation.
    """

    @functools.wraps(method)
    def checked(self: Any, *positional: Any, **keywords: Any) -> Any:
        _refuse_second(method.__name__, positional, keywords)
        return method(self, *positional, **keywords)

    return cast("F", checked)


def session_first_awaited(method: F) -> F:
    """Decorate a coroutine function in the same way; it stays one."""

    @functools.wraps(method)
    async def checked(self: Any, *positional: Any, **keywords: Any) -> Any:
        _refuse_second(method.__name__, positional, keywords)
        return await method(self, *positional, **keywords)

    return cast("F", checked)


def _refuse_second(method: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    if len(positional) + ("session_id" in keywords) > 1 and positional:
        given = f"session_id={keywords['session_id']!r:.60}" if "session_id" in keywords else f"{positional[1]!r:.60}"
        raise UsageError(
            f"{method}({positional[0]!r:.60}, {given}): only the session may be given without its name. Name the rest: "
            f"{method}(session_id=..., agent_id=...)"
        )


def optional_id(value: Any) -> bytes | None:
    return None if value is None else ids.from_text(value)


def ids_of(parameter: str, given: Any) -> frozenset[str]:
    """Return ids in their usual form."""
    if isinstance(given, str):
        raise UsageError(f"{parameter} is a str: it must be a list of ids, such as {parameter}=[{given!r:.60}]")
    return frozenset(
        ids.to_text(ids.from_text(item, "an id", f"{parameter} names what a report lists")) for item in given
    )


def session_under(lease: LeaseTerms | None, session_id: str | None) -> str | None:
    """Return the session to write to: the lease's, if there is one."""
    if lease is None:
        return None if session_id is None else name("session_id", session_id)
    if not isinstance(lease, LeaseTerms):
        raise UsageError(f"lease is a {type(lease).__name__}: it must be what `client.lease(session_id)` gave")
    if session_id not in (None, lease.session_id):
        raise UsageError(f"the lease is for session {lease.session_id!r:.60}, not for {session_id!r:.60}")
    return lease.session_id


def seconds(parameter: str, value: Any, *, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 1e9:
        raise UsageError(f"{parameter} is {value!r}: it must be a number of seconds, at least {least:g}")
    return float(value)


def step(value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise UsageError(f"step_index is {value!r}: it must be a whole number from 0 on. Leave it out to count on")
    if value is not None and value > MAX_STEP:
        raise UsageError(
            f"step_index is {_shorten_number(value)}: it must be at most 2**63 - 1. Leave it out to count on"
        )
    return value


def make_last_step_error() -> UsageError:
    return UsageError(
        "the parent's step_index is 2**63 - 1, the largest that there is, so it can't be counted on from: save with a "
        "step_index"
    )


def _shorten_number(value: int) -> str:
    """Return a number as text that may have more digits than Python converts."""
    return str(value) if value.bit_length() <= 256 else f"a number of {value.bit_length()} bits"


def limit(value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise UsageError(f"limit is {value!r}: it must be a whole number from 0 on, or None for all")
    return value


def state_version(value: Any) -> int | None:
    if value is None:
        return None
    from holdfast.model.state_migration import check_version

    return check_version("state_version", value)


def ttl(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0 or not math.isfinite(value):
        raise UsageError(
            f"ttl_seconds is {value!r}: it must be a positive number of seconds. Leave it out to keep the checkpoint; "
            "use `expire` to end one now"
        )
    if value > 1e11:
        raise UsageError(
            f"ttl_seconds is {value!r}: more than three thousand years. Leave it out to keep the checkpoint"
        )
    return value


def metadata(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return keywords that are no parameters.

    Reserved names, and near misses of a parameter, are refused.
    """
    for keyword in given:
        complaint = _complaint(keyword)
        if complaint:
            raise UsageError(complaint)
    return given


@functools.lru_cache(maxsize=1024)
def _complaint(keyword: str) -> str | None:
    if keyword in RESERVED:
        return f"{keyword!r} is reserved and can't be used as metadata: choose another name, such as 'my_{keyword}'"
    meant = SHORTENED.get(keyword.lower())
    if meant is None:
        import difflib

        [*near] = difflib.get_close_matches(keyword.lower(), _TAKEN_FOR_OTHERS, n=1, cutoff=0.8)
        if not near:
            return None
        meant = near[0]
    return f"unknown keyword {keyword!r}: did you mean '{meant}'? For metadata, choose a name that is less similar"


def append(given: Any) -> tuple[Mapping[Path, Sequence[Any]], frozenset[Path]]:
    """Return the declared appends by path, and the paths of lists that the parent must have.

    Examples: `{"messages": [...]}`; `{"values.messages": [...]}` or `{("values", "messages"):
    [...]}`. The parent must have the lists whose paths have no `+` before them (`{"+messages":
    [...]}`).
    """
    from holdfast.format.state.split import ROOTS

    if not isinstance(given, Mapping):
        raise UsageError("append must map paths to lists of new elements, such as append={'messages': [new]}")
    checked: dict[Path, Sequence[Any]] = {}
    of_parent: set[Path] = set()
    for key, elements in given.items():
        may_be_new = isinstance(key, str) and key.startswith("+") and len(key) > 1
        keys = tuple(key[may_be_new:].split(".")) if isinstance(key, str) else key
        if not isinstance(keys, tuple) or not keys or not all(isinstance(part, str) for part in keys):
            raise UsageError(f"append path {key!r} must be a key, 'a.dotted.path' or a tuple of keys")
        if not isinstance(elements, list | tuple):
            raise UsageError(f"append[{key!r}] is a {type(elements).__name__}: it must be a list of new elements")
        path = (ROOTS[0], *keys)
        if path in checked:
            raise UsageError(f"append names the path {key!r} twice")
        checked[path] = tuple(elements)  # a copy: its length must not change later
        if not may_be_new:
            of_parent.add(path)
    return checked, frozenset(of_parent)
