"""Invalid tool calls of a model: each gets an explanation as its result, and the conversation continues."""

from __future__ import annotations

import json

import pytest

from holdfast import agent, tool

DEEP = "[" * 100_000 + "]" * 100_000


def asks(name, arguments):
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}


def made_up():
    return {
        "nested too deeply to be read": asks("note", f'{{"text": {DEEP}}}'),
        "nested deeply": asks("note", '{"text": ' + "[" * 500 + "]" * 500 + "}"),
        "objects that are nested deeply": asks("note", '{"a":' * 500 + "1" + "}" * 500),
        "not a number": asks("count", '{"number": NaN}'),
        "infinite": asks("count", '{"number": -Infinity}'),
        "text for a number": asks("count", '{"number": "7"}'),
        "true for a number": asks("count", '{"number": true}'),
        "a list for text": asks("note", '{"text": ["a"]}'),
        "null for text": asks("note", '{"text": null}'),
        "an object for an object's field": asks("either", '{"value": {}}'),
        "a name without end": asks("x" * 100_000, "{}"),
        "a name of many megabytes": asks("y" * 10_000_000, "{}"),
    }


@pytest.mark.parametrize("name", made_up())
def test_a_call_that_is_made_up_is_answered_and_not_made(quick, name):
    done = []

    @tool(kind="irreversible")
    def note(text: str) -> None:
        done.append(text)

    @tool
    def count(number: float) -> None:
        done.append(number)

    @tool(kind="idempotent")
    def either(value: int | str | None = None) -> None:
        done.append(value)

    replies = [made_up()[name], "I see"]

    def model(messages, _tools):
        model.told = messages[-1]["content"]
        return replies.pop(0)

    bot = agent(model=model, tools=[note, count, either], checkpoints=quick, session_id="s")
    assert bot.generate("go on").text == "I see"
    assert model.told.startswith("This call failed, and was not carried out.")
    assert len(model.told) < 1000
    assert done == []
    assert bot.load().text == "I see"


@pytest.mark.parametrize(
    "arguments",
    [
        {"number": 7},
        {"number": 7.5},
        {"whole": 7.0},
        {"either": None},
        {"either": "a"},
        {"items": [1]},
        {"more": {"a": 1}},
    ],
    ids=json.dumps,
)
def test_arguments_that_fit_are_given_as_they_are(quick, arguments):
    given = []

    @tool
    def take(
        number: float = 0,
        whole: int = 0,
        either: int | str | None = 0,
        items: list = (),
        more: dict | None = None,
        other=None,
    ) -> None:
        given.append({"number": number, "whole": whole, "either": either, "items": items, "more": more})

    replies = [asks("take", json.dumps({**arguments, "other": [1]})), "I see"]
    bot = agent(model=lambda *_: replies.pop(0), tools=[take], checkpoints=quick, session_id="s")
    bot.generate("go on")
    assert given[0].items() >= arguments.items()
