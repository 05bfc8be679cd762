"""DSPy's models without a network: they pay, then finish."""

import dspy
from dspy_model import answer_request

dspy.LM.__call__ = lambda _self, prompt=None, *, messages=None, **_: [answer_request(messages)]
