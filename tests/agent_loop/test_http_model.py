"""The model behind an OpenAI-compatible endpoint, against a server of our own."""

from __future__ import annotations

import asyncio
import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from model_server import ModelServer, cut_short, delta, hangs_up, raw, says, status, streams, waits_for

from holdfast import ModelError, OpenAICompatible, Reply, UsageError, agent, tool

HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"what": "x"}'}}


class Waits:
    """Takes note of how long it was to sleep, and does not."""

    def __init__(self):
        self.seconds = []

    def __call__(self, seconds):
        self.seconds.append(seconds)


@pytest.fixture
def waits():
    return Waits()


def model_at(server, waits=None, **options):
    return OpenAICompatible(server.url, "small", **{"sleep": waits or Waits(), **options})


def test_it_asks_as_the_endpoint_wants_and_gives_the_reply():
    with ModelServer(says("hi", reasoning_content="greet")) as server:
        reply = model_at(server, api_key="sk-secret", temperature=0, headers={"X-Org": "7"})(HELLO, TOOLS)
    assert reply == Reply(
        message={"role": "assistant", "content": "hi"},
        usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        reasoning="greet",
    )
    assert server.asked == [{"model": "small", "messages": HELLO, "temperature": 0, "tools": TOOLS}]
    assert server.paths == ["/v1/chat/completions"]
    [headers] = server.headers
    assert (headers["Authorization"], headers["X-Org"]) == ("Bearer sk-secret", "7")


def test_half_of_a_surrogate_pair_which_endpoints_refuse_is_not_sent():
    with ModelServer(says("hi")) as server:
        model_at(server)([{"role": "user", "content": "grüß \ud800 dich"}])
    assert server.asked[0]["messages"] == [{"role": "user", "content": "grüß ? dich"}]


def test_tool_calls_are_given_with_their_ids():
    without_id = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    with ModelServer(says(tool_calls=[CALL, without_id])) as server:
        message = model_at(server)(HELLO).message
    first, second = message["tool_calls"]
    assert first == CALL
    assert second["id"].startswith("call_")


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_is_given_in_pieces_and_whole():
    chunks = [
        delta(role="assistant", content=""),
        delta(reasoning_content="hm"),
        ": a comment that keeps the line open\n\n",
        delta(content="grüß"),
        delta(content=" dich"),
        delta(finish="stop"),
        {"choices": [], "usage": {"total_tokens": 9}},
    ]
    with ModelServer(streams(*chunks)) as server:
        *pieces, reply = model_at(server).stream(HELLO, TOOLS)
    assert pieces == ["grüß", " dich"]
    assert reply == Reply(
        message={"role": "assistant", "content": "grüß dich"}, usage={"total_tokens": 9}, reasoning="hm"
    )
    assert server.asked[0]["stream"] is True
    assert server.asked[0]["tools"] == TOOLS


def test_calls_that_come_in_pieces_are_put_together():
    def piece(index, id_=None, name=None, arguments=None):
        function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
        return delta(tool_calls=[{"index": index, "function": function, **({"id": id_} if id_ else {})}])

    chunks = [
        piece(0, "c1", "look", ""),
        piece(0, arguments='{"what"'),
        piece(1, "c2", "look", '{"what": "y"}'),
        piece(0, arguments=': "x"}'),
        delta(finish="tool_calls"),
    ]
    with ModelServer(streams(*chunks)) as server:
        [reply] = model_at(server).stream(HELLO)
    assert reply.message["tool_calls"] == [
        CALL,
        {"id": "c2", "type": "function", "function": {"name": "look", "arguments": '{"what": "y"}'}},
    ]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (streams(delta(content="half"), done=False), "in the middle"),
        (streams(delta(content="half"), {"error": {"message": "overloaded"}}), "overloaded"),
        (streams(delta(content="half"), "data: {oops\n\n"), "no chat completion"),
        (streams(delta(content="half"), {"choices": [7]}), "no chat completion"),
        (streams(delta(content="half"), delta(content=5)), "no chat completion"),
        (streams(delta(content="half"), delta(tool_calls=["look"])), "no chat completion"),
        (streams(delta(content="half"), f"data: {'[' * 100_000}\n\n"), "no chat completion"),
    ],
    ids=["cut", "error", "nonsense", "choice", "content", "call", "depth"],
)
def test_a_stream_that_breaks_off_is_no_reply_and_is_not_repeated(answer, told, waits):
    with ModelServer(answer, says("never asked")) as server:
        pieces = []
        with pytest.raises(ModelError, match=told):
            pieces.extend(model_at(server, waits).stream(HELLO))
    assert pieces == ["half"]
    assert len(server.asked) == 1


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\n\ndata: [DONE]"], ids=["nothing", "LF", "CRLF", "done"])
def test_a_stream_whose_last_event_has_no_blank_line_after_it_is_whole(ending):
    last = f"data: {json.dumps(delta(content=' there', finish='stop'))}{ending}"
    with ModelServer(streams(delta(content="hi"), last, done=False)) as server:
        *pieces, reply = model_at(server).stream(HELLO)
    assert pieces == ["hi", " there"]
    assert reply.message["content"] == "hi there"


def test_a_stream_that_breaks_off_within_its_last_event_is_no_reply():
    half = f"data: {json.dumps(delta(content=' there', finish='stop'))}"[:-5]
    cut = ModelServer(streams(delta(content="hi"), half, done=False))
    with cut as server, pytest.raises(ModelError, match="in the middle"):
        list(model_at(server).stream(HELLO))


def test_who_answers_a_request_for_a_stream_with_a_whole_response_is_understood():
    with ModelServer(says("hi"), raw(b'{"error": {"message": "overloaded"}}'), raw(b"{}")) as server:
        model = model_at(server)
        [reply] = model.stream(HELLO)
        assert (reply.message["content"], reply.usage["total_tokens"]) == ("hi", 5)
        with pytest.raises(ModelError, match="overloaded"):
            list(model.stream(HELLO))
        with pytest.raises(ModelError, match="no chat completion"):
            list(model.stream(HELLO))


def test_a_stream_that_is_refused_at_first_is_asked_for_again(waits):
    with ModelServer(status(503), streams(delta(content="hi"), delta(finish="stop"))) as server:
        assert "hi" in list(model_at(server, waits).stream(HELLO))
    assert len(server.asked) == 2


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_what_is_refused_for_now_is_asked_again_after_what_the_server_says(code, waits):
    with ModelServer(status(code, Retry_After="7"), status(code, Retry_After="0"), says("hi")) as server:
        assert model_at(server, waits)(HELLO).message["content"] == "hi"
    assert waits.seconds == [7, 0]
    assert server.asked[0] == server.asked[1] == server.asked[2]


def test_retry_after_may_be_a_date_and_is_not_waited_for_for_ever(waits):
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=55), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    with ModelServer(
        status(429, Retry_After=soon), status(429, Retry_After=past), status(429, Retry_After="86400"), says("hi")
    ) as server:
        model_at(server, waits)(HELLO)
    near, gone, far = waits.seconds
    assert 0 < near <= 55
    assert (gone, far) == (0, 60)


def test_without_a_word_it_waits_longer_each_time(waits):
    with ModelServer(status(500), status(500), status(500, Retry_After="soon"), says("hi")) as server:
        model_at(server, waits)(HELLO)
    assert [0.5 * 2**n <= seconds <= 2**n for n, seconds in enumerate(waits.seconds)] == [True] * 3


def test_it_gives_up_after_so_many_times_and_says_what_was_told(waits):
    with ModelServer(*[status(503, "we are closed")] * 5) as server, pytest.raises(ModelError) as caught:
        model_at(server, waits, retries=2)(HELLO)
    assert caught.value.status == 503
    assert "3 times" in str(caught.value)
    assert "we are closed" in str(caught.value)
    assert len(server.asked) == 3


@pytest.mark.parametrize(("code", "told"), [(400, "bad request"), (401, "api_key"), (404, "base_url"), (301, "301")])
def test_what_is_refused_for_good_is_not_asked_again(code, told, waits):
    refusing = ModelServer(status(code, "bad request"), says("never asked"))
    with refusing as server, pytest.raises(ModelError, match=told) as caught:
        model_at(server, waits, api_key="sk-secret")(HELLO)
    assert caught.value.status == code
    assert "sk-secret" not in str(caught.value)
    assert (len(server.asked), waits.seconds) == (1, [])


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"choices": []}', b'{"choices": [7]}', b"null", b"{}", b'"hi"', b'{"content": "hi"}'],
)
def test_what_is_no_chat_completion_is_no_reply(body):
    with ModelServer(raw(body)) as server, pytest.raises(ModelError, match="no chat completion"):
        model_at(server)(HELLO)


def test_an_error_that_comes_as_an_answer_is_told_and_ends_no_turn(quick):
    failed = raw(b'{"error": {"message": "overloaded", "code": 502}}')
    fine = raw(b'{"error": null, "choices": [{"message": {"role": "assistant", "content": "hello"}}]}')
    with ModelServer(failed, fine) as server:
        bot = agent(model=model_at(server), checkpoints=quick, session_id="s")
        with pytest.raises(ModelError, match="overloaded") as caught:
            bot.generate("hi")
        assert caught.value.status == 200
        assert [message["role"] for message in bot.load().messages] == ["user"]
        assert bot.generate().text == "hello"


# -- connections -------------------------------------------------------------------------------------------------------


def test_a_connection_that_breaks_before_an_answer_is_made_again(waits):
    with ModelServer(hangs_up, says("hi")) as server:
        assert model_at(server, waits)(HELLO).message["content"] == "hi"
    assert len(waits.seconds) == 1


def test_an_answer_that_breaks_off_is_an_error(waits):
    with ModelServer(cut_short) as server, pytest.raises(ModelError, match="broke off"):
        model_at(server, waits)(HELLO)


def test_a_server_that_says_nothing_is_given_up_on(waits):
    with ModelServer() as server:
        server.answers = [waits_for(server.ended)] * 2
        with pytest.raises(ModelError, match="nothing was heard") as caught:
            model_at(server, waits, timeout=0.05, retries=1)(HELLO)
    assert caught.value.status is None
    assert len(waits.seconds) == 1


def test_a_server_that_is_not_there_is_an_error(waits):
    with socket.socket() as taken:  # bound, and never listening: nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(ModelError, match="can't be reached"):
            OpenAICompatible(url, "small", sleep=waits, retries=2)(HELLO)
    assert len(waits.seconds) == 2


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://host/v1", "https://"])
def test_an_address_that_can_not_be_right_is_refused(url):
    with pytest.raises(UsageError, match="base_url"):
        OpenAICompatible(url, "small")


def test_its_repr_keeps_the_key_to_itself():
    assert "secret" not in repr(OpenAICompatible("https://host/v1", "small", api_key="sk-secret"))


# -- in the loop -------------------------------------------------------------------------------------------------------


@tool(kind="read")
def look(what: str) -> str:
    return f"{what} is 7"


def test_an_agent_speaks_with_it(quick):
    with ModelServer(says(tool_calls=[CALL]), status(429, Retry_After="0"), says("it is 7")) as server:
        turn = agent(model=model_at(server), tools=[look], checkpoints=quick, session_id="s").generate("x?")
    assert turn.text == "it is 7"
    assert turn.usage["total_tokens"] == 10
    roles = [message["role"] for message in server.asked[-1]["messages"]]
    assert roles == ["user", "assistant", "tool"]
    assert server.asked[-1]["messages"][-1]["tool_call_id"] == "c1"


def test_an_awaited_agent_hears_it_as_it_speaks(memory_store):
    async def story(server):
        async with memory_store.async_client() as client:
            bot = agent(model=model_at(server), tools=[look], checkpoints=client, session_id="s")
            return [(event.kind, event.text) async for event in bot.stream("x?")]

    chunks = (delta(content="it is "), delta(content="7"), delta(finish="stop"))
    with ModelServer(streams(*chunks)) as server:
        told = asyncio.run(story(server))
    assert told == [("text", "it is "), ("text", "7"), ("message", "it is 7"), ("end", "it is 7")]


def test_a_model_that_fails_leaves_the_conversation_to_be_gone_on_with(quick):
    with ModelServer(says(tool_calls=[CALL]), status(400, "too long"), says("7")) as server:
        bot = agent(model=model_at(server), tools=[look], checkpoints=quick, session_id="s")
        with pytest.raises(ModelError, match="too long"):
            bot.generate("x?")
        assert bot.generate().text == "7"
