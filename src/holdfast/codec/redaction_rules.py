"""Redaction rules: which values are left out when a state is saved.

A rule names values by their type, by their path, by a regular expression over texts, or by a
function. What the first rule that meets a value says happens to it: the value is dropped, and a
`RedactedValue` reference is stored for it, or the save is refused.

What a rule by type or by path names never reaches the store. Rules by pattern and by function are
best effort: a secret in parts, or in another encoding, is not found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from holdfast.codec.builtin_types import BUILTIN_TYPES
from holdfast.codec.redacted import full_name
from holdfast.codec.secret_types import MAX_LABEL, Action, RedactionRule, TypeRule
from holdfast.errors import UsageError

Step = str | int

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_ANY_NUMBER, _ANY_STEP = "**", "*"


class PathRule(RedactionRule):
    """Meets values at a path."""

    __slots__ = ("steps",)
    kind = "path"

    def __init__(self, label: str, name: str | None, action: Action, steps: tuple[str, ...]) -> None:
        super().__init__(label, name, action)
        self.steps = steps


class PatternRule(RedactionRule):
    """Meets texts, and bytes, in which a regular expression is found."""

    __slots__ = ("contains", "regex")
    kind = "pattern"

    def __init__(
        self, label: str, name: str | None, action: Action, regex: re.Pattern[str], contains: tuple[str, ...]
    ) -> None:
        super().__init__(label, name, action)
        self.regex = regex
        self.contains = contains  # a text without any of these is not searched

    def is_met_by(self, text: str) -> bool:
        if self.contains and not any(literal in text for literal in self.contains):
            return False
        return self.regex.search(text) is not None


class CallableRule(RedactionRule):
    """Meets values for which a function returns true."""

    __slots__ = ("function",)
    kind = "function"

    def __init__(self, label: str, name: str | None, action: Action, function: Callable[[Any, str], object]) -> None:
        super().__init__(label, name, action)
        self.function = function


Redact = Iterable[RedactionRule | Iterable[RedactionRule]] | Literal[False]
"""What a client takes as `redact`."""


# -- how a user writes them --------------------------------------------------------------------------------------------


def by_type(*classes: type[Any] | str, name: str | None = None, action: Action = "drop") -> RedactionRule:
    """Return a rule for objects of these classes and of their subclasses.

    A class may be given by its full name, `"package.module.Class"`, so that it needs no import.
    """
    if not classes:
        raise UsageError("by_type takes at least one class")
    for class_ in classes:
        if not isinstance(class_, type | str):
            raise UsageError(f"by_type takes classes, or their full names, not {class_!r:.60}")
        if class_ is object or class_ in BUILTIN_TYPES:
            raise UsageError(f"by_type takes no {class_!r:.60}: nearly every state is made of these. Use by_path")
    names = [class_ if isinstance(class_, str) else full_name(class_) for class_ in classes]
    return TypeRule(
        _label("type", ", ".join(names)),
        name,
        _check_action(action),
        classes=[class_ for class_ in classes if isinstance(class_, type)],
        names=[class_ for class_ in classes if isinstance(class_, str)],
    )


def by_path(*paths: str, name: str | None = None, action: Action = "drop") -> tuple[RedactionRule, ...]:
    """Return a rule for each path, such as `"**.api_key"` or `"execution_state.users[*].token"`.

    `*` is any part of a step, or any one step, and `**` any number of steps. A path begins with what
    is saved: `execution_state`, `agent_context`, `metadata`, `arguments`, `result`, `exception`.
    """
    if not paths:
        raise UsageError("by_path takes at least one path")
    return tuple(PathRule(_label("path", path), name, _check_action(action), parse_pattern(path)) for path in paths)


def by_pattern(
    pattern: str | re.Pattern[str],
    *,
    label: str,
    contains: str | Sequence[str] = (),
    name: str | None = None,
    action: Action = "drop",
) -> RedactionRule:
    """Return a rule for texts in which a regular expression is found. The whole text is left out.

    `label` is stored with each reference: it names the rule, and says nothing secret. A text without
    any of `contains` is not searched, which is much faster.
    """
    try:
        regex = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise UsageError(f"by_pattern takes a regular expression of texts: {error}") from None
    literals = (contains,) if isinstance(contains, str) else tuple(contains)
    return PatternRule(_label("pattern", label), name, _check_action(action), regex, literals)


def by_callable(
    function: Callable[[Any, str], object], *, label: str, name: str | None = None, action: Action = "drop"
) -> RedactionRule:
    """Return a rule for values for which `function(value, path)` returns true.

    It is called with texts, numbers and containers alike, and must give the same answer for equal
    values. If it raises, nothing is saved.
    """
    if not callable(function):
        raise UsageError(f"by_callable takes a function, not {function!r:.60}")
    return CallableRule(_label("function", label), name, _check_action(action), function)


def known_tokens(*, action: Action = "drop") -> tuple[RedactionRule, ...]:
    """Return rules for texts with a token of a well-known provider, or a private key, in them."""
    return tuple(
        by_pattern(regex, label=label, contains=literals, action=action) for label, literals, regex in _KNOWN_TOKENS
    )


_KNOWN_TOKENS: Final = (
    ("Anthropic key", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{20,}"),
    ("OpenAI key", ("sk-",), r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    ("AWS access key", ("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), r"\b(?:gh[pousr]|github_pat)_\w{20,}"),
    ("GitLab token", ("glpat-",), r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("Google key", ("AIza",), r"\bAIza[A-Za-z0-9_-]{35}"),
    ("Hugging Face token", ("hf_",), r"\bhf_[A-Za-z0-9]{30,}"),
    ("Slack token", ("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"), r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    ("Stripe key", ("sk_live_", "rk_live_"), r"\b[sr]k_live_[A-Za-z0-9]{20,}"),
    ("private key", ("PRIVATE KEY-----",), r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"),
)

_SECRET_NAMES: Final = (
    *("api_key", "apikey", "*_api_key", "apiKey", "x-api-key", "X-Api-Key", "X-API-Key"),
    *("password", "passwd", "*_password", "passphrase", "client_secret", "clientSecret", "secret_key", "private_key"),
    *("access_token", "accessToken", "auth_token", "bearer_token", "refresh_token", "refreshToken"),
    *("authorization", "Authorization", "aws_secret_access_key", "aws_session_token"),
)


def suspicions() -> tuple[RedactionRule, ...]:
    """Return the rules that a scan uses by itself: known tokens, and names that secrets often have."""
    return (*known_tokens(), *by_path(*(f"**.{name}" for name in _SECRET_NAMES)))


def rules_of(given: Any) -> tuple[RedactionRule, ...]:
    """Return the rules in what a user gave: rules, and sequences of rules."""
    if isinstance(given, RedactionRule):
        return (given,)
    if given is False:
        return ()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(
            f"redact takes rules of holdfast.redaction, or False for none, not {type(given).__name__}: for instance "
            'redact=[by_path("**.api_key")]'
        )
    return tuple(rule for item in given for rule in rules_of(item))


def parse_pattern(path: str) -> tuple[str, ...]:
    """Return the steps of a path with wildcards."""
    if not isinstance(path, str) or not path or _STEP.sub("", path).strip("."):
        raise UsageError(f'a path is written like "**.api_key" or "execution_state.users[*].token", not {path!r:.60}')
    steps = tuple((index or name).strip("\"'") or _ANY_STEP for index, name in _STEP.findall(path))
    if all(step in (_ANY_STEP, _ANY_NUMBER) for step in steps):
        raise UsageError(f"the path {path!r} names everything: no state would be left")
    return steps


def parse_path(text: str) -> list[Step]:
    """Return the steps of the path that an encoder gives with a value."""
    return [int(index) if index.isdigit() else (index or name).strip(" ()\"'") for index, name in _STEP.findall(text)]


def _label(kind: str, text: str) -> str:
    label = f"{kind} {text}"[:MAX_LABEL]
    if not text or not label.isprintable():
        raise UsageError("a rule's label is a printable text")
    return label


def _check_action(action: str) -> Action:
    if action == "drop":
        return "drop"
    if action == "refuse":
        return "refuse"
    raise UsageError(f"action is 'drop' or 'refuse', not {action!r:.60}")


# -- paths -------------------------------------------------------------------------------------------------------------

States = frozenset[tuple[int, int]]
"""Where each path rule stands: its number, and how many of its steps are matched."""


class PathMatcher:
    """Matches all path rules at once, step by step on the way down."""

    def __init__(self, rules: Sequence[PathRule]) -> None:
        self._rules = rules
        self._next: dict[tuple[States, Step], States] = {}
        self.start = self._close_states({(number, 0) for number in range(len(rules))})

    def advance(self, states: States, step: Step) -> States:
        """Return the states after one more step."""
        key = (states, "[]" if type(step) is int else step)
        known = self._next.get(key)
        if known is None:
            if len(self._next) > 10_000:  # keys of dicts may be ids
                self._next.clear()
            known = self._next[key] = self._advance(states, str(key[1]))
        return known

    def find_rule(self, states: States) -> PathRule | None:
        """Return the rule that meets a value in these states; None if none does."""
        ended = [number for number, at in states if at == len(self._rules[number].steps)]
        return self._rules[min(ended)] if ended else None

    def _advance(self, states: States, step: str) -> States:
        found = set()
        for number, at in states:
            steps = self._rules[number].steps
            if at == len(steps) or steps[at] == _ANY_NUMBER:  # met above: so is everything below
                found.add((number, at))
            elif steps[at] == _ANY_STEP or (step != "[]" and fnmatchcase(step, steps[at])):
                found.add((number, at + 1))
        return self._close_states(found)

    def _close_states(self, states: set[tuple[int, int]]) -> States:
        """Return the states, with those that a `**` of no steps leads to."""
        waiting = list(states)
        while waiting:
            number, at = waiting.pop()
            steps = self._rules[number].steps
            if at < len(steps) and steps[at] == _ANY_NUMBER and (number, at + 1) not in states:
                states.add((number, at + 1))
                waiting.append((number, at + 1))
        return frozenset(states)
