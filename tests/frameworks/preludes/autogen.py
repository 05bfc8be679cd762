"""OpenAI's client of AutoGen without its dependencies and without a network: it pays, then asks, then answers."""

import sys
from types import ModuleType

from autogen_core.models import FunctionExecutionResultMessage
from autogen_model import FunctionModel, call


class OpenAIChatCompletionClient(FunctionModel):
    def __init__(self, model: str) -> None:
        super().__init__(self._answer)

    def _answer(self, messages):
        # The page's agent has a tool if it asks for one in its instructions.
        is_done = isinstance(messages[-1], FunctionExecutionResultMessage)
        if is_done or "pay invoices" not in str(messages[0].content):
            return "The invoice 7 is paid."
        return [call("pay", f"call-{len(messages)}", invoice_id=len(messages))]


fake = ModuleType("autogen_ext.models.openai")
fake.OpenAIChatCompletionClient = OpenAIChatCompletionClient
sys.modules[fake.__name__] = fake
