"""What the boss and its researchers agree on: what is asked, and what is answered. Both import it."""

from dataclasses import dataclass

from holdfast import contract


@dataclass
class Question:
    topic: str


@dataclass
class Finding:
    text: str


QUESTION = contract("question", 1, Question)
FINDING = contract("finding", 1, Finding)
