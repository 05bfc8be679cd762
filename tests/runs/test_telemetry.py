"""OpenTelemetry: spans and metrics of operations and runs, without payloads, and nothing without the package."""

import logging

import pytest
from stores import python

from holdfast import ConflictError, EffectUnknownError, LeaseLostError, Runnables, SyncClient, runnable, telemetry

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

SECRET = "sk-secret-value"


class Telemetry:
    """What was recorded: spans, and points of metrics, by their names."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider(metric_readers=[self.reader])

    def spans(self, name=None):
        return [one for one in self.exporter.get_finished_spans() if name in (None, one.name)]

    def points(self):
        data = self.reader.get_metrics_data()
        found = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found.setdefault(metric.name, []).extend(metric.data.data_points)
        return found


@pytest.fixture
def recorded(monkeypatch):
    made = Telemetry()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: made.tracers)
    monkeypatch.setattr(trace, "get_tracer", lambda *given, **_: made.tracers.get_tracer(*given))
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: made.meters)
    monkeypatch.setattr(metrics, "get_meter", lambda *given, **_: made.meters.get_meter(*given))
    return made


def story(client):
    """Does something of everything, with a secret in all values."""
    with client.run("s", agent_id="buyer") as run:
        run.state = {"secret": SECRET}
        run.step("plan", lambda secret: secret, SECRET)
        run.effect("pay", lambda to: SECRET, to=SECRET, key="k")
        run.result = SECRET
    with pytest.raises(ValueError), client.run("fails", agent_id="buyer") as run:
        run.step("wrong", int, SECRET)
    cid = client.save("a", session_id="t", execution_state={"secret": SECRET})
    client.restore(cid)
    client.fork(cid, session_id="u")
    client.rollback("t", to=cid)
    client.claim(client.handoff(cid, "b"), "b").release()
    with pytest.raises(ConflictError):
        client.save("a", session_id="t", execution_state={}, expect_head=client.latest(session_id="u").checkpoint_id)
    client.verify()
    client.gc()
    client.retain(keep_last=5)
    asked = client.request_approval("t", "pay", {"to": SECRET})
    client.decide(asked.approval_id, "approve", by="ann")


def replay_and_restore(client, directory):
    """Replays the run of the story, and takes and restores a snapshot of a file that holds the secret."""
    client.replay("s", lambda run: run.step("plan", lambda secret: secret, SECRET))
    file = directory / "a.txt"
    file.write_text(SECRET)
    files = client.workspace(directory)
    before = client.save("a", session_id="files", execution_state={}, workspace=files)
    file.write_text("other")
    client.save("a", session_id="files", execution_state={}, workspace=files)
    files.restore(before)


def test_names_and_attributes_are_those_that_are_documented(quick, recorded, tmp_path):
    story(quick)
    replay_and_restore(quick, tmp_path)
    assert {one.name for one in recorded.spans()} == set(telemetry.SPANS)
    attributes = {name for one in recorded.spans() for name in one.attributes}
    assert attributes == set(telemetry.ATTRIBUTES) - {telemetry.OPERATION, telemetry.RUN_FUNCTION}
    points = recorded.points()
    assert set(points) == set(telemetry.METRICS)
    labels = {name for found in points.values() for one in found for name in one.attributes}
    assert labels == {
        telemetry.OPERATION,
        telemetry.BACKEND,
        telemetry.ERROR,
        telemetry.EFFECT_KIND,
        telemetry.EFFECT_STATUS,
    }


def test_no_attribute_has_a_value_that_was_saved(quick, recorded, tmp_path):
    story(quick)
    replay_and_restore(quick, tmp_path)
    told = repr([(one.name, one.attributes, one.status.description, one.events) for one in recorded.spans()])
    told += repr(recorded.points())
    assert SECRET not in told


def test_a_save_says_what_it_has_written(quick, recorded):
    first = quick.save("a", session_id="t", execution_state={"text": "x" * 3000})
    second = quick.save("a", session_id="t", execution_state={"text": "y" * 3000})
    quick.restore(second)
    [_, save], [restore] = recorded.spans(telemetry.SAVE), recorded.spans(telemetry.RESTORE)
    of_both = (telemetry.CHECKPOINT, telemetry.PARENT, telemetry.TREE, telemetry.SEQUENCE)
    tree = quick.get(second).tree_id
    for span in (save, restore):
        assert [span.attributes[name] for name in of_both] == [second, first, tree, 2]
    assert save.attributes[telemetry.DURABILITY] == "none"
    assert save.attributes[telemetry.STATE_BYTES] > 3000
    [stored] = recorded.points()[telemetry.STORED]
    assert stored.value == sum(one.attributes[telemetry.STORED_BYTES] for one in recorded.spans(telemetry.SAVE)) > 6000


def test_snapshots_and_restores_say_how_many_files_changed(quick, recorded, tmp_path):
    story(quick)
    replay_and_restore(quick, tmp_path)
    [snapshot, *_] = recorded.spans(telemetry.SNAPSHOT)
    [restore] = recorded.spans(telemetry.RESTORE_FILES)
    assert (snapshot.attributes[telemetry.FILES_CHANGED], restore.attributes[telemetry.FILES_CHANGED]) == (1, 1)
    counted = {one.attributes[telemetry.OPERATION]: one.value for one in recorded.points()[telemetry.FILES]}
    assert counted[telemetry.RESTORE_FILES] == 1


def test_a_run_has_its_steps_as_children_and_says_how_it_ended(quick, recorded):
    story(quick)
    [done, failed] = recorded.spans(telemetry.RUN)
    assert (done.attributes[telemetry.RUN_STATUS], failed.attributes[telemetry.RUN_STATUS]) == ("completed", "failed")
    assert done.attributes[telemetry.CONVERSATION] == "s"
    assert done.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert done.attributes[telemetry.AGENT] == "buyer"
    [plan, wrong] = recorded.spans(telemetry.STEP)
    assert plan.parent.span_id == done.context.span_id
    assert plan.attributes[telemetry.STEP_NAME] == "plan"
    assert (wrong.attributes[telemetry.ERROR], wrong.status.status_code.name) == ("ValueError", "ERROR")
    [pay] = recorded.spans(telemetry.EFFECT)
    assert (pay.attributes[telemetry.EFFECT_KIND], pay.attributes[telemetry.EFFECT_STATUS]) == ("irreversible", "done")
    assert (pay.attributes["gen_ai.operation.name"], pay.attributes["gen_ai.tool.name"]) == ("execute_tool", "pay")


def test_recorded_steps_and_effects_make_no_spans_when_a_run_resumes(quick, recorded):
    for _ in range(3):
        with quick.run("s") as run:
            run.step("plan", lambda: 1)
            run.effect("pay", lambda: 2, key="k")
    assert len(recorded.spans(telemetry.STEP)) == len(recorded.spans(telemetry.EFFECT)) == 1
    assert len(recorded.spans(telemetry.RUN)) == 3


def test_an_effect_of_unknown_outcome_is_counted_as_such(quick, recorded):
    def pay():
        raise OSError

    for expected in (OSError, EffectUnknownError):
        with pytest.raises(expected), quick.run("s") as run:
            run.effect("pay", pay, key="k")
    counted = {one.attributes[telemetry.EFFECT_STATUS]: one.value for one in recorded.points()[telemetry.EFFECTS]}
    assert counted == {"failed": 1, "unknown": 1}


def test_runs_at_work_are_counted_up_and_down(quick, recorded):
    with quick.run("a"), quick.run("b"):
        assert [one.value for one in recorded.points()[telemetry.RUNS_ALIVE]] == [2]
    assert [one.value for one in recorded.points()[telemetry.RUNS_ALIVE]] == [0]


def test_a_workers_run_names_its_function(quick, recorded):
    names = Runnables()
    runnable("orders.fulfil", registry=names)(lambda run: run.step("one", lambda: 1))
    quick.start("orders.fulfil", session_id="s")
    quick.work(drain=True, runnables=names)
    [run] = recorded.spans(telemetry.RUN)
    assert run.attributes[telemetry.RUN_FUNCTION] == "orders.fulfil"
    [step] = recorded.spans(telemetry.STEP)
    assert step.parent.span_id == run.context.span_id


def test_a_workers_run_is_linked_to_the_span_that_has_started_it(quick, recorded):
    names = Runnables()
    runnable("child", registry=names)(lambda run, item: item)
    runnable("orders.fulfil", registry=names)(lambda run: len(run.join(run.delegate("child", [1])).results))
    with trace.get_tracer("web").start_as_current_span("request") as request:
        quick.start("orders.fulfil", session_id="s")
    quick.start("orders.fulfil", session_id="without")
    quick.work(drain=True, runnables=names)
    of_session = {}
    for one in recorded.spans(telemetry.RUN):
        of_session.setdefault(one.attributes[telemetry.SESSION], one)
    run = of_session["s"]
    assert [link.context.span_id for link in run.links] == [request.get_span_context().span_id]
    assert run.parent is None
    assert run.context.trace_id != request.get_span_context().trace_id
    [child] = [one for name, one in of_session.items() if name.startswith("s.child.")]
    assert [link.context.trace_id for link in child.links] == [run.context.trace_id]
    assert of_session["without"].links == ()


def test_conflicts_lost_leases_and_doubts_are_events_of_spans(quick, recorded):
    story(quick)
    [conflict] = [one for one in recorded.spans(telemetry.SAVE) if one.events]
    assert [one.name for one in conflict.events] == ["holdfast.conflict"]
    for expected in (OSError, EffectUnknownError):
        with pytest.raises(expected), quick.run("doubt") as run:
            run.effect("pay", fail, key="k")
    lease = quick.lease("t", seconds=5)
    lease.release()
    with pytest.raises(LeaseLostError):
        quick.save("a", session_id="t", execution_state={}, lease=lease)
    events = {event.name for one in recorded.spans() for event in one.events}
    assert events == set(telemetry.EVENTS.values())


def fail():
    raise OSError


def test_a_worker_logs_fixed_messages_with_fields(quick, caplog):
    names = Runnables()
    runnable("orders.fulfil", registry=names)(lambda run: 1)
    quick.start("orders.fulfil", session_id="s")
    with caplog.at_level(logging.INFO, "holdfast.work"):
        quick.work(drain=True, runnables=names)
    found = [(one.msg, one.holdfast_session, one.holdfast_function, one.holdfast_what) for one in caplog.records]
    assert found == [
        ("run %s", "s", "orders.fulfil", "taken"),
        ("run %s", "s", "orders.fulfil", "completed"),
    ]


def test_nothing_is_computed_in_a_program_that_has_set_no_provider(quick, monkeypatch):
    """Other libraries import the package, such as redis-py."""
    monkeypatch.setattr(telemetry, "record", None)
    monkeypatch.setattr(telemetry, "describe", None)
    monkeypatch.setattr("holdfast.operations.save._SentCommit.sizes", None)
    quick.save("a", session_id="s", execution_state={"n": 1})
    assert quick.latest("s").execution_state == {"n": 1}
    monkeypatch.setattr(trace, "get_tracer_provider", TracerProvider)
    with pytest.raises(TypeError):
        quick.save("a", session_id="s", execution_state={"n": 2})


def test_nothing_is_imported_and_all_works_without_the_package():
    code = """
import sys
sys.modules["opentelemetry"] = None
from holdfast import SyncClient
with SyncClient.memory() as client, client.run("s") as run:
    run.step("one", lambda: 1)
    run.effect("two", lambda: 2, key="k")
assert not [name for name in sys.modules if name.startswith("opentelemetry.")]
print("fine")
"""
    assert python(code).stdout == "fine\n"


def test_a_program_without_it_never_gets_it_imported():
    code = """
import sys
from holdfast import SyncClient
with SyncClient.memory() as client, client.run("s") as run:
    run.step("one", lambda: 1)
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
print("fine")
"""
    assert python(code).stdout == "fine\n"


def test_the_client_is_a_store_of_any_kind(tmp_path, recorded):
    with SyncClient.sqlite(tmp_path / "s.db") as client:
        client.save("a", session_id="t", execution_state={})
    [save] = recorded.spans(telemetry.SAVE)
    assert (save.attributes[telemetry.BACKEND], save.attributes[telemetry.SESSION]) == ("sqlite", "t")
