"""Agents of smolagents that write code: what of the interpreter comes back after a crash, and what does not."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("smolagents")

from rich.console import Console
from smolagents import AgentLogger, CodeAgent, LogLevel, Tool, tool
from smolagents_model import FunctionModel, answer_in_steps, code, text_of

from holdfast import Effect, SyncClient
from holdfast.errors import ApprovalPendingError, HoldfastWarning
from holdfast.smolagents import resumable
from holdfast.transcript import to_transcript


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


class Interrupted(BaseException):
    """What a kill does, in a test that stays in its process."""


class Life:
    """One life of a program: an agent with its own interpreter, whose model is cut off at a step."""

    def __init__(self, url: str, *steps: str, tools: Any = (), cut_off_at: int | None = None, **options: Any) -> None:
        plan = answer_in_steps(*steps)
        self.requests: list[str] = []

        def answer(messages: Any) -> Any:
            self.requests.append(text_of(messages[-1]))
            if len(self.requests) - 1 == cut_off_at:
                raise Interrupted
            return plan(messages)

        declared = options.pop("declared", None)
        logger = AgentLogger(LogLevel.OFF, Console(quiet=True))
        self.agent = CodeAgent(tools=list(tools), model=FunctionModel(answer), logger=logger, **options)
        self.resumed = resumable(self.agent, session_id="s", store=url, tools=declared)

    def run(self, task: str = "go", **options: Any) -> Any:
        return self.resumed.run(task, **options)


class Number(Tool):
    name, description, inputs, output_type = "number", "Returns a number.", {}, "integer"

    def __init__(self) -> None:
        super().__init__()
        self.called = 0

    def forward(self) -> int:
        self.called += 1
        return 10 * self.called


# -- a turn that was cut off -------------------------------------------------------------------------------------------


@survives("variables of a run that was cut off", "rebuilt: its code runs again")
def test_variables_of_a_run_that_was_cut_off_are_rebuilt(url):
    number = Number()
    steps = (
        code("import math", "def double(x):", "    return 2 * x", "items = [number()]"),
        code("items.append(double(number()))", "print(items)"),
        code("final_answer(items + [math.floor(2.5)])"),
    )
    with pytest.raises(Interrupted):
        Life(url, *steps, tools=[number], cut_off_at=2).run()
    second = Life(url, *steps, tools=[number])
    assert second.run() == [10, 40, 2]  # also functions and modules: the code ran again
    assert number.called == 2  # but no tool
    assert len(second.requests) == 1


def test_code_that_was_cut_off_in_a_loop_calls_each_tool_once(url):
    paid: list[str] = []

    @tool
    def pay(invoice: str) -> str:
        """Pays.

        Args:
            invoice: Which.
        """
        paid.append(invoice)
        if invoice == "c" and paid.count("c") == 1:
            raise Interrupted
        return f"receipt {invoice}"

    steps = (code("receipts = [pay(one) for one in 'abcd']", "final_answer(receipts)"),)
    declared = {"pay": Effect("idempotent", key="invoice")}
    with pytest.raises(Interrupted):
        Life(url, *steps, tools=[pay], declared=declared).run()
    second = Life(url, *steps, tools=[pay], declared=declared)
    assert second.run() == ["receipt a", "receipt b", "receipt c", "receipt d"]
    assert paid == ["a", "b", "c", "c", "d"]
    assert second.requests == []


@survives("effects of code outside of tools", "**happen again**")
def test_effects_of_code_outside_of_tools_happen_again(url, tmp_path):
    written = tmp_path / "written"
    steps = (
        code("import pathlib", f"file = pathlib.Path('{written}')", "file.write_text(file.read_text() + 'x')"),
        code("final_answer('done')"),
    )
    written.write_text("")
    options = {"additional_authorized_imports": ["pathlib"]}
    with pytest.raises(Interrupted):
        Life(url, *steps, cut_off_at=1, **options).run()
    assert written.read_text() == "x"
    assert Life(url, *steps, **options).run() == "done"
    assert written.read_text() == "xx"  # the truth: put such things into tools


def test_code_with_another_output_makes_the_model_answer_again(url):
    steps = (code("import time", "print(time.time_ns())"), code("final_answer('done')"))
    first = Life(url, *steps, code("final_answer('never')"), cut_off_at=2)
    first.agent.final_answer_checks.append(lambda *_, **__: False)  # so that it goes on
    with pytest.raises(Interrupted):
        first.run()
    second = Life(url, *steps)
    assert second.run() == "done"
    assert len(second.requests) == 1  # the second one: its question has another time in it


@survives("the same, called by code", "the call raises that it was interrupted")
def test_code_learns_that_a_call_was_interrupted(url):
    class Send(Tool):
        name, description, inputs, output_type = "send", "Sends.", {}, "object"

        def forward(self) -> dict[str, int]:
            sent.append(1)
            raise Interrupted

    sent: list[int] = []
    steps = (code("report = send()", "final_answer(report['id'])"), code("final_answer('unknown')"))
    with pytest.raises(Interrupted):
        Life(url, *steps, tools=[Send()]).run()
    second = Life(url, *steps, tools=[Send()])
    assert second.run() == "unknown"
    assert sent == [1]
    assert "UnansweredCallError: This call was interrupted, and its outcome is unknown" in second.requests[0]


def test_code_catches_the_failure_of_a_tool_in_every_life(url):
    class Fail(Tool):
        name, description, inputs, output_type = "fail", "Fails.", {}, "string"

        def forward(self) -> str:
            called.append(1)
            raise ValueError("no")

    called: list[int] = []
    steps = (
        code("try:", "    fail()", "except ValueError as error:", "    caught = str(error)", "print(caught)"),
        code("final_answer(caught)"),
    )
    with pytest.raises(Interrupted):
        Life(url, *steps, tools=[Fail()], cut_off_at=1).run()
    second = Life(url, *steps, tools=[Fail()])
    assert second.run() == "no"
    assert (called, len(second.requests)) == ([1], 1)


def test_arguments_may_be_arrays_and_objects(url):
    class Total(Tool):
        name, description, output_type = "total", "Adds.", "number"
        inputs = {  # noqa: RUF012 - as smolagents wants it
            "numbers": {"type": "any", "description": "An array."},
            "of": {"type": "any", "description": "An object."},
        }

        def forward(self, numbers: Any, of: Any) -> float:
            called.append(of)
            return float(numbers.sum())

    called: list[Any] = []
    steps = (code("import numpy", "added = total(numpy.array([1.5, 2.5]), numpy)"), code("final_answer(added)"))
    options = {"tools": [Total()], "additional_authorized_imports": ["numpy"], "declared": {"total": "idempotent"}}
    with pytest.raises(Interrupted):
        Life(url, *steps, cut_off_at=1, **options).run()
    second = Life(url, *steps, **options)
    assert second.run() == 4.0
    assert len(called) == len(second.requests) == 1
    assert called[0].__name__ == "numpy"  # the object, not what is stored of it


def test_a_person_approves_a_call_of_the_code(url):
    paid: list[str] = []

    @tool
    def pay(invoice: str) -> str:
        """Pays.

        Args:
            invoice: Which.
        """
        paid.append(invoice)
        return f"receipt {invoice}"

    declared = {"pay": Effect("irreversible", key="invoice", approve="finance")}
    lines = ["try:", "    receipt = pay('a')", "except Exception:", "    receipt = 'none'", "final_answer(receipt)"]

    def life() -> Life:
        return Life(url, code(*lines), tools=[pay], declared=declared)

    with pytest.raises(ApprovalPendingError):  # the code can't catch it
        life().run()
    with pytest.raises(ApprovalPendingError):
        life().run()
    with SyncClient.open(url) as client:
        [asked] = client.approvals()
        client.decide(asked.approval_id, "approve", by="ann")
    assert (life().run(), paid) == ("receipt a", ["a"])


def test_a_run_that_failed_begins_again_with_the_variables_it_had(url):
    class Unready(Tool):
        name, description, inputs, output_type = "unready", "Fails once.", {}, "string"
        called = 0

        def forward(self) -> str:
            self.called += 1
            if self.called == 1:
                raise Interrupted
            return "ready"

    first = (code("total = 1", "final_answer(total)"),)
    plan = answer_in_steps(code("total += 1", "unready()"), code("final_answer(total)"))
    life = Life(url, *first, tools=[Unready()], declared={"unready": "read"})
    assert life.run("one") == 1
    life.agent.model = FunctionModel(plan)
    with pytest.raises(Interrupted):
        life.run("two", reset=False)
    assert life.run("two", reset=False) == 2  # not 3: the code ran twice, from the same variables


# -- turns that were finished ------------------------------------------------------------------------------------------


@survives("plain variables of finished runs", "stored; they come back")
@survives("functions, classes and modules of finished runs", "lost")
def test_plain_variables_of_finished_runs_come_back_and_functions_do_not(url):
    set_up = code(
        "import math",
        "def double(x):",
        "    return 2 * x",
        "items = [1, (2, 3)]",
        "names = {'a', 'b'}",
        "final_answer('ready')",
    )
    ask = code("final_answer([items, sorted(names), double(4), math.floor(2.5)])")
    plain = code("final_answer([items, sorted(names)])")
    life = Life(url, set_up)
    life.run("set up")
    life.agent.model = FunctionModel(answer_in_steps(ask))
    assert life.run("ask", reset=False) == [[1, (2, 3)], ["a", "b"], 8, 2]  # in the same life

    second = Life(url, ask, plain)
    assert second.run("ask again", reset=False) == [[1, (2, 3)], ["a", "b"]]
    assert "double" in second.requests[1]  # the truth: the model reads that there is no such function


def test_variables_are_those_at_the_end_of_a_run_even_if_it_resets_the_memory(url):
    Life(url, code("items = [1]", "final_answer(1)")).run("one")
    Life(url, code("items.append(2)", "final_answer(2)")).run("two")  # reset is smolagents' default: memory only
    assert Life(url, code("final_answer(items)")).run("three") == [1, 2]


def test_variables_of_managed_agents_come_back(url):
    def make_team(*steps: str) -> CodeAgent:
        logger = AgentLogger(LogLevel.OFF, Console(quiet=True))
        options = {"logger": logger, "name": "helper", "description": "Helps."}
        helper = CodeAgent(tools=[], model=FunctionModel(answer_in_steps(*steps)), **options)
        ask = answer_in_steps(code("final_answer(helper('help'))"))
        return CodeAgent(tools=[], model=FunctionModel(ask), managed_agents=[helper], logger=logger)

    resumable(make_team(code("seen = 7", "final_answer(seen)")), session_id="s", store=url).run("one")
    again = resumable(make_team(code("final_answer(seen + 1)")), session_id="s", store=url).run("two")
    assert again.strip().endswith("8")


def test_objects_of_the_agents_program_stay_in_its_interpreter(url):
    offset = object()
    logger = AgentLogger(LogLevel.OFF, Console(quiet=True))
    agent = CodeAgent(tools=[], model=FunctionModel(answer_in_steps(code("final_answer(offset)"))), logger=logger)
    agent.python_executor.send_variables({"offset": offset})
    for turn in ("1", "2"):
        with pytest.warns(HoldfastWarning, match="the answer is a object"):
            assert resumable(agent, session_id="s", store=url).run("go", turn=turn) is offset


# -- results that can't be stored --------------------------------------------------------------------------------------


class Table:
    rows = 3


class Load(Tool):
    name, description, inputs, output_type = "load", "Loads a table.", {}, "object"

    def __init__(self) -> None:
        super().__init__()
        self.called = 0

    def forward(self) -> Table:
        self.called += 1
        return Table()


STEPS = (code("table = load()", "print(table.rows)"), code("final_answer(table.rows)"))


def test_a_read_whose_result_cant_be_stored_is_made_again(url):
    load = Load()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Interrupted):
            Life(url, *STEPS, tools=[load], declared={"load": "read"}, cut_off_at=1).run()
    second = Life(url, *STEPS, tools=[load], declared={"load": "read"})
    assert second.run() == 3
    assert (load.called, len(second.requests)) == (2, 1)


def test_the_code_learns_that_another_result_could_not_be_stored(url):
    load = Load()
    with pytest.raises(Interrupted), pytest.warns(HoldfastWarning, match="the result of load is a Table"):
        Life(url, *STEPS, tools=[load], cut_off_at=1).run()
    second = Life(url, *STEPS, tools=[load])
    second.run(max_steps=1)
    assert (
        "The call of load was finished before a restart, but its result could not be stored"
        in second.agent.memory.steps[1].error.message
    )
    assert load.called == 1


# -- transcripts -------------------------------------------------------------------------------------------------------


def test_code_is_a_call_in_the_transcript(url):
    Life(url, code("print('hello')"), code("1 / 0"), code("final_answer('done')")).run()
    with SyncClient.open(url) as client:
        spoken = list(to_transcript(client.latest("s")))
    assert [one.role for one in spoken] == ["user", *["assistant", "tool"] * 3]
    assert spoken[1].tool_calls[0].arguments == {"code": "print('hello')"}
    assert "hello" in spoken[2].parts[0].content[0].content
    assert spoken[4].parts[0].is_error
