"""OpenAI's client without a network: it asks for the tool `pay`, then says that it is done."""

from types import SimpleNamespace

import openai


class Message:
    def __init__(self, fields):
        self.fields = fields

    def model_dump(self, **_):
        return self.fields


class AsyncOpenAI:
    def __init__(self, **_):
        self.chat = SimpleNamespace(completions=self)

    async def create(self, *, model, messages, **_):
        if messages[-1]["role"] == "user" and messages[-1]["content"].startswith("pay"):
            function = {"name": "pay", "arguments": '{"invoice_id": 7}'}
            said = {"role": "assistant", "tool_calls": [{"id": "call-1", "type": "function", "function": function}]}
        else:
            said = {"role": "assistant", "content": "The invoice 7 is paid."}
        return SimpleNamespace(choices=[SimpleNamespace(message=Message(said))])


openai.AsyncOpenAI = AsyncOpenAI
