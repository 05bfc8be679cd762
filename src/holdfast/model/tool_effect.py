"""The declaration of a tool's effect on the outside world: `Effect("irreversible", key="id")`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from holdfast.errors import UsageError
from holdfast.model.effect import EffectKind

AGENT = "agent"
"""The kind of a tool that runs an agent: its inner calls are recorded, not the call itself."""
KINDS = (*(str(kind) for kind in EffectKind), AGENT)
_ATTRIBUTE = "__holdfast_effect__"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Effect:
    """What a tool does, and how its calls are told apart.

    `kind` is "read", "idempotent", "reversible", "irreversible", or "agent" for a tool that runs
    another agent. `key` names the argument that identifies a call, or computes the key from the
    arguments. The other options are those of `run.effect`. As a decorator it declares a function:
    `@Effect("read")`.
    """

    kind: str = "irreversible"
    key: str | Callable[..., Any] | None = None
    identity: Sequence[str] | str | None = None
    volatile: Sequence[str] | str = ()
    approve: Any = None
    probe: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    on_repeat: str | None = None
    not_done: Sequence[type[Exception]] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"the kind of an effect is {self.kind!r:.60}: it must be one of {', '.join(KINDS)}")
        if self.kind in (EffectKind.READ, AGENT):
            given = next((name for name in self._options() if name != "key"), None)
            if given is not None:
                raise UsageError(f"a tool of the kind {self.kind!r} has no {given}=: it changes nothing. Leave it out")

    def __call__(self, fn: F) -> F:
        """Declare a function; adapters find the declaration on it."""
        setattr(fn, _ATTRIBUTE, self)
        return fn

    def key_of(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Return the key of a call with these arguments; None if the arguments themselves identify it."""
        if self.key is None:
            return None
        if callable(self.key):
            return str(self.key(**arguments))
        if arguments.get(self.key) is None:
            raise UsageError(
                f"tool {tool!r:.60} is declared with key={self.key!r:.60}, but the call has no such argument. It has "
                f"{', '.join(map(repr, arguments)) or 'none'}. Nothing was carried out"
            )
        return str(arguments[self.key])

    def find_missing(self, arguments: Mapping[str, Any], function: Any, required: Collection[str]) -> str | None:
        """Return the name of a required argument, or of the function's key, that a call lacks."""
        lacking = [name for name in required if name not in arguments]
        if not lacking and isinstance(self.key, str) and arguments.get(self.key) is None:
            with suppress(TypeError, ValueError):  # it is no function, or a built-in one
                lacking = [name for name in inspect.signature(function).parameters if name == self.key]
        return lacking[0] if lacking else None

    def _options(self) -> dict[str, Any]:
        """Return the options that were given."""
        kept = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "kind"}
        return {name: value for name, value in kept.items() if value not in (None, ())}

    def effect_options(self) -> dict[str, Any]:
        """Return the options of `run.effect`, without the key."""
        return {"kind": self.kind, **{name: value for name, value in self._options().items() if name != "key"}}


def declared_effects(tools: Mapping[str, Effect | str] | None) -> dict[str, Effect]:
    """Return the declarations by tool; a kind alone stands for an effect of that kind."""
    if not isinstance(tools or {}, Mapping):
        raise UsageError(
            f"tools is a {type(tools).__name__}: it must map names to effects, such as {{'pay': 'irreversible'}}"
        )
    declared = {}
    for name, given in (tools or {}).items():
        if not isinstance(given, Effect | str):
            raise UsageError(
                f"tool {name!r:.60} is declared as {given!r:.60}: it must be an Effect, or the name of its kind"
            )
        declared[name] = given if isinstance(given, Effect) else Effect(given)
    return declared


def find_declared(fn: Any) -> Effect | None:
    """Return the declaration that `@Effect(...)` left on a function."""
    found = getattr(fn, _ATTRIBUTE, None)
    return found if isinstance(found, Effect) else None
