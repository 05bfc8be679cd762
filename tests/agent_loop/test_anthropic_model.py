"""The model behind Anthropic's Messages API, against a server of our own."""

from __future__ import annotations

import asyncio
import json

import pytest
from model_server import ModelServer, cut_short, hangs_up, raw, status, streams, waits_for

import holdfast
from holdfast import ModelError, OpenAICompatible, UsageError, agent, tool

HELLO = [{"role": "user", "content": "hello"}]
PARAMETERS = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": PARAMETERS}}]
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"what": "x"}}
CALL = {"id": "toolu_1", "type": "function", "function": {"name": "look", "arguments": '{"what": "x"}'}}
THOUGHT = {"type": "thinking", "thinking": "greet", "signature": "c2ln"}


def answers(*content, stop="end_turn", **more):
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": one} if isinstance(one, str) else one for one in content],
        "stop_reason": stop,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    return raw(json.dumps(body | more).encode())


def start(index, **block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def grows(index, kind, **delta):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def stopped(index):
    return {"type": "content_block_stop", "index": index}


BEGUN = {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}}
PING = {"type": "ping"}


def ended(stop="end_turn"):
    return [
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


def events(*given):
    """As the API sends them: each with a line that names its type."""
    return streams(*[f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in given], done=False)


def model_at(server, waits=None, **options):
    sleep = (lambda _: None) if waits is None else waits.append
    return holdfast.AnthropicModel("claude", base_url=server.url, **{"sleep": sleep, **options})


# -- requests and answers ----------------------------------------------------------------------------------------------


def test_it_asks_as_the_api_wants_and_gives_the_reply():
    with ModelServer(answers("hi")) as server:
        model = model_at(server, api_key="sk-secret", max_tokens=100, temperature=0, headers={"anthropic-beta": "b"})
        reply = model([{"role": "system", "content": "Be brief."}, *HELLO], TOOLS)
    assert reply.message == {"role": "assistant", "content": "hi"}
    assert reply.usage == {"input_tokens": 3, "output_tokens": 2}
    assert server.asked == [
        {
            "model": "claude",
            "max_tokens": 100,
            "temperature": 0,
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
            "tools": [{"name": "look", "description": "Looks.", "input_schema": PARAMETERS}],
        }
    ]
    assert server.paths == ["/v1/messages"]
    headers = {name.lower(): value for name, value in server.headers[0].items()}
    assert headers["x-api-key"] == "sk-secret"
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["anthropic-beta"] == "b"
    assert "authorization" not in headers


def test_calls_and_their_results_are_translated_there_and_back():
    with ModelServer(answers("Let me see.", USE, stop="tool_use"), answers("7")) as server:
        model = model_at(server)
        asked = model(HELLO, TOOLS).message
        assert asked == {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}
        results = [
            {"role": "tool", "tool_call_id": "toolu_1", "content": "x is 7", "name": "look"},
            {"role": "tool", "tool_call_id": "toolu_2", "content": ""},
        ]
        model([*HELLO, asked, *results, {"role": "user", "content": "And?"}], TOOLS)
    [_, said, answered] = server.asked[-1]["messages"]
    assert said == {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, USE]}
    assert answered == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "x is 7"}]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": []},
            {"type": "text", "text": "And?"},
        ],
    }


def test_calls_that_another_model_made_up_are_sent_as_the_api_takes_them():
    function = {"name": "look at\nthis" + "x" * 1000, "arguments": "[]"}
    made_up = {"role": "assistant", "tool_calls": [{"id": "call:1", "function": function}, {"id": "c2"}]}
    results = [{"role": "tool", "tool_call_id": one, "content": "there is no such tool"} for one in ("call:1", "c2")]
    with ModelServer(answers("I see")) as server:
        model_at(server)([*HELLO, made_up, *results])
    [_, said, answered] = server.asked[0]["messages"]
    assert [one["id"] for one in said["content"]] == ["call_1", "c2"]
    assert [one["tool_use_id"] for one in answered["content"]] == ["call_1", "c2"]
    assert said["content"][0]["name"] == ("look_at_this" + "x" * 1000)[:128]
    assert [one["input"] for one in said["content"]] == [{"INVALID_JSON": "[]"}, {}]


def test_images_and_blocks_of_either_api_are_sent_and_empty_messages_are_not():
    block = {"type": "image", "source": {"type": "url", "url": "https://host/a.png"}}
    content = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "https://host/a.png"}},
        block,
    ]
    empty = {"role": "assistant", "content": None}
    with ModelServer(answers("hi")) as server:
        model_at(server)([*HELLO, empty, {"role": "user", "content": content}])
    [only] = server.asked[0]["messages"]
    assert only["content"] == [
        {"type": "text", "text": "hello"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
        block,
        block,
    ]


def test_thinking_is_the_reasoning_and_comes_back_as_it_was(quick):
    with ModelServer(answers(THOUGHT, USE, stop="tool_use"), answers("it is 7"), answers("bye")) as server:
        bot = agent(
            model=model_at(server, thinking={"type": "enabled"}), tools=[look], checkpoints=quick, session_id="s"
        )
        turn = bot.generate("x?")
        assert turn.state.reasoning == ("greet",)
        bot.generate("thanks")
        said = [asked["messages"][1]["content"] for asked in server.asked[1:]]
        assert said == [[THOUGHT, USE]] * 2
        assert server.asked[0]["thinking"] == {"type": "enabled"}


def test_another_model_that_goes_on_is_not_given_what_only_anthropic_reads():
    with ModelServer(answers(THOUGHT, "hi")) as server:
        message = model_at(server)(HELLO).message
    assert set(message) > {"role", "content"}
    with ModelServer(raw(b'{"choices": [{"message": {"content": "yes"}}]}')) as server:
        OpenAICompatible(server.url, "small")([*HELLO, message, *HELLO])
    assert server.asked[0]["messages"][1] == {"role": "assistant", "content": "hi"}


def test_a_call_that_was_cut_off_is_not_carried_out(quick):
    with ModelServer(answers(USE, stop="max_tokens"), answers("I see")) as server:
        bot = agent(model=model_at(server), tools=[look], checkpoints=quick, session_id="s")
        state = bot.generate("x?").state
    assert "cut off" in state.messages[2]["content"]
    [_, said, answered] = server.asked[-1]["messages"]
    assert isinstance(said["content"][0]["input"], dict)
    assert answered["content"][0]["tool_use_id"] == "toolu_1"


def test_a_refusal_is_an_error_and_no_answer():
    with ModelServer(answers("I", stop="refusal")) as server, pytest.raises(ModelError, match="declined"):
        model_at(server)(HELLO)


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_is_given_in_pieces_and_whole():
    given = [
        BEGUN,
        start(0, type="thinking", thinking="", signature=""),
        grows(0, "thinking_delta", thinking="gre"),
        grows(0, "thinking_delta", thinking="et"),
        grows(0, "signature_delta", signature="c2ln"),
        stopped(0),
        PING,
        start(1, type="text", text=""),
        grows(1, "text_delta", text="grüß"),
        grows(1, "text_delta", text=" dich"),
        stopped(1),
        {"type": "something_new", "x": 1},
        start(2, type="tool_use", id="toolu_1", name="look", input={}),
        grows(2, "input_json_delta", partial_json=""),
        grows(2, "input_json_delta", partial_json='{"what"'),
        grows(2, "input_json_delta", partial_json=': "x"}'),
        stopped(2),
        start(3, type="tool_use", id="toolu_2", name="list", input={}),
        stopped(3),
        *ended("tool_use"),
    ]
    with ModelServer(events(*given)) as server:
        *pieces, reply = model_at(server).stream(HELLO, TOOLS)
    assert pieces == ["grüß", " dich"]
    assert reply.reasoning == "greet"
    assert reply.usage == {"input_tokens": 3, "output_tokens": 9}
    assert reply.message["content"] == "grüß dich"
    second = {"id": "toolu_2", "type": "function", "function": {"name": "list", "arguments": "{}"}}
    assert reply.message["tool_calls"] == [CALL, second]
    assert reply.message["anthropic_content"][0] == THOUGHT
    assert server.asked[0]["stream"] is True


def test_arguments_that_are_no_json_are_told_to_the_model(quick):
    given = [
        BEGUN,
        start(0, type="tool_use", id="toolu_1", name="look", input={}),
        grows(0, "input_json_delta", partial_json='{"what": "x'),
        *ended("max_tokens"),
    ]
    text = [BEGUN, start(0, type="text", text="I see"), *ended()]
    with ModelServer(events(*given), events(*text)) as server:
        bot = agent(model=model_at(server), tools=[look], checkpoints=quick, session_id="s")
        told = list(bot.stream("x?"))
    assert told[-1].text == "I see"
    assert [event.outcome.is_error for event in told if event.kind == "tool_result"] == [True]
    assert server.asked[1]["messages"][1]["content"][0]["input"] == {"INVALID_JSON": '{"what": "x'}


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ([], "in the middle"),
        ([{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}], "Overloaded"),
        ([grows(7, "text_delta", text="of no block"), *ended()], "no message of Anthropic"),
        ([grows(0, "text_delta", text=5), *ended()], "no message of Anthropic"),
        ([start(1, type="tool_use", id=None, name="look", input={}), *ended()], "no message of Anthropic"),
        ([start(1, type="text", text=[1]), *ended()], "no message of Anthropic"),
        ([{"type": "content_block_start", "index": 1, "content_block": None}], "no message of Anthropic"),
        (ended("refusal"), "declined"),
    ],
)
def test_a_stream_that_breaks_off_is_no_reply_and_is_not_repeated(broken, told):
    begun = [BEGUN, start(0, type="text", text=""), grows(0, "text_delta", text="half")]
    with ModelServer(events(*begun, *broken), answers("never asked")) as server:
        pieces = []
        with pytest.raises(ModelError, match=told):
            pieces.extend(model_at(server).stream(HELLO))
    assert pieces == ["half"]
    assert len(server.asked) == 1


def test_an_endpoint_that_does_not_stream_is_understood():
    with ModelServer(answers("hi")) as server:
        [reply] = model_at(server).stream(HELLO)
    assert reply.message["content"] == "hi"


# -- failures ----------------------------------------------------------------------------------------------------------


def test_what_is_refused_for_now_is_asked_again(quick):
    waits = []
    with ModelServer(status(529, Retry_After="7"), status(429, Retry_After="0"), hangs_up, answers("hi")) as server:
        assert model_at(server, waits)(HELLO).message["content"] == "hi"
    assert waits[:2] == [7, 0]
    assert len(waits) == 3


@pytest.mark.parametrize(("code", "told"), [(400, "too long"), (401, "api_key"), (404, "base_url")])
def test_what_is_refused_for_good_is_not_asked_again(code, told):
    refusing = ModelServer(status(code, "too long"), answers("never asked"))
    with refusing as server, pytest.raises(ModelError, match=told) as caught:
        model_at(server, api_key="sk-secret")(HELLO)
    assert caught.value.status == code
    assert "sk-secret" not in str(caught.value)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"type": "message"}',
        b'{"type": "message", "content": "hi"}',
        b'{"type": "message", "content": [7]}',
        b'{"type": "message", "content": [{"type": "text"}]}',
        b'{"type": "message", "content": [{"type": "tool_use", "id": "t", "name": 5, "input": {}}]}',
        b'{"choices": [{"message": {"content": "hi"}}]}',
        b'{"type": "message", "content": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    ],
)
def test_what_is_no_message_is_no_reply(body):
    with ModelServer(raw(body)) as server, pytest.raises(ModelError, match="no message of Anthropic"):
        model_at(server)(HELLO)


def test_a_server_that_says_nothing_or_breaks_off_is_given_up_on():
    with ModelServer() as server:
        server.answers = [waits_for(server.ended), cut_short]
        with pytest.raises(ModelError, match="nothing was heard"):
            model_at(server, timeout=0.05, retries=0)(HELLO)
        with pytest.raises(ModelError, match="broke off"):
            model_at(server, retries=0)(HELLO)


@pytest.mark.parametrize("options", [{"base_url": "host"}, {"max_tokens": 0}, {"max_tokens": True}])
def test_what_can_not_be_right_is_refused(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        holdfast.AnthropicModel("claude", **options)


def test_its_repr_keeps_the_key_to_itself():
    assert (
        repr(holdfast.AnthropicModel("claude", api_key="sk-secret")) == "<AnthropicModel 'claude' at api.anthropic.com>"
    )


# -- in the loop -------------------------------------------------------------------------------------------------------


@tool(kind="read")
def look(what: str) -> str:
    return f"{what} is 7"


def test_an_agent_speaks_with_it_and_goes_on_after_an_error(quick):
    with ModelServer(answers(USE, stop="tool_use"), status(400, "too long"), answers("it is 7")) as server:
        bot = agent(model=model_at(server), tools=[look], checkpoints=quick, session_id="s")
        with pytest.raises(ModelError, match="too long"):
            bot.generate("x?")
        turn, state = bot.generate()
    assert (turn.text, turn.usage["output_tokens"]) == ("it is 7", 4)
    assert [message["role"] for message in state.messages] == ["user", "assistant", "tool", "assistant"]


def test_an_awaited_agent_hears_it_as_it_speaks(memory_store):
    async def story(server):
        async with memory_store.async_client() as client:
            bot = agent(model=model_at(server), tools=[look], checkpoints=client, session_id="s")
            return [(event.kind, event.text) async for event in bot.stream("x?")]

    given = [
        BEGUN,
        start(0, type="text", text=""),
        grows(0, "text_delta", text="it is "),
        grows(0, "text_delta", text="7"),
    ]
    with ModelServer(events(*given, *ended())) as server:
        told = asyncio.run(story(server))
    assert told == [("text", "it is "), ("text", "7"), ("message", "it is 7"), ("end", "it is 7")]
