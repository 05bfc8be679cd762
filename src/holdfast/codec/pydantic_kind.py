"""pydantic v2 models: their fields, which of them were set, and extra and private attributes.

pydantic itself is not imported: a model carries everything that is needed.
"""

from __future__ import annotations

from typing import Any

from holdfast.codec.class_kinds import cached_properties, check_fields, make_change_error
from holdfast.codec.unsupported import Refusal

# No field can have this name. It holds everything of a model except its fields.
_NOT_FIELDS = ""
_EXTRA = "__pydantic_extra__"
_PRIVATE = "__pydantic_private__"


class PydanticKind:
    def __init__(self, cls: type[Any], name: str) -> None:
        self._cls = cls
        self._name = name
        self._recomputed = cached_properties(cls)

    def take_apart(self, value: Any) -> dict[str, Any]:
        fields = _model_fields(self._cls)
        held = value.__dict__
        parts = {name: held[name] for name in fields if name in held}
        if len(parts) != len(fields):
            missing = min(fields.keys() - parts.keys())
            raise Refusal(f"its field {missing!r} was never set", "Set it, or give it a default")
        unknown = held.keys() - fields.keys() - self._recomputed - {_EXTRA, _PRIVATE}
        if unknown:
            raise Refusal(
                f"its attribute {min(unknown)!r} is no field of {self._cls.__qualname__} and would be lost",
                "Declare it as a field or a PrivateAttr",
            )
        parts[_NOT_FIELDS] = [
            sorted(value.__pydantic_fields_set__),
            value.__pydantic_extra__,
            value.__pydantic_private__,
        ]
        return parts

    def rebuild(self, parts: Any) -> Any:
        fields = _model_fields(self._cls)
        check_fields(self._name, parts, {*fields, _NOT_FIELDS})
        stored = parts.get(_NOT_FIELDS)
        if type(stored) is not list or len(stored) != 3 or not _are_names(stored[0]):
            raise make_change_error(self._name, "it was stored as another kind of class")
        were_set, extra, private = stored
        held = {
            name: parts[name] if name in parts else self._default(name, field, parts) for name, field in fields.items()
        }
        value = object.__new__(self._cls)
        put = object.__setattr__
        put(value, "__dict__", held)
        put(value, "__pydantic_fields_set__", set(were_set))
        for attribute, content in ((_EXTRA, self._checked_extra(extra)), (_PRIVATE, self._checked_private(private))):
            # A RootModel has None for these in its class, and no slots.
            if content is not None or getattr(value, attribute, _EXTRA) is not None:
                put(value, attribute, content)
        return value

    def _default(self, name: str, field: Any, parts: dict[str, Any]) -> Any:
        if field.is_required():
            raise make_change_error(self._name, f"its field {name!r} was not stored and has no default")
        if getattr(field, "default_factory_takes_validated_data", False):
            return field.get_default(call_default_factory=True, validated_data=parts)
        return field.get_default(call_default_factory=True)

    def _checked_extra(self, extra: Any) -> dict[str, Any] | None:
        allowed = self._cls.model_config.get("extra") == "allow"
        if extra is None:
            return {} if allowed else None
        if type(extra) is not dict or (extra and not allowed):
            raise make_change_error(self._name, "it no longer allows extra attributes")
        return extra

    def _checked_private(self, private: Any) -> dict[str, Any] | None:
        declared = self._cls.__private_attributes__
        if private is None and not declared:
            return None
        stored = {} if private is None else private
        if type(stored) is not dict or not stored.keys() <= declared.keys():
            raise make_change_error(self._name, "a stored private attribute is gone")
        if private is not None:
            return stored
        # A model that had no private attributes when it was stored gets the defaults of those it has now.
        undefined = type(_undefined_of(declared))
        defaults = {name: attribute.get_default() for name, attribute in declared.items()}
        return {name: value for name, value in defaults.items() if not isinstance(value, undefined)}


def _are_names(names: Any) -> bool:
    """Return whether this is a list of texts.

    Other values may share one hash, and a set of them would take forever.
    """
    return type(names) is list and all(type(name) is str for name in names)


def _undefined_of(declared: Any) -> Any:
    """Return pydantic's marker for "no default", found without importing pydantic."""
    attribute = next(iter(declared.values()))
    return type(attribute)().default


def _model_fields(cls: type[Any]) -> dict[str, Any]:
    # Named __pydantic_fields__ since pydantic 2.10.
    fields: dict[str, Any] = getattr(cls, "__pydantic_fields__", None) or cls.model_fields
    return fields
