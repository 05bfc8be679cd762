"""Redaction rules by type, which the encoders apply by themselves, and the set of a client's rules.

Rules by type cost nothing: an encoder asks for the rule of a class only for objects that no encoding
of plain data takes. The other kinds of rules are in `redaction_rules.py`, which few programs load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

from holdfast.codec.redacted import RedactedValue, full_name
from holdfast.codec.unsupported import Refusal

if TYPE_CHECKING:
    from holdfast.codec.redaction_rules import CallableRule, PathMatcher, PathRule, PatternRule, Redact

Action = Literal["drop", "refuse"]
MAX_LABEL = 200


class RedactionRule:
    """A rule for values that are left out.

    `label` names it in references, errors and reports; `name` says where the program has the value.
    """

    __slots__ = ("action", "label", "name")
    kind = ""

    def __init__(self, label: str, name: str | None = None, action: Action = "drop") -> None:
        self.label = label
        self.name = name
        self.action = action

    def reference(self, value: Any) -> RedactedValue:
        """Return what is stored for a value that this rule meets."""
        cls = getattr(type(value), "STANDS_FOR", type(value))
        return RedactedValue(full_name(cls)[:MAX_LABEL], self.label, self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label!r} {self.action}>"


class TypeRule(RedactionRule):
    """Meets objects of these classes and of their subclasses; a class may be given by its full name."""

    __slots__ = ("classes", "gives_way", "names")
    kind = "type"

    def __init__(
        self,
        label: str,
        name: str | None = None,
        action: Action = "drop",
        *,
        classes: Sequence[type[Any]] = (),
        names: Sequence[str] = (),
        gives_way: bool = False,
    ) -> None:
        super().__init__(label, name, action)
        self.classes = frozenset(classes)
        self.names = frozenset(names)
        self.gives_way = gives_way  # to a class that the program has registered

    def is_met_by(self, cls: type[Any]) -> bool:
        return any(base in self.classes or full_name(base) in self.names for base in cls.__mro__)


SECRET_TYPES: Final = (
    "pydantic.types.SecretStr",
    "pydantic.types.SecretBytes",
    "pydantic.types.Secret",
    "pydantic.v1.types.SecretStr",
    "pydantic.v1.types.SecretBytes",
)
DEFAULT_RULES: Final = tuple(TypeRule(f"type {name}", names=(name,), gives_way=True) for name in SECRET_TYPES)
"""Always on, unless a client is opened with `redact=False`. They give way to a class's registration."""


class Redaction:
    """The rules of a client."""

    def __init__(self, rules: Sequence[RedactionRule]) -> None:
        self.rules = tuple(rules)
        self.by_type: tuple[TypeRule, ...] = self._select("type")
        self.by_path: tuple[PathRule, ...] = self._select("path")
        self.by_pattern: tuple[PatternRule, ...] = self._select("pattern")
        self.by_callable: tuple[CallableRule, ...] = self._select("function")
        self._matcher: PathMatcher | None = None

    def _select(self, kind: str) -> Any:
        return tuple(rule for rule in self.rules if rule.kind == kind)

    @property
    def walks(self) -> bool:
        """Return whether there are rules that an encoder can't apply by itself."""
        return len(self.by_type) < len(self.rules)

    @property
    def matcher(self) -> PathMatcher:
        """Return what matches the rules by path."""
        if self._matcher is None:
            from holdfast.codec.redaction_rules import PathMatcher

            self._matcher = PathMatcher(self.by_path)
        return self._matcher

    def only_types(self) -> Redaction:
        return Redaction(self.by_type)


_DEFAULT = Redaction(DEFAULT_RULES)


def redaction_of(given: Redact) -> Redaction | None:
    """Return the rules of `redact=`, with the default ones after them; None for False."""
    if given is False:
        return None
    if given == ():
        return _DEFAULT
    from holdfast.codec.redaction_rules import rules_of

    return Redaction((*rules_of(given), *DEFAULT_RULES))


class SecretTypes(WeakKeyDictionary[type[Any], TypeRule | None]):
    """By class, the rule that leaves its objects out; looked up once for each class, and holding none."""

    def __init__(self, redaction: Redaction | None) -> None:
        super().__init__()
        self._rules = () if redaction is None else redaction.by_type

    def __getitem__(self, cls: type[Any]) -> TypeRule | None:
        try:
            return super().__getitem__(cls)
        except KeyError:
            rule = next((rule for rule in self._rules if rule.is_met_by(cls)), None)
            self[cls] = rule
            return rule

    def rule(self, cls: type[Any], by_class: Mapping[type[Any], Any]) -> TypeRule | None:
        """Return the rule for a class, unless it gives way to the class's registration."""
        rule = self[cls]
        return None if rule is None or (rule.gives_way and by_class.get(cls) is not None) else rule


def refusal_of(rule: RedactionRule) -> Refusal:
    return Refusal(
        f"the redaction rule {rule.label!r} refuses this value",
        "Leave it out of what is saved, and set it again after a restore",
    )
