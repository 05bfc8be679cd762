"""OpenAI's models of AG2 without a network: they use the first tool, else they answer."""

from ag2.config import OpenAIConfig
from ag2.events import ModelMessage, ModelResponse, ToolCallsEvent
from ag2_model import call, results_of


async def answer(messages, context, *, tools, **_):
    if not tools or results_of(messages):
        return ModelResponse(ModelMessage("Invoice 7 is paid."))
    return ModelResponse(tool_calls=ToolCallsEvent([call(tools[0].function.name, f"c{len(messages)}", invoice="7")]))


OpenAIConfig.create = lambda _: answer
