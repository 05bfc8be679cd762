"""Models of Google ADK that need no network: each uses the first tool, then it answers."""

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.models.registry import LLMRegistry
from google.genai import types


class FakeGemini(BaseLlm):
    @classmethod
    def supported_models(cls):
        return [r"gemini-.*"]

    async def generate_content_async(self, llm_request, stream=False):
        parts = [part for content in llm_request.contents for part in content.parts]
        names = list(llm_request.tools_dict)
        if names and not any(part.function_response for part in parts):
            answer = types.Part(function_call=types.FunctionCall(name=names[0], args={"invoice": "7"}))
        else:
            answer = types.Part(text="Done.")
        yield LlmResponse(content=types.Content(role="model", parts=[answer]))


LLMRegistry.resolve.cache_clear()
LLMRegistry.register(FakeGemini)
LLMRegistry.resolve = staticmethod(lambda model: FakeGemini)
