"""OpenAI's chat client of agent-framework without its package and without a network: it pays, then answers."""

import sys
from types import ModuleType

from agent_framework_model import FunctionClient, call, results_since_user


class OpenAIChatClient(FunctionClient):
    def __init__(self, model: str) -> None:
        super().__init__(self._answer)

    def _answer(self, messages):
        wants_payment = "pay the invoice" in next(
            one.text for one in reversed(messages) if one.role == "user" and one.text
        )
        if results_since_user(messages) or not wants_payment:
            return "The invoice 7 is paid."
        return [call("pay", f"call-{len(messages)}", invoice_id=len(messages))]


fake = ModuleType("agent_framework.openai")
fake.OpenAIChatClient = OpenAIChatClient
sys.modules[fake.__name__] = fake
