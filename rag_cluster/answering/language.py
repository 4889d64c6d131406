"""What is said in the question's language."""

from __future__ import annotations

from rag_cluster.domain.marks import MARK
from rag_cluster.domain.terms import language

REFUSALS = {
    "zh": "根据当前知识库无法确定",
    "en": "This cannot be determined from the current knowledge base.",
}


_BESIDE_A_REFUSAL = 40
"""Characters that a text may hold beside the sentence and still be a refusal, if it cites nothing."""


def question_language(question: str) -> str:
    """ "zh" or "en"."""
    return language(question)


def refusal_text(question: str) -> str:
    """The refusal sentence in the question's language."""
    return REFUSALS[question_language(question)]


def says_nothing(answer: str) -> bool:
    """Whether a generator's text is empty or a refusal in either language.

    One that cites something besides has answered a part of the question.
    """
    said = MARK.sub("", answer).strip(" \n.。").casefold()
    beside = 0 if MARK.search(answer) else _BESIDE_A_REFUSAL
    refusals = (refusal.rstrip(".").casefold() for refusal in REFUSALS.values())
    return not said or any(refusal in said and len(said) <= len(refusal) + beside for refusal in refusals)
