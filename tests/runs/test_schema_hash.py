"""The hash of what a tool takes: another one when that changes, the same one in every process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.runs.call_binding import schema_hash


def takes(annotation: Any = int, default: Any = 1, name: str = "amount") -> Callable[..., None]:
    def tool(amount: Any = default) -> None:
        """Its signature is what counts."""

    tool.__annotations__["amount"] = annotation
    if name != "amount":
        tool.__signature__ = _renamed(tool, name)  # type: ignore[attr-defined]  # functions take any attribute
    return tool


def _renamed(tool: Callable[..., None], name: str) -> Any:
    import inspect

    signature = inspect.signature(tool)
    return signature.replace(parameters=[one.replace(name=name) for one in signature.parameters.values()])


@pytest.mark.parametrize("other", [takes(annotation=float), takes(default=2), takes(default=1.0), takes(name="sum")])
def test_another_schema_has_another_hash(other: Callable[..., None]):
    assert schema_hash(other) != schema_hash(takes())
    assert schema_hash(takes(), kind="read") != schema_hash(takes(), kind="irreversible")


@pytest.mark.parametrize("default", [object, lambda: takes, lambda: {"b", "a"}], ids=["object", "function", "set"])
def test_a_default_that_is_shown_otherwise_in_each_process_makes_no_difference(default: Callable[[], Any]):
    assert schema_hash(takes(default=default())) == schema_hash(takes(default=default()))


def test_an_annotation_reads_the_same_as_text_and_as_a_class():
    assert schema_hash(takes(annotation="int")) == schema_hash(takes(annotation=int))
