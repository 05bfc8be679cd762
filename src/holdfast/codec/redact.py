"""The walk over a value with which rules by path, pattern and function are applied.

It comes before the value is encoded and hashed. It returns the value itself if no rule meets
anything, else a copy. The given value is never changed.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.codec.builtin_types import path_encoder
from holdfast.codec.placeholders import RedactedObject, TypedObject
from holdfast.codec.redacted import is_redacted
from holdfast.codec.redaction_rules import CallableRule, States, Step, parse_path
from holdfast.codec.secret_types import Redaction, RedactionRule, SecretTypes, refusal_of
from holdfast.codec.unknown_types import KEY_STEP, MEMBER_STEP, UNKNOWN, parts_of
from holdfast.errors import UnsupportedValueError
from holdfast.model.run_policy import JOURNAL_KEY

if TYPE_CHECKING:
    from holdfast.codec.codec import Codec

_JOURNAL = f"agent_context.{JOURNAL_KEY}"  # of a run: its values are encoded one by one, and redacted then
_NOT_FIELDS = ""  # as in `pydantic_kind.py`: the rest of a model
_MOST_VISITED = 100_000_000
_NUMBERS = frozenset({bool, int, float})
_OPEN_DICTS = (OrderedDict, defaultdict)  # their stored parts are pairs: a path would not lead through them


class RuleMatch(NamedTuple):
    """A value that a rule meets: its path and the rule's label; never the value."""

    path: str
    rule: str
    type: str


class Redactor:
    """One walk over a value, for one use."""

    def __init__(
        self, codec: Codec, redaction: Redaction, path: str, on_found: Callable[[RuleMatch], None] | None = None
    ) -> None:
        """With `on_found`, rules by type are applied too, and nothing is refused: for a scan."""
        self._codec = codec
        self._rules = redaction
        self._path = path
        self._steps: list[Step] = []
        self._open: set[int] = set()
        self._visited = 0
        self._on_found = on_found
        self._types = SecretTypes(redaction) if on_found else codec.secrets

    def apply(self, value: Any) -> Any:
        """Return the value, redacted."""
        states = self._start()
        try:
            if type(value) in (dict, list) and self._rules.matcher.find_rule(states) is not None:
                return self._redact_whole(value, states)
            return self._visit(value, states)
        except RecursionError:
            raise UnsupportedValueError(
                self._path or "value", "it is nested too deeply for what is left of the call stack", "Store it flatter"
            ) from None

    def apply_to_items(self, items: Sequence[Any], first: int) -> Sequence[Any]:
        """Return items of the list at this path, redacted; the first one is number `first`."""
        if self._path.startswith(_JOURNAL):
            return items
        states = self._start()
        result = [self._redact_below(item, states, number) for number, item in enumerate(items, first)]
        return items if all(map(_is, result, items)) else result

    def _redact_whole(self, value: Any, states: States) -> Any:
        """Return a container that a rule names as a whole: its form stays, and everything in it is left out."""
        if type(value) is dict:
            return {key: self._redact_below(item, states, key) for key, item in value.items()}
        return [
            self._redact_whole(item, states) if type(item) is dict else self._redact_below(item, states, index)
            for index, item in enumerate(value)
        ]

    def _start(self) -> States:
        states = self._rules.matcher.start
        for step in parse_path(self._path):
            states = self._rules.matcher.advance(states, step)
        return states

    # -- one value ---------------------------------------------------------------------------------------------------

    def _visit(self, value: Any, states: States) -> Any:
        kind = type(value)
        if value is None or is_redacted(value):
            return value
        rule = self._rule_for(value, kind, states)
        if rule is not None:
            return self._report_match(rule, value)
        if kind in _NUMBERS or kind is str or kind is bytes:
            return value
        type_rule = self._types.rule(kind, self._codec.types.by_class)
        if type_rule is not None:  # the encoder leaves it out
            return self._report_match(type_rule, value) if self._on_found else value
        self._visited += 1
        if id(value) in self._open or len(self._open) > self._codec.limits.max_depth:
            return value  # a cycle, or too deep: the encoder refuses it by name
        if self._visited > _MOST_VISITED:
            raise UnsupportedValueError(self._path, "it has too many parts to be searched by rules", "Store less in it")
        self._open.add(id(value))
        try:
            return self._redact_inside(value, kind, states)
        finally:
            self._open.discard(id(value))

    def _rule_for(self, value: Any, kind: type[Any], states: States) -> RedactionRule | None:
        rules = self._rules
        if rules.by_path:
            rule = rules.matcher.find_rule(states)
            if rule is not None:
                return rule
        if rules.by_pattern:
            text = _text_of(value, kind)
            if text is not None:
                for pattern in rules.by_pattern:
                    if pattern.is_met_by(text):
                        return pattern
        for item in rules.by_callable if not hasattr(kind, "STANDS_FOR") else ():
            if self._answer(item, value):
                return item
        return None

    def _answer(self, rule: CallableRule, value: Any) -> bool:
        where = self._describe_place()
        try:
            return bool(rule.function(value, where))
        except Exception as error:
            # Its text may have the value in it.
            raise UnsupportedValueError(
                where, f"the redaction rule {rule.label!r} raised {type(error).__name__}", "Correct its function"
            ) from None

    def _report_match(self, rule: RedactionRule, value: Any) -> Any:
        reference = rule.reference(value)
        if self._on_found is not None:
            self._on_found(RuleMatch(self._describe_place(), rule.label, reference.short_type))
        elif rule.action == "refuse":
            refused = refusal_of(rule)
            raise UnsupportedValueError(self._describe_place(), refused.problem, refused.remedy)
        return reference

    # -- what it holds -----------------------------------------------------------------------------------------------

    def _redact_inside(self, value: Any, kind: type[Any], states: States) -> Any:
        if kind is dict or kind in _OPEN_DICTS:
            return self._redact_dict(value, states)
        if kind is list:
            items = [self._redact_below(item, states, index) for index, item in enumerate(value)]
            return value if all(map(_is, items, value)) else items
        if kind is tuple:
            items = [self._redact_below(item, states, index) for index, item in enumerate(value)]
            return value if all(map(_is, items, value)) else tuple(items)
        if kind is deque:
            items = [self._redact_below(item, states, index) for index, item in enumerate(value)]
            return value if all(map(_is, items, value)) else deque(items, value.maxlen)
        if kind is set or kind is frozenset:
            for member in value:
                self._is_met(member, states, MEMBER_STEP)
            return value
        if kind in UNKNOWN:
            parts = parts_of(value)
            changed = self._redact_parts(parts, states)
            return value if changed is parts else RedactedObject(value.type_name, changed)
        if kind is TypedObject:  # in a scan, which reads objects without their classes
            return self._redact_parts(value.fields, states)
        taken = self._codec.take_apart(value, self._describe_place())
        if taken is None:
            return value
        if type(taken) is not TypedObject:  # plain data, without a name
            changed = self._visit(taken, states)
            return value if changed is taken else changed
        changed = self._redact_parts(taken.fields, states)
        return value if changed is taken.fields else RedactedObject(taken.name, changed)

    def _redact_dict(self, value: Any, states: States) -> Any:
        changed: dict[Any, Any] = {}
        for key, item in value.items():
            if key == JOURNAL_KEY and not self._steps and self._path == "agent_context":
                continue
            step: Step = key if type(key) in (str, int) else KEY_STEP
            if type(key) is not int and self._is_met(key, frozenset(), KEY_STEP):
                step = KEY_STEP  # the key is the secret
            done = self._redact_below(item, states, step)
            if done is not item:
                changed[key] = done
        if not changed:
            return value
        copy = value.copy()
        copy.update(changed)
        return copy

    def _redact_parts(self, parts: Any, states: States) -> Any:
        """Return an object's stored parts; its attributes besides the fields have paths like fields."""
        stored = parts.get(_NOT_FIELDS) if type(parts) is dict else None
        if type(stored) is not list:
            return self._visit(parts, states)
        fields = {name: part for name, part in parts.items() if name != _NOT_FIELDS}
        changed = self._redact_dict(fields, states)
        others = [self._redact_dict(item, states) if type(item) is dict else item for item in stored]
        if changed is fields and all(map(_is, others, stored)):
            return parts
        return {**changed, _NOT_FIELDS: others}

    def _redact_below(self, item: Any, states: States, step: Step) -> Any:
        self._steps.append(step)
        done = self._visit(item, self._rules.matcher.advance(states, step) if states else states)
        self._steps.pop()
        return done

    def _is_met(self, value: Any, states: States, step: str) -> bool:
        """Return whether a rule meets a key or a member; raise, unless it is a scan.

        Two references could not be told apart there.
        """
        self._steps.append(step)
        is_met = self._visit(value, states) is not value
        if is_met and self._on_found is None:
            raise UnsupportedValueError(
                self._describe_place(),
                "a redaction rule meets it, and a reference can be neither a key nor a member of a set",
                "Use another key, or a list",
            )
        self._steps.pop()
        return is_met

    def _describe_place(self) -> str:
        from holdfast.codec.exact_encoder import path_text

        return path_text(self._path, self._steps)


def _text_of(value: Any, kind: type[Any]) -> str | None:
    """Return the text in which a pattern is searched; None for a value without one."""
    if kind is str:
        text: str = value
        return text
    if kind is bytes or kind is bytearray:
        return bytes(value).decode("latin-1")
    if isinstance(value, str):
        return str.__str__(value)
    return str(value) if path_encoder(kind) is not None else None


def _is(value: Any, other: Any) -> bool:
    return value is other
