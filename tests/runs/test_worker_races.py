"""Workers that find the same run: whatever happens between two reads of one, a run is carried out once."""

import pytest

from holdfast import Runnables, runnable
from holdfast.backends.bridge.step import run_inline
from holdfast.operations import due, lookup, take

pytestmark = pytest.mark.every_store


@pytest.mark.parametrize("reads", [1, 2])
def test_a_run_that_completes_while_another_worker_looks_at_it_is_not_taken_again(client, monkeypatch, reads):
    lives = []
    names = Runnables()
    runnable("once", registry=names)(lambda run: lives.append(run.session_id))
    client.start("once", session_id="s")
    ctx, done = client._ctx, []
    [found], _ = run_inline(due.page(ctx, None))

    def then_complete(read):
        async def reading(*given):
            value = await read(*given)
            if ctx is given[0]:  # of the worker that is late
                done.append(read)
                if len(done) == reads:
                    assert client.work(drain=True, runnables=names) == 1
            return value

        return reading

    monkeypatch.setattr(due, "load", then_complete(due.load))
    monkeypatch.setattr(lookup, "revalidated_tip", then_complete(lookup.revalidated_tip))
    assert run_inline(take.take(ctx, found, names.find_limit, holder="late", seconds=15.0)) is None
    assert len(done) == 2
    monkeypatch.undo()
    assert client.work(drain=True, runnables=names) == 0
    assert lives == ["s"]
    assert client.run_status("s").status == "completed"
