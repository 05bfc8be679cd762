"""Models of Pydantic AI that need no network: whatever name an agent gives, it calls each tool, then answers a text."""

from pydantic_ai import models
from pydantic_ai.models.test import TestModel

models.infer_model = lambda model, *_, **__: (
    TestModel(custom_output_text="Invoice 7 is paid.") if isinstance(model, str) else model
)
