"""A default model of the OpenAI Agents SDK that needs no network: it answers each request with a text."""

from agents.models.openai_provider import OpenAIProvider
from agents.testing import ScriptedModel, assistant_message

OpenAIProvider.get_model = lambda *_: ScriptedModel([[assistant_message("The invoice 7 is paid.")]])
