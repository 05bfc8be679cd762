"""Bedrock's model of Strands without AWS and without a network: it pays, then answers."""

import strands.models
from strands_model import FunctionModel, call, results_since_user, text_of


class BedrockModel(FunctionModel):
    def __init__(self, model_id: str) -> None:
        super().__init__(self._answer)

    def _answer(self, messages):
        asked = next(text_of(one) for one in reversed(messages) if one["role"] == "user" and text_of(one))
        if results_since_user(messages) or "pay the invoice" not in asked:
            return "The invoice 7 is paid."
        return [call("pay", f"call-{len(messages)}", invoice_id=7)]


strands.models.BedrockModel = BedrockModel
