"""The check of an effect's options, when they are declared: before anything is carried out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import UsageError
from holdfast.model.effect import EffectKind, OnRepeat
from holdfast.operations import validate
from holdfast.runs import call_binding
from holdfast.runs.probe import refuse_annotation

OF_EFFECTS = ("approve", "probe", "undo", "on_repeat", "identity", "volatile", "not_done")
"""Options that mean nothing for a call that is recorded as a step."""


def refuse_contradictions(subject: str, kind: Any, key: Any, given: Mapping[str, Any]) -> None:
    """Raise if the options of an effect exclude each other. `given` are all but kind and key."""
    if kind == EffectKind.READ:
        refuse_options_of_effects(subject, "a read, which changes nothing", given)
        return
    if key is not None:
        for option in ("identity", "volatile"):
            if _is_given(given.get(option)):
                raise UsageError(
                    f"{subject}: key= says which effect it is, whatever its arguments are, and {option}= says that "
                    "arguments do. Give one of them"
                )
    if given.get("on_repeat") == OnRepeat.COMPENSATE and given.get("undo") is None:
        raise UsageError(f"{subject}: on_repeat='compensate' needs undo=...")
    identity, volatile = (
        (item,) if isinstance(item, str) else tuple(item or ())
        for item in (given.get("identity"), given.get("volatile"))
    )
    both = [item for item in identity if item in volatile]
    if both:
        raise UsageError(f"{subject}: {both[0]!r:.60} is in identity= and in volatile=. Name it in one of them")


def refuse_options_of_effects(
    subject: str, is_a: str, given: Mapping[str, Any], options: tuple[str, ...] = OF_EFFECTS
) -> None:
    """Raise if one of the options is given to a call that is recorded as a step."""
    for option in options:
        if _is_given(given.get(option)):
            raise UsageError(
                f"{subject}: {option}= says nothing about {is_a}: it is recorded like a step. Leave it out, or "
                "give another kind"
            )


def refuse_wrong_values(subject: str, given: Mapping[str, Any]) -> None:
    """Raise if an option has a value that no call could use."""
    if given.get("on_repeat") is not None:
        validate.one_of("on_repeat", given["on_repeat"], tuple(OnRepeat))
    for option in ("probe", "undo"):
        if (function := given.get(option)) is not None and not callable(function):
            raise UsageError(f"{subject}: {option} is {function!r:.60}, which can't be called. Give a function")
    if given.get("probe") is not None:
        refuse_annotation(subject, given["probe"])
    call_binding.classes("not_done", given.get("not_done", ()))


def _is_given(value: Any) -> bool:
    return value not in (None, (), [], False)
