"""OpenAI's models of CrewAI without a network: they pay if there is a tool for it, and answer."""

import os

import crewai_model  # noqa: F401 - telemetry off
from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai_model import call

os.environ["OPENAI_API_KEY"] = "sk-none"


def answer(_self, messages, tools=None, **_):
    said = messages if isinstance(messages, list) else [{"role": "user", "content": messages}]
    if tools and said[-1]["role"] != "tool":
        return [call("pay", invoice_id=7)]
    return "The invoice 7 is paid."


async def answer_async(self, *args, **kwargs):
    return answer(self, *args, **kwargs)


OpenAICompletion.call, OpenAICompletion.acall = answer, answer_async
