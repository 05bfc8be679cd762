"""A default model of the OpenAI Agents SDK that needs no network: it uses the first tool, else it answers."""

from agents import Model, ModelResponse, Usage, set_tracing_disabled
from agents.models.openai_provider import OpenAIProvider
from agents.testing import assistant_message, function_call


class FakeModel(Model):
    async def get_response(self, system_instructions, input, model_settings, tools, *_, **__):
        is_done = not tools or any(item.get("type") == "function_call_output" for item in input)
        answer = assistant_message("Done.") if is_done else function_call(tools[0].name, {"invoice": "7"}, call_id="1")
        return ModelResponse(output=[answer], usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError  # the page streams nothing


set_tracing_disabled(True)
OpenAIProvider.get_model = lambda *_: FakeModel()
