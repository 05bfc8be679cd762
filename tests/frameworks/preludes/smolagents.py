"""Models of smolagents without a network: they pay, or write code, and answer."""

from smolagents import InferenceClientModel
from smolagents_model import FunctionModel, answer_in_steps, code, final, since_task, text_of

PAY = answer_in_steps([("pay", {"invoice_id": 7})], final("The invoice 7 is paid."))
COUNT = answer_in_steps(code("total = 6 * 7", "print(total)"), code("final_answer(total)"))
ADD = answer_in_steps(code("final_answer(total + 1)"))


def answer(messages):
    task = text_of(since_task(messages)[0])
    if "one more" in task:
        return ADD(messages)
    if "6 times 7" in task:
        return COUNT(messages)
    return PAY(messages) if "Pay" in task else final("It is due tomorrow.")


def generate(_self, messages, *_, **__):
    return FunctionModel(answer).generate(messages)


InferenceClientModel.generate = generate
