"""Regressions that kill campaigns found: false possible duplicates, a refused call that was repeated."""

from __future__ import annotations

import pytest

from holdfast import SyncClient


class RefusedError(Exception):
    """Certainly not done."""


def test_one_function_may_do_several_things_under_one_key(quick: SyncClient):
    done = []

    def post(what: str, order: str) -> None:
        done.append((what, order))

    with quick.run("s", agent_id="a") as run:
        run.effect("notify", post, "notify", "o1", key="o1")
    with quick.run("s", agent_id="a") as run:
        run.effect("label", post, "label", "o1", key="o1")
        run.effect("notify", post, "notify", "o1", key="o1")
    assert done == [("notify", "o1"), ("label", "o1")]


@pytest.mark.parametrize("how", [{}, {"key": "o1"}], ids=["no key", "key"])
def test_a_call_that_was_refused_and_repeated_is_not_made_again_with_its_task(quick: SyncClient, how: dict[str, str]):
    charged, tries = [], []

    def charge(order: str) -> str:
        tries.append(order)
        if len(tries) == 1:
            raise RefusedError("closed")
        charged.append(order)
        return "receipt"

    def life(*, fails: bool) -> None:
        with quick.run("s", agent_id="a") as run:
            for task in run.tasks("orders", ["o1"], retry_failed=True):
                for _ in range(3):
                    try:
                        run.effect("charge", charge, "o1", not_done=(RefusedError,), **how)
                    except RefusedError:
                        continue
                    break
                if fails:
                    task.fail("it waits for a person")

    life(fails=True)
    life(fails=False)
    assert charged == ["o1"]
