"""Calls of models and tools within a step, each recorded once.

A step that was cut off runs again from its beginning. Calls that were made by these functions return
their recorded results then. Outside of a run of `resumable` they just make the call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from holdfast.adapters.llama_index.runtime import current_step
from holdfast.runs.call_binding import function_name

_END = 16  # elements of a long list that a call is known by


async def call_model(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a model, or return its recorded answer.

    `answer = await call_model(llm.achat, messages)`. The call is known by its arguments: plain data,
    or objects of pydantic classes. The answer is plain data, too, or an object of the class that the
    function is annotated to return.
    """
    step = current_step.get()
    if step is None:
        return await _settle(function(*args, **kwargs))
    serializer = step.recorder.serializer.with_results_of(function)

    async def ask() -> Any:
        return serializer.serialize_value(await _settle(function(*args, **kwargs)))

    await step.recorder.prepare_call(step)
    return await step.part.call_model(
        step.key.step, _request(function, args, kwargs), ask, serializer.deserialize_value
    )


async def stream_model(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
    """Call a model that streams, and yield its chunks, or the recorded ones.

    `async for chunk in stream_model(llm.astream_chat, messages): ...`. The function returns an async
    iterator, or is awaited for one. The chunks are recorded when the last one has come. Objects of
    pydantic classes must be allowed by the workflow's serializer.
    """
    step = current_step.get()
    if step is None:
        async for chunk in await _settle(function(*args, **kwargs)):
            yield chunk
        return
    serializer = step.recorder.serializer
    await step.recorder.prepare_call(step)
    request = _request(function, args, kwargs)

    def load(recorded: list[Any]) -> list[Any]:
        return [serializer.deserialize_value(chunk) for chunk in recorded]

    async with step.part.open_model_call(step.key.step, request, load) as call:
        if call.answer is not None:
            for chunk in call.answer:
                yield chunk
            return
        chunks = []
        async for chunk in await _settle(function(*args, **kwargs)):
            chunks.append(serializer.serialize_value(chunk))
            yield chunk
        await call.record(chunks)


async def call_tool(tool: Any, /, **arguments: Any) -> Any:
    """Call a tool as it was declared, or return its recorded result.

    `receipt = await call_tool(pay, invoice_id=7)`. The tool is a function, or an object with
    `metadata.name` and `acall`, as LlamaIndex has. What it does is declared by `tools=` of
    `resumable`, or by `@Effect(...)`. The result of a call that was interrupted, and is not to be
    repeated, is a text that says so.
    """
    step = current_step.get()
    call = getattr(tool, "acall", tool)
    if step is None:
        return await _settle(call(**arguments))
    serializer = step.recorder.serializer.with_results_of(call)
    name = getattr(getattr(tool, "metadata", None), "name", None) or _name_of(call)

    async def use(**given: Any) -> Any:
        return serializer.serialize_value(await _settle(call(**given)))

    function = getattr(tool, "fn", tool)
    step.recorder.check_name(name, function)
    await step.recorder.prepare_call(step, is_tool=True)
    return await step.part.call_tool(name, arguments, use, function=function, load=serializer.deserialize_value)


def _request(function: Callable[..., Any], args: Any, kwargs: Any) -> list[Any]:
    """Return what identifies a call. Of a long list, such as a conversation: its length and its end."""
    named = {name: _shorten(value) for name, value in kwargs.items()}
    return [_name_of(function), [_shorten(arg) for arg in args], named]


def _shorten(value: Any) -> Any:
    """Return a long list without most of its elements: to digest all of them for each call takes long."""
    return [len(value), *value[-_END:]] if isinstance(value, list | tuple) and len(value) > 2 * _END else value


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", None) or function_name(function) or type(function).__name__)


async def _settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
