"""Named functions of runs: what a process can start by name, and what its workers carry out."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.coordination import contract_use
from holdfast.coordination.contract import Contract
from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.model.run_policy import Retry
from holdfast.operations import validate
from holdfast.operations.context import StoreContext
from holdfast.operations.take import RunLimit
from holdfast.runs import options as arguments
from holdfast.runs.engine import RunOptions

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_RETRY = Retry(attempts=5, seconds=1.0, factor=3.0, most_seconds=300.0)
OPTIONS = (
    "agent_id", "framework", "state", "context", "app_version", "state_version", "autosave", "on_save_error", "policy",
    "approval_seconds",
)  # fmt: skip
"""What `client.run` takes, and a runnable as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable(Generic[F]):
    """A named function: its version, the versions whose runs it continues, and how its runs go."""

    name: str
    function: F
    version: str
    resumes: tuple[str, ...]
    retry: Retry
    timeout: float | None
    contract: Contract[Any] | None
    turns: bool
    options: Mapping[str, Any]

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(
            getattr(self.function, "__call__", None)  # noqa: B004 - an object with an awaited __call__
        )

    @property
    def agent_id(self) -> str:
        return str(self.options.get("agent_id", "agent"))

    def can_continue(self, version: str) -> bool:
        return version in ("", self.version, *self.resumes)


class Runnables:
    """A registry of named functions. Several versions of one may be in it."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Runnable[Any]]] = {}

    def add(self, item: Runnable[Any]) -> None:
        known = self._found.setdefault(item.name, {})
        before = known.get(item.version)
        if before is not None and _origin(before.function) != _origin(item.function):
            raise UsageError(
                f"{item.name!r:.60} is the name of {_origin(before.function)} already, in the same version: give one "
                "of them another name or version"
            )
        known[item.version] = item

    def find(self, name: str, version: str) -> Runnable[Any] | None:
        """Return the function that continues a run of that version; the newest that was registered."""
        known = self._found.get(name, {})
        if version in known:
            return known[version]
        return next((item for item in reversed(known.values()) if item.can_continue(version)), None)

    def newest(self, name: str) -> Runnable[Any] | None:
        return next(reversed(self._found.get(name, {}).values()), None)

    def find_limit(self, name: str, version: str) -> RunLimit | None:
        item = self.find(name, version)
        return None if item is None else RunLimit(item.version, item.retry.attempts)

    def names(self) -> list[str]:
        return sorted(self._found)


def _origin(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(function))}"


DECLARED = Runnables()
"""The functions that `runnable` has named in this process."""


def runnable(
    name: str,
    *,
    version: str | int = "",
    resumes: Sequence[str | int] = (),
    retry: Retry | int | None = None,
    timeout: float | None = None,
    contract: Contract[Any] | None = None,
    turns: bool = False,
    registry: Runnables | None = None,
    **options: Any,
) -> Callable[[F], F]:
    """Names a function, so that `client.start` can record runs of it, and workers carry them out.

    The function, sync or async, takes the run and the arguments of `start`; what it returns is the
    run's result. `version` tells two versions of the code apart: a run stays with workers that have
    its version, or name it in `resumes`. A life that raises is followed by another one, by `retry`:
    a number of attempts, or a `Retry`. A run that takes longer than `timeout` seconds since its
    start fails. With a `contract`, the function takes one argument of that kind. With `turns`, a run
    is a turn of its session: once it has completed, `start` with other arguments begins the next.
    Other options are those of `client.run`: `agent_id`, `state`, `policy` and others.
    """
    if callable(name):
        raise UsageError('a runnable has a name: @holdfast.runnable("orders.fulfil")')
    unknown = next((option for option in options if option not in OPTIONS), None)
    if unknown is not None:
        raise UsageError(f"runnable has no option {unknown!r:.60}: beside its own it takes {', '.join(OPTIONS)}")
    run_options("", options, validate.name("agent_id", options.get("agent_id", "agent")))
    if isinstance(resumes, str | int):
        raise UsageError(f"resumes is {resumes!r:.60}: it must be a list of versions")
    if contract is not None and not isinstance(contract, Contract):
        raise UsageError(f"contract is {contract!r:.60}: it must be what `contract(...)` has returned")
    chosen = Retry(attempts=retry) if isinstance(retry, int) and not isinstance(retry, bool) else retry
    if chosen is not None and not isinstance(chosen, Retry):
        raise UsageError(f"retry is {retry!r:.60}: it must be a Retry, or how often the run is tried")
    made: dict[str, Any] = {
        "name": validate.name("name", name),
        "version": version_text("version", version),
        "resumes": tuple(version_text("resumes", resume) for resume in resumes),
        "retry": DEFAULT_RETRY if chosen is None else chosen,
        "timeout": None if timeout is None else validate.seconds("timeout", timeout, least=0.001),
        "contract": contract,
        "turns": turns,
        "options": options,
    }

    def declare(function: F) -> F:
        if not callable(function):
            raise UsageError(f"{function!r:.60} can't be called: name a function that takes a run")
        (DECLARED if registry is None else registry).add(Runnable(function=function, **made))
        return function

    return declare


def version_text(parameter: str, version: Any) -> str:
    """Return a version, given as a text or a whole number."""
    if isinstance(version, bool) or not isinstance(version, str | int):
        raise UsageError(f"{parameter} is {version!r:.60}: it must be a text or a whole number")
    return validate.name(parameter, str(version))


def run_options(session_id: str, given: Mapping[str, Any], agent_id: str) -> RunOptions:
    """Return the options of a run, of those that its runnable was given.

    Runs may change their state and context, so each gets a copy.
    """
    chosen: dict[str, Any] = dict.fromkeys(OPTIONS)
    chosen |= {"framework": "custom", "autosave": "step", "on_save_error": "raise"}
    chosen |= {**given, "agent_id": agent_id}
    return arguments.options(
        session_id, agent_id, chosen["framework"], copy.deepcopy(chosen["state"]), copy.deepcopy(chosen["context"]),
        None, chosen["app_version"], chosen["state_version"], chosen["autosave"], chosen["on_save_error"],
        chosen["policy"], 0.0, chosen["approval_seconds"],
    )  # fmt: skip


async def encode_arguments(
    ctx: StoreContext, known: Runnable[Any] | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bytes:
    """Return the arguments of a call, encoded; checked by the function's contract, if it has one."""
    label: str | None = None
    given: list[Any] = list(args)
    if known is not None and known.contract is not None:
        if len(given) != 1 or kwargs:
            label = known.contract.label
            raise UsageError(f"{known.name!r:.60} has a contract: start it with one argument, of {label}")
        plain, label = await contract_use.encode_answer(ctx, given[0], None, known.contract)
        given = [plain]
    named = {name: kwargs[name] for name in sorted(kwargs)}  # their order tells no two starts apart
    return ctx.codec.encode([given, named, label], "arguments")


def new_session(ctx: StoreContext) -> str:
    return ids.to_text(ctx.new_id(None))
