"""A save of a run that goes on in its journal stores the same bytes as the general way would, whatever the state is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast import SyncClient
from holdfast.backends.port import Span
from holdfast.operations import continuing
from strategies import same, values

small_values = st.one_of(values(), st.text(max_size=300), st.binary(max_size=300))
large_values = st.sampled_from(
    ["x" * 4095, "y" * 4096, b"z" * 5000, ["a" * 300] * 20, {"deep": [{"er": ["b" * 600] * 9}]}]
)
some = st.one_of(small_values, large_values)
contexts = st.dictionaries(st.one_of(st.text(max_size=8), st.just("holdfast.run")), some, max_size=16)
steps = st.lists(
    st.tuples(
        st.one_of(st.none(), some),  # what the state has from then on, if that changes
        st.one_of(st.none(), contexts),
        st.one_of(small_values, st.integers(0, 70_000).map(lambda size: "r" * size)),
        st.text(max_size=8),
    ),
    max_size=12,
)  # fmt: skip


NOW_US = 1_800_000_000_000_000


class Lives:
    """A run whose ids and times are known, so that two of them can be compared."""

    def __init__(
        self, script: list[tuple[Any, Any, Any, str]], options: dict[str, Any] | None = None, *, generally: bool
    ) -> None:
        self.went_on = 0
        with SyncClient.memory() as client, pytest.MonkeyPatch.context() as patch:
            services = client._services
            numbers = iter(range(1, 1 << 20))
            services.new_id = lambda tag: next(numbers).to_bytes(8, "big") + (tag or bytes(4)) + bytes(4)
            services.now_us = lambda: NOW_US
            usual = continuing.prepare

            def counted(*given: Any) -> Any:
                prepared = None if generally else usual(*given)
                self.went_on += prepared is not None
                return prepared

            patch.setattr(continuing, "prepare", counted)
            with client.run("s", **(options or {})) as run:
                for number in range(20):
                    run.step("warm", str, "w" * 200 + str(number))
                if options:
                    for _ in run.tasks("things", ["one", "two"]):
                        run.step("between", str)
                for state, context, result, name in script:
                    if state is not None:
                        run.state["value"] = state
                    if context is not None:
                        run.context.clear()
                        run.context.update(context)
                    run.step(name, lambda result=result: result)
            self.stored = list(self._stored(client))
            self.latest = client.latest(session_id="s")

    @staticmethod
    def _stored(client: SyncClient) -> Iterator[Any]:
        backend = client._services.backend.backend  # type: ignore[attr-defined]  # the one that the bridge is over
        yield from backend.page_records(None, 1000)
        for run in backend.page_runs(None, 1000):
            yield backend.runs([Span(run.log, run.first, run.first + run.length)])
        yield from (info.hash for info in backend.page_blobs(None, 1000))


@settings(max_examples=examples(40))
@given(
    steps,
    st.sampled_from([{}, {"app_version": "1.2"}, {"framework": "langgraph", "state_version": 3, "app_version": "é"}]),
)
def test_the_same_bytes_are_stored(script: list[tuple[Any, Any, Any, str]], options: dict[str, Any]):
    general, quick = Lives(script, options, generally=True), Lives(script, options, generally=False)
    assert quick.stored == general.stored
    assert same(quick.latest.execution_state, general.latest.execution_state)
    assert quick.went_on > general.went_on == 0


def test_what_is_small_goes_on_and_what_is_large_is_looked_at_closely():
    plain = Lives([(None, None, {"n": 1}, "one"), ({"a": "b" * 400}, {"c": 1}, [], "two")] * 3, generally=False)
    large = Lives([("y" * 4096, None, 1, "one")] * 6, generally=False)
    assert plain.went_on - large.went_on >= 4
