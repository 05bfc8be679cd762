"""What the writer and its reviewers agree on: both import it."""

from dataclasses import dataclass

from holdfast import contract


@dataclass
class Draft:
    name: str
    text: str


@dataclass
class Review:
    name: str
    words: int


DRAFT = contract("draft", 1, Draft)
REVIEW = contract("review", 1, Review)
