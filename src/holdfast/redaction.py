"""Redaction: rules for values that must not be stored."""

from holdfast.codec.redacted import RedactedValue, is_redacted
from holdfast.codec.redaction_rules import by_callable, by_path, by_pattern, by_type, known_tokens
from holdfast.codec.secret_types import RedactionRule

__all__ = [
    "RedactedValue",
    "RedactionRule",
    "by_callable",
    "by_path",
    "by_pattern",
    "by_type",
    "is_redacted",
    "known_tokens",
]
