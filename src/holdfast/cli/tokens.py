"""Leases on the command line: a script carries their token from one command to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.model.lease import LeaseTerms

Command = TypeVar("Command", bound=Callable[..., Any])


def token_option(*, required: bool = False) -> Callable[[Command], Command]:
    return click.option(
        "--token", metavar="T", type=int, required=required, help="The token that `holdfast claim` printed."
    )


def under_token(session_id: str, token: int | None) -> LeaseTerms | None:
    """The lease of that token. It is the token that the store compares; what else a lease has is not known here."""
    return None if token is None else LeaseTerms(session_id, "", 0.0, token, 0)
