"""Outcomes of commits that were carried out together: each waiter gets an error object of its own.

A waiter writes into the error that it raises: `save` notes the checkpoint id, Python extends the
traceback. With one object for a whole batch, the id would be that of the last waiter, and a retry
under it would be refused.
"""

from __future__ import annotations

import copy

from holdfast.errors import StoreError

Outcomes = list[BaseException | None]


def fail_each(error: BaseException, count: int) -> Outcomes:
    """Return the outcomes of `count` commits that failed together: one copy of the error for each."""
    return [copy_error(error) for _ in range(count)]


def separate(outcomes: Outcomes) -> Outcomes:
    """Return the same outcomes, such that no two commits share an error object."""
    seen: set[int] = set()
    for at, outcome in enumerate(outcomes):
        if outcome is not None and id(outcome) in seen:
            outcomes[at] = copy_error(outcome)
        seen.add(id(outcome))
    return outcomes


def copy_error(error: BaseException) -> BaseException:
    """Return a copy of an error, with the same cause and the traceback so far."""
    try:
        copied = copy.copy(error)
    except Exception:  # some driver's exception whose constructor takes other arguments than it stores
        copied = StoreError(f"the store failed: {error!r:.500}")
    if copied is error:  # a class may define its copies so
        copied = StoreError(f"the store failed: {error!r:.500}")
    copied.__traceback__ = error.__traceback__
    copied.__cause__ = error if error.__cause__ is None else error.__cause__
    return copied
